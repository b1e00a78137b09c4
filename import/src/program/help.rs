//! A help text as data: what a command is for, how it is called, its options and subcommands.
//!
//! Reads the texts of clap, argparse, click, cobra, optparse, git, npm and GNU programs by their common shape: headings,
//! indented entries, and a description after two spaces or on the lines below.

use super::option::{OptionValue, ProgramOption};
use super::usage::UsageForm;

/// A help text that was understood.
#[derive(Debug, Default)]
pub(super) struct Help {
    /// What the command does: the first paragraph that is no usage.
    pub(super) about: String,
    pub(super) forms: Vec<UsageForm>,
    pub(super) options: Vec<ProgramOption>,
    /// Names and descriptions.
    pub(super) commands: Vec<(String, String)>,
    /// Names and descriptions of positional arguments.
    pub(super) arguments: Vec<(String, String)>,
    /// Commands that the help itself calls internal.
    pub(super) internal: Vec<String>,
}

/// What the entries below a heading are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Section {
    /// Before the first heading, or text.
    Text,
    About,
    Usage,
    Commands,
    /// Commands for scripts.
    Internal,
    Arguments,
    Options,
    /// Examples, variables, options that every command of the program has.
    Ignored,
}

impl Help {
    /// Reads `text`, the help of the command `path`.
    pub(super) fn of(text: &str, path: &[String]) -> Self {
        let lines: Vec<_> = plain(text).lines().map(|line| line.trim_end().to_owned()).collect();
        let mut reader = HelpLines { lines: &lines, at: 0, path, help: Self::default(), paragraph: Vec::new() };
        reader.read();
        let mut help = reader.help;
        join_opposites(&mut help.options);
        help
    }

    /// Whether there is anything in it to make a subtool of.
    pub(super) fn is_understood(&self) -> bool {
        !self.forms.is_empty() || !self.options.is_empty() || !self.commands.is_empty()
    }
}

/// Makes one option of `--checkout` and `--no-checkout`, and drops other names of an option.
fn join_opposites(options: &mut Vec<ProgramOption>) {
    let says = |option: &ProgramOption, words: &[&str]| {
        let lower = option.description.to_lowercase();
        words.iter().any(|word| lower.starts_with(word))
    };
    options
        .retain(|option| !says(option, &["alias of", "alias for", "synonym", "same as", "opposite of", "deprecated"]));
    let flags: Vec<_> =
        options.iter().filter(|it| it.value == OptionValue::None).map(|it| it.flag().to_owned()).collect();
    for option in options.iter_mut().filter(|option| option.value == OptionValue::None) {
        let negation = format!("--no-{}", option.flag().trim_start_matches('-'));
        if flags.contains(&negation) {
            option.negation.get_or_insert(negation);
        }
    }
    let negations: Vec<_> = options.iter().filter_map(|option| option.negation.clone()).collect();
    options.retain(|option| !negations.iter().any(|negation| negation == option.flag()));
}

/// Removes colors and the overstrikes of manual pages, and expands tabs.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\u{8}' => drop(plain.pop()),
            '\u{1b}' if characters.peek() == Some(&'[') => {
                let _end = characters.by_ref().find(char::is_ascii_alphabetic);
            }
            '\t' => plain.push_str("        "),
            '\r' => {}
            other => plain.push(other),
        }
    }
    plain
}

struct HelpLines<'a> {
    lines: &'a [String],
    at: usize,
    path: &'a [String],
    help: Help,
    /// The paragraph that may become the description.
    paragraph: Vec<String>,
}

impl HelpLines<'_> {
    fn read(&mut self) {
        let mut section = Section::Text;
        while let Some(line) = self.lines.get(self.at) {
            let text = line.trim();
            if let Some(rest) = usage_start(text) {
                self.finish_paragraph();
                self.usage(rest);
                section = Section::Text;
                continue;
            }
            if let Some(found) = self.heading() {
                self.finish_paragraph();
                section = found;
                self.at += 1;
                continue;
            }
            match section {
                _ if text.is_empty() => {
                    self.finish_paragraph();
                    self.at += 1;
                }
                Section::Ignored => self.at += 1,
                _ if text.starts_with('-') && self.option() => {}
                Section::Options if text.starts_with('[') => self.bracketed_options(),
                Section::Commands => self.command(),
                Section::Internal => {
                    self.help.internal.extend(entry(text).map(|(name, _)| name.to_owned()));
                    self.at += 1;
                }
                Section::Arguments => self.argument(),
                Section::Text | Section::About => {
                    let is_prose = indent(line) == 0 || section == Section::About;
                    if is_prose && self.help.about.is_empty() && !text.starts_with("error") {
                        self.paragraph.push(text.to_owned());
                    }
                    self.at += 1;
                }
                Section::Usage | Section::Options => self.at += 1,
            }
        }
        self.finish_paragraph();
    }

    fn finish_paragraph(&mut self) {
        let paragraph = std::mem::take(&mut self.paragraph).join(" ");
        let program = self.path.first().map(String::as_str).unwrap_or_default();
        // `npm <command>`, `docker 1.2`, and what programs warn of first.
        let is_synopsis = paragraph.strip_prefix(program).is_some_and(|rest| {
            let rest = rest.trim_start();
            rest.starts_with(['<', '[']) || rest.starts_with(|it: char| it.is_ascii_digit()) || rest.is_empty()
        });
        let words = paragraph.split_whitespace().count();
        let is_warning = paragraph.to_lowercase().contains("warn") && paragraph.starts_with(program);
        let is_about = self.help.about.is_empty() && words > 1 && !is_synopsis && !is_warning;
        if is_about && !paragraph.starts_with("See ") && !paragraph.starts_with("Installed") {
            self.help.about = paragraph;
        }
    }

    /// Recognizes a heading in the current line.
    fn heading(&self) -> Option<Section> {
        let line = &self.lines[self.at];
        let text = line.trim();
        if text.is_empty() || indent(line) > 2 || text.starts_with(['-', '[', '<']) || text.len() > 80 {
            return None;
        }
        let next = self.lines[self.at + 1..].iter().find(|line| !line.is_empty())?;
        let is_above_entries = indent(next) > indent(line) || text.ends_with("commands:");
        let before_is_empty = self.at.checked_sub(1).is_none_or(|before| self.lines[before].is_empty());
        let is_capitals = text.len() > 2 && text.chars().all(|it| it.is_ascii_uppercase() || it == ' ' || it == '/');
        let has_colon = text.ends_with(':') && !text.contains(". ");
        let is_titled = before_is_empty && indent(line) == 0 && !text.ends_with(['.', ',']) && !text.contains("  ");
        let is_usual = ["options:", "commands:", "all commands:", "flags:"].contains(&text.to_lowercase().as_str());
        let heads_entries = is_above_entries || is_usual || has_colon && self.next_is_entry();
        if !heads_entries || !(has_colon || is_capitals || is_titled) {
            return None;
        }
        let is_short = text.split_whitespace().count() <= 4;
        let lower = text.trim_end_matches(':').to_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
        Some(
            if has(&["example", "environment", "learn more", "alias", "topic", "exit status", "see also", "feedback"])
                || has(&["general option", "global option", "interfaces"])
            {
                Section::Ignored
            } else if has(&["low-level", "internal commands", "external commands"]) {
                Section::Internal
            } else if has(&["command", "subcommand"]) && !has(&["option", "flag"]) {
                Section::Commands
            } else if has(&["option", "flag", "switch"]) {
                Section::Options
            } else if has(&["argument", "positional"]) || lower == "args" {
                Section::Arguments
            } else if lower == "description" || lower == "about" {
                Section::About
            } else if lower == "usage" {
                Section::Usage
            } else if self.next_is_option() {
                Section::Options
            } else if self.takes_command() && self.next_is_entry() {
                // git groups its commands under sentences.
                Section::Commands
            } else if has_colon && is_short || is_capitals {
                Section::Ignored
            } else {
                return None;
            },
        )
    }

    fn next_is_option(&self) -> bool {
        self.lines[self.at + 1..].iter().find(|line| !line.is_empty()).is_some_and(|it| it.trim().starts_with('-'))
    }

    fn next_is_entry(&self) -> bool {
        let next = self.lines[self.at + 1..].iter().find(|line| !line.is_empty());
        next.and_then(|line| entry(line.trim())).is_some_and(|(_, description)| !description.is_empty())
    }

    /// Whether the usage names a place for a subcommand.
    fn takes_command(&self) -> bool {
        let names = ["command", "subcommand", "cmd"];
        let mut placeholders = self.help.forms.iter().flat_map(|form| &form.positionals);
        self.path.len() == 1 && self.help.forms.is_empty()
            || placeholders.any(|it| names.contains(&it.placeholder.name.to_lowercase().as_str()))
    }

    /// Reads the forms of a usage, whose first line may be empty.
    fn usage(&mut self, first: &str) {
        let program = self.path.first().cloned().unwrap_or_default();
        let mut forms: Vec<String> = Vec::new();
        let own_indent = indent(&self.lines[self.at]);
        if !first.is_empty() {
            forms.push(first.to_owned());
        }
        self.at += 1;
        let mut is_first_line = first.is_empty();
        while let Some(line) = self.lines.get(self.at) {
            let text = line.trim();
            if text.is_empty() && is_first_line {
                self.at += 1;
                is_first_line = false;
                continue;
            }
            is_first_line = false;
            let continues = indent(line) > own_indent || first.is_empty();
            if text.is_empty() || text.starts_with('-') || !continues || text.ends_with(':') && !text.contains(' ') {
                break;
            }
            let begins = |text: &str| {
                let word = text.split_whitespace().next().unwrap_or_default();
                word.rsplit('/').next() == Some(program.as_str())
            };
            match text.strip_prefix("or:").map(str::trim) {
                Some(form) => forms.push(form.to_owned()),
                None if begins(text) || forms.is_empty() => forms.push(text.to_owned()),
                None => {
                    let last = forms.last_mut().expect("it has a form");
                    last.push(' ');
                    last.push_str(text);
                }
            }
            self.at += 1;
        }
        self.help.forms.extend(forms.iter().filter_map(|form| UsageForm::of(form, self.path)));
    }

    /// Reads an option with its description; `false` if the line has no option.
    fn option(&mut self) -> bool {
        let line = &self.lines[self.at];
        let own_indent = indent(line);
        let Some(mut option) = ProgramOption::of_line(line) else { return false };
        self.at += 1;
        let mut text = vec![option.description.clone()];
        while let Some(line) = self.lines.get(self.at) {
            let is_deeper = indent(line) > own_indent + 1;
            let is_next = line.trim().starts_with('-') && indent(line) <= own_indent + 4;
            let ends = line.is_empty() && !self.continues_after(own_indent);
            if ends || !line.is_empty() && (!is_deeper || is_next) {
                break;
            }
            text.push(line.trim().to_owned());
            self.at += 1;
        }
        text.retain(|line| !line.is_empty());
        option.description = text.join(" ");
        self.add(option);
        true
    }

    /// Whether a paragraph after this empty line still belongs to the option above it.
    fn continues_after(&self, own_indent: usize) -> bool {
        let next = self.lines[self.at + 1..].iter().find(|line| !line.is_empty());
        next.is_some_and(|line| indent(line) > own_indent + 4 && !line.trim().starts_with('-'))
    }

    /// Adds an option, or what it says more about one that is known.
    fn add(&mut self, option: ProgramOption) {
        let is_same = |known: &&mut ProgramOption| {
            known.flag() == option.flag() || option.short.is_some() && known.short == option.short
        };
        let Some(known) = self.help.options.iter_mut().find(is_same) else {
            self.help.options.push(option);
            return;
        };
        if known.description.is_empty() {
            known.description = option.description;
        }
        if known.value == OptionValue::None {
            known.value = option.value;
        }
        known.long = known.long.take().or(option.long);
        known.short = known.short.take().or(option.short);
    }

    /// Reads lines like `[-E|--save-exact] [--omit <a|b>]`.
    fn bracketed_options(&mut self) {
        let mut text = Vec::new();
        while let Some(line) = self.lines.get(self.at).filter(|line| !line.is_empty()) {
            text.push(line.trim().to_owned());
            self.at += 1;
        }
        let line = format!("{} {}", self.path.join(" "), text.join(" "));
        let form = UsageForm::of(&line, self.path).unwrap_or_default();
        form.options.into_iter().for_each(|option| self.add(option));
    }

    fn command(&mut self) {
        let line = &self.lines[self.at];
        let own_indent = indent(line);
        let text = line.trim();
        self.at += 1;
        if own_indent == 0 && !self.path.is_empty() {
            return;
        }
        if is_list(text) {
            let names = text.split(',').map(str::trim).filter(|name| is_command_name(name));
            self.help.commands.extend(names.map(|name| (name.to_owned(), String::new())));
            return;
        }
        let Some((name, description)) = entry(text) else { return };
        let mut description = description.to_owned();
        // A description on the lines below.
        while let Some(line) = self.lines.get(self.at).filter(|line| indent(line) > own_indent + 2) {
            let is_entry = entry(line.trim()).is_some_and(|(_, text)| !text.is_empty());
            if is_entry && indent(line) < own_indent + 8 {
                break;
            }
            push_line(&mut description, line);
            self.at += 1;
        }
        if self.help.commands.iter().all(|(known, _)| known != name) {
            self.help.commands.push((name.to_owned(), description));
        }
    }

    fn argument(&mut self) {
        let line = &self.lines[self.at];
        let own_indent = indent(line);
        let text = line.trim().to_owned();
        self.at += 1;
        let (name, mut description) = match text.split_once("  ") {
            Some((name, description)) => (name.to_owned(), description.trim().to_owned()),
            None => (text, String::new()),
        };
        // argparse lists its subcommands below `{add,rm}`.
        let are_commands = name.starts_with('{');
        while let Some(line) = self.lines.get(self.at).filter(|line| indent(line) > own_indent) {
            match entry(line.trim()) {
                Some((command, text)) if are_commands && indent(line) <= own_indent + 4 => {
                    self.help.commands.push((command.to_owned(), text.to_owned()));
                }
                _ => push_line(&mut description, line),
            }
            self.at += 1;
        }
        let name = name.trim_matches(|it: char| !it.is_alphanumeric()).to_lowercase();
        self.help.arguments.push((name, description));
    }
}

/// Appends a line to a text.
fn push_line(text: &mut String, line: &str) {
    if !text.is_empty() {
        text.push(' ');
    }
    text.push_str(line.trim());
}

/// What follows `Usage:` in a line that begins with it.
fn usage_start(text: &str) -> Option<&str> {
    match text.get(..6) {
        Some(head) if head.eq_ignore_ascii_case("usage:") => Some(text[6..].trim()),
        _ => (text == "USAGE").then_some(""),
    }
}

/// Separates `add, a   Adds something` into its first name and its description.
fn entry(text: &str) -> Option<(&str, &str)> {
    let (names, description) = text.split_once("  ").unwrap_or((text, ""));
    let names = names.trim();
    let name = names.split([',', ' ', ':', '*']).next().unwrap_or_default();
    let others_are_aliases = names.split([',', ' ']).skip(1).all(|it| {
        it.is_empty()
            || is_command_name(it.trim_end_matches(':'))
            || it.starts_with(['<', '[', '('])
            || it.ends_with(')')
    });
    (is_command_name(name) && others_are_aliases && (names.split(' ').count() <= 3))
        .then_some((name, description.trim()))
}

fn is_command_name(name: &str) -> bool {
    name.starts_with(|it: char| it.is_ascii_alphanumeric())
        && name.len() <= 40
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        && !name.ends_with('.')
        && !name.bytes().all(|byte| byte.is_ascii_uppercase())
}

/// Whether the line lists names: `access, adduser, audit,`.
fn is_list(text: &str) -> bool {
    let count = text.split(',').filter(|name| !name.trim().is_empty()).count();
    !text.contains("  ")
        && text.contains(',')
        && text.split(',').all(|name| name.trim().is_empty() || is_command_name(name.trim()))
        && (count > 2 || text.ends_with(','))
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}
