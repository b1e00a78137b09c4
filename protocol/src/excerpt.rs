//! Excerpts of texts that are too long to show or to send whole.

use std::borrow::Cow;

/// Returns the first `max` characters of `text`, with `…` after them if anything was cut.
pub fn chars(text: &str, max: usize) -> Cow<'_, str> {
    match text.char_indices().nth(max) {
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

/// Returns the longest beginning of `text` that fits in `max` bytes, and how many bytes follow it.
///
/// Never splits a character.
pub fn bytes(text: &str, max: usize) -> (&str, usize) {
    let head = &text[..text.floor_char_boundary(max)];
    (head, text.len() - head.len())
}

/// Returns `text` on one line, with runs of whitespace collapsed: at most `max` characters, of which the
/// last is `…` if anything was cut.
pub fn line(text: &str, max: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= max { line } else { chars(&line, max - 1).into_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_counted_and_a_cut_is_marked() {
        assert_eq!(chars("年度报告", 4), "年度报告");
        assert_eq!(chars("年度报告", 2), "年度…");
    }

    #[test]
    fn a_cut_by_bytes_never_splits_a_character() {
        assert_eq!(bytes("äöü", 6), ("äöü", 0));
        assert_eq!(bytes("äöü", 3), ("ä", 4));
    }

    #[test]
    fn a_line_has_no_breaks_and_counts_its_ellipsis() {
        assert_eq!(line("a\n  b c", 5), "a b c");
        assert_eq!(line("a\n  b c", 4), "a b…");
    }
}
