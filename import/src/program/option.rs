//! One option as help texts write it: `-f, --file=ARCHIVE`, `--color[=WHEN]`, `-b, --body string`, `--[no-]verify`.
//!
//! Understands the forms of clap, argparse, click, cobra, optparse, git and GNU. What it does not understand it leaves
//! alone: an option with two values is reported, not guessed.

/// An option of a program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ProgramOption {
    /// `-f`.
    pub(super) short: Option<String>,
    /// `--file`, or `-file` for programs that have only one dash.
    pub(super) long: Option<String>,
    /// `--no-verify`, if it is the opposite of `long`.
    pub(super) negation: Option<String>,
    pub(super) value: OptionValue,
    pub(super) description: String,
}

/// What follows an option.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum OptionValue {
    #[default]
    None,
    /// It may stand alone or have a value.
    Optional(Placeholder),
    Required(Placeholder),
    /// Several values, which no argument list can express safely.
    Several,
}

/// What stands for a value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Placeholder {
    /// As it is written, without brackets: `FILE`, `string`.
    pub(super) name: String,
    /// The values that it can have, if they are listed.
    pub(super) choices: Vec<String>,
    pub(super) is_repeated: bool,
}

impl Placeholder {
    /// Reads `<a|b>`, `{a,b}`, `[INTEGER]`, `FILE...`.
    pub(super) fn of(text: &str) -> Self {
        let is_repeated = text.contains("...") || text.contains('…');
        let inner = text.replace("...", " ").replace('…', " ");
        let inner = inner.trim().trim_matches(|it| matches!(it, '<' | '>' | '[' | ']' | '{' | '}' | '(' | ')'));
        let separator = if text.contains('{') { [',', '|'].as_slice() } else { ['|'].as_slice() };
        let parts: Vec<_> = inner.split(separator).map(|part| part.trim().to_owned()).collect();
        let are_words = parts.len() > 1 && parts.iter().all(|part| is_choice(part));
        Self {
            name: inner.trim().to_owned(),
            choices: if are_words { parts } else { Vec::new() },
            is_repeated: is_repeated
                || matches!(inner, "list" | "strings" | "stringArray" | "stringSlice" | "stringArrays"),
        }
    }
}

/// Whether a part of `a|b` is a value and not the name of a kind of value.
fn is_choice(part: &str) -> bool {
    !part.is_empty()
        && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.+".contains(&byte))
        && !matches!(
            part,
            "file" | "path" | "url" | "name" | "id" | "number" | "string" | "tag" | "pkg" | "glob" | "dir"
        )
}

impl ProgramOption {
    /// Reads a line; `None` if it is not about an option.
    pub(super) fn of_line(line: &str) -> Option<Self> {
        let mut reader = OptionReader { rest: line.trim_start(), option: Self::default() };
        reader.flag()?;
        loop {
            reader.value();
            if !reader.another() {
                break;
            }
            reader.flag()?;
        }
        let mut option = reader.option;
        reader.rest.trim().clone_into(&mut option.description);
        Some(option)
    }

    /// The flag that a command line uses.
    pub(super) fn flag(&self) -> &str {
        self.long.as_deref().or(self.short.as_deref()).unwrap_or_default()
    }

    /// Whether its long form has two dashes, so that a value may be attached with `=`.
    pub(super) fn is_gnu(&self) -> bool {
        self.long.as_ref().is_some_and(|long| long.starts_with("--"))
    }
}

struct OptionReader<'a> {
    rest: &'a str,
    option: ProgramOption,
}

impl OptionReader<'_> {
    /// Reads `-f` or `--file`.
    fn flag(&mut self) -> Option<()> {
        let dashes = self.rest.len() - self.rest.trim_start_matches('-').len();
        if !(1..=2).contains(&dashes) {
            return None;
        }
        let after = &self.rest[dashes..];
        let (negated, name_part) = match after.strip_prefix("[no-]") {
            Some(rest) if dashes == 2 => (true, rest),
            _ => (false, after),
        };
        let end = name_part.find(|it: char| !(it.is_ascii_alphanumeric() || "-_.+?#@:".contains(it)));
        let name = &name_part[..end.unwrap_or(name_part.len())];
        let name = name.trim_end_matches([':', '.']);
        if name.is_empty() || !name.starts_with(|it: char| it.is_ascii_alphanumeric() || "?#@".contains(it)) {
            return None;
        }
        self.rest = &name_part[name.len()..];
        if let Some(rest) = self.rest.strip_prefix("...") {
            // `-v...`: it may be repeated; once is enough.
            self.rest = rest;
        }
        let flag = format!("{}{name}", "-".repeat(dashes));
        let is_short = dashes == 1 && name.chars().count() == 1;
        if is_short {
            self.option.short.get_or_insert(flag);
        } else if let Some(long) = &self.option.long {
            if flag.strip_prefix("--no-") == long.strip_prefix("--") {
                self.option.negation.get_or_insert(flag);
            }
        } else {
            if negated {
                self.option.negation = Some(format!("--no-{name}"));
            }
            self.option.long = Some(flag);
        }
        Some(())
    }

    fn value(&mut self) {
        let rest = self.rest;
        let (value, rest) = if let Some(inner) = rest.strip_prefix("[=") {
            let (inner, rest) = inner.split_once(']').unwrap_or((inner, ""));
            (OptionValue::Optional(Placeholder::of(inner)), rest)
        } else if let Some(after) = rest.strip_prefix('=') {
            let (text, rest) = word(after);
            (OptionValue::Required(Placeholder::of(text)), rest)
        } else if rest.starts_with(['<', '{']) {
            let (text, rest) = word(rest);
            (OptionValue::Required(Placeholder::of(text)), rest)
        } else if rest.starts_with("[<") {
            let (text, rest) = word(rest);
            (OptionValue::Optional(Placeholder::of(text)), rest)
        } else if let Some(after) = rest.strip_prefix(' ').filter(|after| !after.starts_with(' ')) {
            match spaced_value(after) {
                Some(found) => found,
                None => return,
            }
        } else {
            return;
        };
        // Of `-f FILE, --file FILE` both say the same.
        if self.option.value == OptionValue::None {
            self.option.value = value;
        }
        self.rest = rest;
    }

    /// Whether another form of the same option follows.
    fn another(&mut self) -> bool {
        for separator in [", ", ",", " | ", "|", " / ", "/", " or ", " "] {
            let Some(after) = self.rest.strip_prefix(separator) else { continue };
            if after.starts_with('-') && !after.starts_with("- ") && !after.starts_with("-- ") {
                self.rest = after;
                return true;
            }
        }
        false
    }
}

/// The value after one space, if that is one and not the description.
fn spaced_value(after: &str) -> Option<(OptionValue, &str)> {
    if after.starts_with('-') {
        return None;
    }
    let gap = after.find("  ");
    let upto = gap.map_or(after, |gap| &after[..gap]);
    let (first, rest) = word(after);
    let is_bracketed = first.starts_with(['<', '{', '[', '(']);
    let is_optional = first.starts_with("[<") || first.starts_with('[') && !first.contains('|');
    let is_upper = first.bytes().any(|byte| byte.is_ascii_uppercase())
        && first.bytes().all(|byte| !byte.is_ascii_lowercase())
        && !first.ends_with([',', '.', ':'])
        && first.len() > usize::from(rest.starts_with(' ') && !rest.starts_with("  "));
    let more: Vec<_> = upto[first.len().min(upto.len())..].split_whitespace().collect();
    let is_lone = more.is_empty() && (gap.is_some() || is_bracketed || is_upper || after.trim_end() == first);
    let are_placeholders = !more.is_empty()
        && gap.is_some()
        && more.len() <= 2
        && more.iter().all(|it| is_placeholder(it) || it.len() <= 2 && !is_bracketed);
    if are_placeholders && more.iter().all(|it| *it != "...") {
        let is_repetition = more.iter().all(|it| it.starts_with('[') && it.contains("..."));
        let repeated = Placeholder { is_repeated: true, ..Placeholder::of(first) };
        let value = if is_repetition { OptionValue::Required(repeated) } else { OptionValue::Several };
        return Some((value, &after[upto.len()..]));
    }
    if !(is_bracketed || is_upper || is_lone) {
        return None;
    }
    let mut placeholder = Placeholder::of(first);
    let mut rest = rest;
    // argparse: `--file FILE [FILE ...]`; npm: `--omit <a|b> [--omit <a|b> ...]`.
    let trimmed = rest.trim_start_matches(' ');
    if trimmed.starts_with('[') && rest.len() == trimmed.len() + 1 {
        let (text, after) = word(trimmed);
        if text.contains("...") {
            placeholder.is_repeated = true;
            rest = after;
        }
    }
    if let Some(after) = rest.strip_prefix(" ...").or_else(|| rest.strip_prefix("...")) {
        placeholder.is_repeated = true;
        rest = after;
    }
    let value = if is_optional { OptionValue::Optional(placeholder) } else { OptionValue::Required(placeholder) };
    Some((value, rest))
}

fn is_placeholder(word: &str) -> bool {
    word.starts_with(['<', '[', '{'])
        || word.bytes().all(|byte| byte.is_ascii_uppercase() || b"_-.0123456789".contains(&byte))
}

/// Splits off one word; spaces within brackets belong to it.
pub(super) fn word(text: &str) -> (&str, &str) {
    let mut depth = 0_usize;
    for (at, character) in text.char_indices() {
        match character {
            '<' | '[' | '{' | '(' => depth += 1,
            '>' | ']' | '}' | ')' => depth = depth.saturating_sub(1),
            ' ' | '\t' | ',' if depth == 0 => return text.split_at(at),
            _ => {}
        }
    }
    (text, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> String {
        let Some(option) = ProgramOption::of_line(line) else { return "-".to_owned() };
        let value = match &option.value {
            OptionValue::None => String::new(),
            OptionValue::Several => " several".to_owned(),
            OptionValue::Optional(it) => format!(" [{}]", shown(it)),
            OptionValue::Required(it) => format!(" {}", shown(it)),
        };
        let flags: Vec<_> = [&option.short, &option.long, &option.negation].into_iter().flatten().cloned().collect();
        format!("{}{value}: {}", flags.join(" "), option.description)
    }

    fn shown(placeholder: &Placeholder) -> String {
        let text =
            if placeholder.choices.is_empty() { placeholder.name.clone() } else { placeholder.choices.join("/") };
        format!("{text}{}", if placeholder.is_repeated { "*" } else { "" })
    }

    #[test]
    fn options_of_all_kinds_of_help_are_read() {
        for (line, expected) in [
            ("  -f, --file=ARCHIVE         use archive file", "-f --file ARCHIVE: use archive file"),
            ("  -A, --catenate, --concatenate   append", "-A --catenate: append"),
            ("      --color[=WHEN]   colorize", "--color [WHEN]: colorize"),
            ("  -p, --package [<SPEC>]  Package to build", "-p --package [SPEC]: Package to build"),
            ("      --exclude <SPEC>    Exclude", "--exclude SPEC: Exclude"),
            ("  -v, --verbose...               Use verbose output", "-v --verbose: Use verbose output"),
            ("  -b, --body string           Supply a body.", "-b --body string: Supply a body."),
            ("      --add-host list                    Add a custom host", "--add-host list*: Add a custom host"),
            ("  -a, --assignee login   Assign people", "-a --assignee login: Assign people"),
            (" -u, --user <user:password> Server user", "-u --user user:password: Server user"),
            (" -f, --fail                 Fail fast", "-f --fail: Fail fast"),
            ("  -c               compact instead", "-c: compact instead"),
            ("  --arg a v        set variable", "--arg several: set variable"),
            ("    -n, --[no-]dry-run    dry run", "-n --dry-run --no-dry-run: dry run"),
            ("    -F, --[no-]file <file>", "-F --file --no-file file: "),
            ("  --shout / --no-shout  Be loud.", "--shout --no-shout: Be loud."),
            ("  --kind [a|b]  The kind.", "--kind a/b: The kind."),
            ("  --mode {fast,slow}    how", "--mode fast/slow: how"),
            ("  -n N, --count N       how many", "-n --count N: how many"),
            ("  --files FILE [FILE ...]  which", "--files FILE*: which"),
            ("  -S|--save", "-S --save: "),
            ("  -name PATTERN  the name", "-name PATTERN: the name"),
            ("  -q", "-q: "),
            ("  --", "-"),
            ("  - a list item", "-"),
            ("  -<n>  number", "-"),
        ] {
            assert_eq!(read(line), expected, "{line}");
        }
    }
}
