//! A text without the line breaks inside what may be one encoded word, as in base64 of lines with 64 or 76 characters.

use std::ops::Range;

/// The most spaces and tabs after a line break that belong to it, as in YAML.
const MAX_INDENT: usize = 16;

/// The longest break in bytes.
pub(super) const MAX_BREAK_BYTES: usize = 4 + MAX_INDENT;

/// The line breaks that are left out, also as JSON escapes them.
const BREAKS: [&[u8]; 4] = [b"\r\n", b"\n", b"\\r\\n", b"\\n"];

/// The shortened text, and where its bytes were.
pub(super) struct Unwrapped {
    text: Vec<u8>,
    /// For each break the place in `text` at which it was, and how many bytes are left out up to there.
    breaks: Vec<(usize, usize)>,
}

impl Unwrapped {
    /// Returns `None` if `text` has no line break between two characters of base64.
    pub(super) fn of(text: &[u8]) -> Option<Self> {
        let (mut kept, mut breaks) = (Vec::new(), Vec::new());
        let (mut copied, mut at) = (0, 1);
        while let Some(found) = text.get(at..).and_then(|rest| rest.iter().position(|byte| b"\r\n\\".contains(byte))) {
            at += found;
            let end = at + break_length(&text[at..]);
            if end > at && is_base64(text[at - 1]) && text.get(end).copied().is_some_and(is_base64) {
                kept.extend_from_slice(&text[copied..at]);
                breaks.push((kept.len(), end - kept.len()));
                copied = end;
            }
            at = end.max(at + 1);
        }
        if breaks.is_empty() {
            return None;
        }
        kept.extend_from_slice(&text[copied..]);
        Some(Self { text: kept, breaks })
    }

    pub(super) fn text(&self) -> &[u8] {
        &self.text
    }

    /// Returns where the bytes at `place`, which is not empty, were.
    pub(super) fn original(&self, place: Range<usize>) -> Range<usize> {
        self.original_start(place.start)..self.original_start(place.end - 1) + 1
    }

    /// Returns where the byte at `at` was.
    pub(super) fn original_start(&self, at: usize) -> usize {
        let before = self.breaks.partition_point(|(place, _)| *place <= at);
        at + before.checked_sub(1).map_or(0, |last| self.breaks[last].1)
    }
}

/// The length of the line break at the beginning of `text`; 0 without one.
fn break_length(text: &[u8]) -> usize {
    let Some(line_break) = BREAKS.iter().find(|line_break| text.starts_with(line_break)) else { return 0 };
    let indent = text[line_break.len()..].iter().take(MAX_INDENT).take_while(|byte| b" \t".contains(byte)).count();
    line_break.len() + indent
}

fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+/-_=".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn breaks_within_a_word_are_left_out_and_places_are_found_again() {
        let text = b"\nab\ncd\r\n  ef\\ngh\n\nij \nkl\n";
        let unwrapped = Unwrapped::of(text).expect("it has breaks");
        assert_eq!(unwrapped.text(), b"\nabcdefgh\n\nij \nkl\n");
        for (at, byte) in unwrapped.text().iter().enumerate() {
            assert_eq!(text[unwrapped.original_start(at)], *byte, "{at}");
        }
        assert_eq!(unwrapped.original(2..8), 2..15);
        assert!(Unwrapped::of(b"a line\n").is_none() && Unwrapped::of(b"").is_none());
    }
}
