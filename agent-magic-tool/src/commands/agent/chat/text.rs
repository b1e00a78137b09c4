//! Text for the terminal: lines, rows and times.

use std::time::Duration;

use agent_side::sanitized::sanitize;
use protocol::excerpt;
use protocol::task::TaskId;

/// Characters in these ranges are two columns wide.
const WIDE: [std::ops::RangeInclusive<char>; 5] = [
    '\u{1100}'..='\u{115f}',
    '\u{2e80}'..='\u{a4cf}',
    '\u{ac00}'..='\u{d7a3}',
    '\u{f900}'..='\u{faff}',
    '\u{ff00}'..='\u{ff60}',
];

/// Returns the text as one line of at most `limit` characters.
pub(super) fn one_line(text: &str, limit: usize) -> String {
    sanitize(&excerpt::line(text, limit))
}

/// Puts a prefix before each line.
pub(super) fn prefix_lines(prefix: &str, text: &str) -> String {
    text.trim_end().lines().flat_map(|line| [prefix, line, "\n"]).collect()
}

/// Returns the length in bytes of the first row of `text`, or `None` if the text does not fill a row of `columns`.
///
/// A row ends after a space if possible.
pub(super) fn row_end(text: &str, columns: usize) -> Option<usize> {
    let mut width = 0;
    let mut after_space = None;
    for (index, c) in text.char_indices() {
        if c == '\n' {
            return Some(index + 1);
        }
        width += if WIDE.iter().any(|script| script.contains(&c)) { 2 } else { 1 };
        if width > columns {
            return Some(after_space.unwrap_or(index)).filter(|end| *end > 0);
        }
        if c == ' ' {
            after_space = Some(index + 1);
        }
    }
    None
}

/// Returns the last six characters of an id, enough to tell a few tasks apart.
pub(super) fn short_id(id: TaskId) -> String {
    let id = id.to_string();
    id[id.len().saturating_sub(6)..].to_owned()
}

pub(super) fn format_duration(duration: Duration) -> String {
    match duration.as_secs() {
        0..10 => format!("{:.1} s", duration.as_secs_f64()),
        10..120 => format!("{} s", duration.as_secs()),
        seconds => format!("{} min", seconds / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_and_prefixed() {
        assert_eq!(one_line("a\n  b c", 4), "a b…");
        assert_eq!(prefix_lines("| ", "a\nb\n"), "| a\n| b\n");
    }

    #[test]
    fn a_row_ends_at_a_space_or_line_break_if_possible() {
        assert_eq!(row_end("one two three", 9), Some(8));
        assert_eq!(row_end("one", 9), None);
        assert_eq!(row_end("one\ntwo", 9), Some(4));
        assert_eq!(row_end("abcdefghij", 4), Some(4));
        assert_eq!(row_end("年度报告", 4), Some("年度".len()));
        assert_eq!(row_end("年", 1), None, "a row has at least one character");
    }
}
