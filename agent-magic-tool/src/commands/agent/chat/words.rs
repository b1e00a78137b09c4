//! Words for the terminal: nothing that came from outside moves the cursor or colours a line.

use std::time::Duration;

use protocol::excerpt;
use protocol::task::TaskId;

/// Letters of these scripts are two columns wide.
const WIDE: [std::ops::RangeInclusive<char>; 5] = [
    '\u{1100}'..='\u{115f}',
    '\u{2e80}'..='\u{a4cf}',
    '\u{ac00}'..='\u{d7a3}',
    '\u{f900}'..='\u{faff}',
    '\u{ff00}'..='\u{ff60}',
];

/// The text without what a terminal obeys, or hides.
pub(super) fn plain(text: &str) -> String {
    let is_hidden = |c: char| {
        (c.is_control() && c != '\n' && c != '\t') || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.replace("\r\n", "\n").chars().map(|c| if is_hidden(c) { '\u{fffd}' } else { c }).collect()
}

/// At most `most` characters of it, and how many there are more; 0 is all.
pub(super) fn cut(text: &str, most: usize) -> String {
    let count = text.chars().count();
    if most == 0 || count <= most {
        return text.to_owned();
    }
    format!("{} ({} characters more; the model gets all of it)", excerpt::chars(text, most), count - most)
}

/// One line of at most `most` characters.
pub(super) fn line(text: &str, most: usize) -> String {
    plain(&excerpt::line(text, most))
}

/// Each line behind a mark.
pub(super) fn behind(mark: &str, text: &str) -> String {
    text.trim_end().lines().flat_map(|line| [mark, line, "\n"]).collect()
}

/// How many bytes of `text` fill a row of `columns`; `None` if it does not. A row ends after a blank if it can.
pub(super) fn row(text: &str, columns: usize) -> Option<usize> {
    let mut width = 0;
    let mut after_blank = None;
    for (place, c) in text.char_indices() {
        if c == '\n' {
            return Some(place + 1);
        }
        width += if WIDE.iter().any(|script| script.contains(&c)) { 2 } else { 1 };
        if width > columns {
            return Some(after_blank.unwrap_or(place)).filter(|end| *end > 0);
        }
        if c == ' ' {
            after_blank = Some(place + 1);
        }
    }
    None
}

/// The last letters of an id: enough to name one of a few.
pub(super) fn short(id: TaskId) -> String {
    let id = id.to_string();
    id[id.len().saturating_sub(6)..].to_owned()
}

pub(super) fn span(time: Duration) -> String {
    match time.as_secs() {
        0..10 => format!("{:.1} s", time.as_secs_f64()),
        10..120 => format!("{} s", time.as_secs()),
        seconds => format!("{} min", seconds / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_shown_as_nothing_else() {
        assert_eq!(plain("a\x1b[2Jb\r\nc\td\u{9b}\u{202e}"), "a\u{fffd}[2Jb\nc\td\u{fffd}\u{fffd}");
    }

    #[test]
    fn a_preview_says_how_much_is_left_out() {
        assert_eq!(cut("abcdef", 0), "abcdef");
        assert_eq!(cut("年度报告", 4), "年度报告");
        assert_eq!(cut("年度报告", 2), "年度… (2 characters more; the model gets all of it)");
        assert_eq!(line("a\n  b c", 4), "a b…");
        assert_eq!(behind("| ", "a\nb\n"), "| a\n| b\n");
    }

    #[test]
    fn a_row_ends_at_a_blank_a_line_end_or_where_it_must() {
        assert_eq!(row("one two three", 9), Some(8));
        assert_eq!(row("one", 9), None);
        assert_eq!(row("one\ntwo", 9), Some(4));
        assert_eq!(row("abcdefghij", 4), Some(4));
        assert_eq!(row("年度报告", 4), Some("年度".len()));
        assert_eq!(row("年", 1), None, "a row takes at least one");
    }
}
