//! The usage lines of a help text: which words, options and positional arguments a command has, in which order.

use super::option::{Placeholder, ProgramOption, word};

/// One form of a command, as `git remote add [<options>] <name> <url>`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct UsageForm {
    /// The line itself.
    pub(super) text: String,
    /// A word after the command that is written out: a subcommand, if there are several forms.
    pub(super) word: Option<String>,
    pub(super) positionals: Vec<Positional>,
    /// Options that only the usage names.
    pub(super) options: Vec<ProgramOption>,
    /// Before which positional argument `--` stands, if it does.
    pub(super) dashes_before: Option<usize>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Positional {
    pub(super) placeholder: Placeholder,
    pub(super) is_required: bool,
}

/// Placeholders that stand for the options themselves.
const OPTIONS: [&str; 8] = ["option", "options", "flag", "flags", "opts", "switches", "global options", "global flags"];

impl UsageForm {
    /// Reads `text` for the command `path`; `None` if it is about another command.
    pub(super) fn of(text: &str, path: &[String]) -> Option<Self> {
        let mut rest = text.trim();
        for (index, name) in path.iter().enumerate() {
            let (first, after) = word(rest);
            let base = first.rsplit('/').next().unwrap_or_default();
            let is_same = base == name || index == 0 && base.split('.').next() == name.split('.').next();
            if !is_same {
                return None;
            }
            rest = after.trim_start();
        }
        let mut form = Self { text: text.split_whitespace().collect::<Vec<_>>().join(" "), ..Self::default() };
        form.items(rest, true, true);
        Some(form)
    }

    /// Reads a sequence of items, which all are optional unless `is_required`.
    fn items(&mut self, text: &str, is_required: bool, is_top: bool) {
        let mut rest = text.trim();
        while !rest.is_empty() {
            let (item, after) = word(rest);
            let item = if item.is_empty() { &rest[..1] } else { item };
            rest = after.trim_start().trim_start_matches(',').trim_start();
            if item == "--" || item == "[--]" {
                self.dashes_before.get_or_insert(self.positionals.len());
            } else if item.starts_with("...") || item == "[...]" {
                if let Some(last) = self.positionals.last_mut() {
                    last.placeholder.is_repeated = true;
                }
            } else if item.starts_with('-') {
                rest = self.option(item, rest);
            } else {
                self.item(item, is_required, is_top);
            }
        }
    }

    /// Reads an option and its value, and returns what follows.
    fn option<'a>(&mut self, item: &str, rest: &'a str) -> &'a str {
        let (next, after) = word(rest);
        let takes_next = !item.contains(['=', '<'])
            && !next.is_empty()
            && (next.starts_with(['<', '{'])
                || next.bytes().all(|byte| byte.is_ascii_uppercase() || b"_-.".contains(&byte)))
            && !next.starts_with('-');
        let line = if takes_next { format!("{item} {next}  ") } else { format!("{item}  ") };
        self.options.extend(ProgramOption::of_line(&line));
        if takes_next { after.trim_start() } else { rest }
    }

    fn item(&mut self, item: &str, is_required: bool, is_top: bool) {
        let is_repeated = item.ends_with("...") || item.ends_with('…');
        let bare = item.trim_end_matches('.').trim_end_matches('…');
        let inner = |open: char, close: char| bare.strip_prefix(open).and_then(|it| it.strip_suffix(close));
        let before = self.positionals.len();
        if let Some(inner) = inner('[', ']') {
            self.group(inner, false);
        } else if let Some(inner) = inner('(', ')') {
            self.group(inner, is_required);
        } else if is_top && self.word.is_none() && self.positionals.is_empty() && is_command_word(bare) {
            self.word = Some(bare.to_owned());
        } else {
            self.positional(item, is_required);
        }
        if is_repeated {
            self.positionals.iter_mut().skip(before).for_each(|it| it.placeholder.is_repeated = true);
        }
    }

    fn group(&mut self, inner: &str, is_required: bool) {
        let alternatives = split_alternatives(inner);
        let [only] = alternatives.as_slice() else {
            if alternatives.iter().all(|it| it.starts_with('-')) {
                self.alternative_options(&alternatives);
            } else {
                // `(-c | -C) <commit> | --fixup <commit>` are options as well.
                let is_value = |it: &&&str| !it.trim_start_matches(['(', '[']).starts_with('-');
                let values: Vec<_> = alternatives.iter().filter(is_value).copied().collect();
                let is_required = is_required && values.len() == alternatives.len();
                self.positional(&values.join("|"), is_required);
            }
            return;
        };
        self.items(only, is_required, false);
    }

    /// Reads `-E|--save-exact`, two names of one option, and `--a | --b`, two options.
    fn alternative_options(&mut self, alternatives: &[&str]) {
        let mut options: Vec<ProgramOption> = Vec::new();
        for text in alternatives {
            let Some(option) = ProgramOption::of_line(&format!("{text}  ")) else { continue };
            match options.last_mut() {
                Some(last) if last.long.is_none() && last.short.is_some() && option.long.is_some() => {
                    last.long = option.long;
                    last.value = option.value;
                }
                _ => options.push(option),
            }
        }
        self.options.extend(options);
    }

    fn positional(&mut self, text: &str, is_required: bool) {
        // `REPOSITORY[:TAG]`, and `<a>|<b>`.
        let text = match text.find('[') {
            Some(at) if at > 0 && text[..at].matches('<').count() == text[..at].matches('>').count() => &text[..at],
            _ => text,
        };
        let mut placeholder = Placeholder::of(&text.replace(['<', '>'], ""));
        if text.starts_with('{') {
            placeholder = Placeholder::of(text);
        }
        let name = placeholder.name.to_lowercase();
        if name.is_empty()
            || OPTIONS.contains(&name.as_str())
            || name.ends_with("-options")
            || name.ends_with("_options")
        {
            return;
        }
        self.positionals.push(Positional { placeholder, is_required });
    }
}

/// Whether a bare word is written out, and does not stand for a value.
fn is_command_word(word: &str) -> bool {
    word.starts_with(|it: char| it.is_ascii_lowercase())
        && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte))
}

/// Splits `a | b` at the bars that are not in brackets.
fn split_alternatives(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0_usize, 0);
    for (at, character) in text.char_indices() {
        match character {
            '<' | '[' | '{' | '(' => depth += 1,
            '>' | ']' | '}' | ')' => depth = depth.saturating_sub(1),
            '|' if depth == 0 => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text[start..].trim());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, path: &str) -> String {
        let path: Vec<_> = path.split(' ').map(str::to_owned).collect();
        let Some(form) = UsageForm::of(text, &path) else { return "-".to_owned() };
        let word = form.word.iter().map(|it| format!("'{it}'"));
        let positionals = form.positionals.iter().enumerate().map(|(index, it)| {
            let dashes = if form.dashes_before == Some(index) { "-- " } else { "" };
            let name = &it.placeholder.name;
            let repeated = if it.placeholder.is_repeated { "*" } else { "" };
            format!("{dashes}{name}{repeated}{}", if it.is_required { "!" } else { "" })
        });
        let options = form.options.iter().map(|it| it.flag().to_owned());
        word.chain(positionals).chain(options).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn positional_arguments_are_found_among_options() {
        for (usage, path, expected) in [
            ("cargo build [OPTIONS]", "cargo build", ""),
            ("cargo run [OPTIONS] [ARGS]...", "cargo run", "ARGS*"),
            ("tar [OPTION...] [FILE]...", "tar", "FILE*"),
            ("docker run [OPTIONS] IMAGE [COMMAND] [ARG...]", "docker run", "IMAGE! COMMAND ARG*"),
            ("docker commit [OPTIONS] CONTAINER [REPOSITORY[:TAG]]", "docker commit", "CONTAINER! REPOSITORY"),
            ("git log [<options>] [<revision-range>] [[--] <path>...]", "git log", "revision-range -- path*"),
            ("git show [<options>] <object>...", "git log", "-"),
            (
                "git remote add [-t <branch>] [--tags | --no-tags] <name> <url>",
                "git remote",
                "'add' name! url! -t --tags --no-tags",
            ),
            ("git remote [-v | --verbose] show [-n] <name>", "git remote", "'show' name! --verbose -n"),
            (
                "git commit [-s] [(-c | -C) <commit> | --fixup <commit>] [--] [<pathspec>...]",
                "git commit",
                "-- pathspec* -s",
            ),
            ("npm install [<package-spec> ...]", "npm install", "package-spec*"),
            (
                "pip install [options] <requirement specifier> [package-index-options] ...",
                "pip install",
                "requirement specifier*!",
            ),
            ("curl [options...] <url>", "curl", "url!"),
            ("gh pr view [<number> | <url> | <branch>] [flags]", "gh pr view", "number|url|branch"),
            ("/usr/bin/tool.py [-h] [--name NAME] FILE [FILE ...]", "tool", "FILE! FILE* -h --name"),
        ] {
            assert_eq!(read(usage, path), expected, "{usage}");
        }
    }
}
