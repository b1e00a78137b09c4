//! `grep`. Translates basic and extended POSIX expressions to the syntax of our regex engine.

use std::io::BufRead as _;

use grep_matcher::Matcher as _;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};

use super::options::{self, ProgramOptions};
use super::{MAX_BYTES, ProgramFailure, ProgramOutput, ResultReader};

/// The largest compiled expression, in bytes.
const MAX_COMPILED_BYTES: usize = 10 << 20;

const LONG: [(&str, char); 12] = [
    ("ignore-case", 'i'),
    ("line-number", 'n'),
    ("count", 'c'),
    ("invert-match", 'v'),
    ("extended-regexp", 'E'),
    ("fixed-strings", 'F'),
    ("only-matching", 'o'),
    ("quiet", 'q'),
    ("word-regexp", 'w'),
    ("files-with-matches", 'l'),
    ("max-count", 'm'),
    ("regexp", 'e'),
];

pub(super) fn grep(arguments: &[String], reader: &mut ResultReader<'_>) -> Result<ProgramOutput, ProgramFailure> {
    let known = "-i, -n, -c, -v, -E, -F, -o, -q, -w, -l, -h, -m N, -e PATTERN";
    let mut options = options::read("grep", known, "incvEFoqwlhH", "me", &LONG, arguments)?;
    let pattern = match options.value('e') {
        Some(pattern) => pattern.to_owned(),
        None if options.operands.is_empty() => return Err(ProgramFailure(2, "missing pattern".to_owned())),
        None => options.operands.remove(0),
    };
    let matcher = matcher(&pattern, &options)?;
    let files = options.files();
    let max_count = match options.value('m') {
        Some(number) => number.parse().map_err(|_| ProgramFailure(2, format!("`{number}` is not a number")))?,
        None => u64::MAX,
    };
    let names_files = options.has('H') || (files.len() > 1 && !options.has('h'));
    let mut search = GrepSearch { options: &options, matcher: &matcher, max_count, stdout: Vec::new() };
    let mut lines = 0;
    for file in &files {
        let prefix = if names_files { format!("{file}:") } else { String::new() };
        lines += search.file(reader, file, &prefix)?;
        if options.has('q') && lines > 0 {
            break;
        }
    }
    let stdout = if options.has('q') { Vec::new() } else { search.stdout };
    Ok(ProgramOutput { status: u8::from(lines == 0), stdout, stderr: String::new() })
}

struct GrepSearch<'a> {
    options: &'a ProgramOptions,
    matcher: &'a RegexMatcher,
    max_count: u64,
    stdout: Vec<u8>,
}

impl GrepSearch<'_> {
    /// Searches one file; returns the number of selected lines.
    fn file(&mut self, reader: &mut ResultReader<'_>, file: &str, prefix: &str) -> Result<u64, ProgramFailure> {
        let failed = |error: std::io::Error| ProgramFailure(2, format!("{file}: failed to read the file: {error}"));
        let mut source = reader.open(file)?;
        let (mut selected, mut number) = (0, 0_u64);
        let mut line = Vec::new();
        while selected < self.max_count {
            line.clear();
            if source.read_until(b'\n', &mut line).map_err(failed)? == 0 {
                break;
            }
            number += 1;
            let text = line.strip_suffix(b"\n").unwrap_or(&line);
            let matches = self.matcher.is_match(text).unwrap_or_default();
            if matches == self.options.has('v') {
                continue;
            }
            selected += 1;
            if self.options.has('q') || self.options.has('l') {
                break;
            }
            let prefix = if self.options.has('n') { format!("{prefix}{number}:") } else { prefix.to_owned() };
            self.print(&prefix, text);
            if self.stdout.len() as u64 > MAX_BYTES {
                return Err(ProgramFailure(2, format!("more than {MAX_BYTES} bytes match; use a narrower pattern")));
            }
        }
        if self.options.has('l') && selected > 0 {
            self.stdout.extend(format!("{file}\n").into_bytes());
        } else if self.options.has('c') {
            self.stdout.extend(format!("{prefix}{selected}\n").into_bytes());
        }
        Ok(selected)
    }

    fn print(&mut self, prefix: &str, line: &[u8]) {
        if self.options.has('c') {
            return;
        }
        if !self.options.has('o') {
            self.stdout.extend([prefix.as_bytes(), line, b"\n"].concat());
            return;
        }
        let stdout = &mut self.stdout;
        let each = self.matcher.find_iter(line, |hit| {
            if !hit.is_empty() {
                stdout.extend([prefix.as_bytes(), &line[hit], b"\n"].concat());
            }
            true
        });
        debug_assert!(each.is_ok(), "matching cannot fail");
    }
}

fn matcher(pattern: &str, options: &ProgramOptions) -> Result<RegexMatcher, ProgramFailure> {
    let is_fixed = options.has('F');
    let expression = if is_fixed { pattern.to_owned() } else { translate(pattern, options.has('E')) };
    RegexMatcherBuilder::new()
        .case_insensitive(options.has('i'))
        .word(options.has('w'))
        .fixed_strings(is_fixed)
        .size_limit(MAX_COMPILED_BYTES)
        .build(&expression)
        .map_err(|error| ProgramFailure(2, format!("`{pattern}` is not a valid pattern: {error}")))
}

/// Translates a basic or extended POSIX expression to the syntax of our regex engine. In a basic expression,
/// `|`, `+`, `?`, `(`, `)`, `{` and `}` are special only after a backslash; inside brackets a backslash is
/// an ordinary character.
fn translate(pattern: &str, is_extended: bool) -> String {
    let mut expression = String::new();
    let mut characters = pattern.chars().peekable();
    while let Some(c) = characters.next() {
        match c {
            '\\' => match characters.next() {
                Some(c @ ('|' | '+' | '?' | '(' | ')' | '{' | '}')) if !is_extended => expression.push(c),
                Some(c @ ('<' | '>')) => expression.extend(["\\b{", if c == '<' { "start" } else { "end" }, "}"]),
                Some(c) => expression.extend(['\\', c]),
                None => expression.push_str("\\\\"),
            },
            '|' | '+' | '?' | '(' | ')' | '{' | '}' if !is_extended => expression.extend(['\\', c]),
            '*' if !is_extended && matches!(expression.as_str(), "" | "^") => expression.push_str("\\*"),
            '[' => {
                expression.push('[');
                if characters.next_if_eq(&'^').is_some() {
                    expression.push('^');
                }
                if characters.next_if_eq(&']').is_some() {
                    expression.push_str("\\]");
                }
                while let Some(c) = characters.next() {
                    match c {
                        ']' => {
                            expression.push(']');
                            break;
                        }
                        '[' if characters.peek() == Some(&':') => {
                            expression.push('[');
                            for c in characters.by_ref() {
                                expression.push(c);
                                if c == ']' {
                                    break;
                                }
                            }
                        }
                        '[' | '\\' | '&' | '~' => expression.extend(['\\', c]),
                        _ => expression.push(c),
                    }
                }
            }
            _ => expression.push(c),
        }
    }
    expression
}

#[cfg(test)]
mod tests {
    use super::translate;

    #[test]
    fn basic_and_extended_expressions_are_translated() {
        for (basic, expected) in [
            ("a|b", "a\\|b"),
            ("a\\|b", "a|b"),
            ("f(x)+?", "f\\(x\\)\\+\\?"),
            ("\\(ab\\)*", "(ab)*"),
            ("*x", "\\*x"),
            ("{\"a\"}", "\\{\"a\"\\}"),
            ("[\\d&&]", "[\\\\d\\&\\&]"),
            ("[^]x]", "[^\\]x]"),
            ("[[:digit:]]x", "[[:digit:]]x"),
        ] {
            assert_eq!(translate(basic, false), expected, "{basic}");
        }
        assert_eq!(translate("(a|b)+\\|", true), "(a|b)+\\|");
    }
}
