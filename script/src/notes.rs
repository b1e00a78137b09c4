//! The notes of a script: what it wrote with `console`, cut to what its limits allow.

use crate::limits::Limits;

/// Ends a note that was cut.
const CUT: &str = "… (cut)";
/// Replaces the notes after the last one that fits.
const DROPPED: &str = "further notes are dropped: the notes of a script are limited";

/// Counts the notes of a run.
#[derive(Debug)]
pub(crate) struct Notes {
    max_note_bytes: usize,
    left_bytes: usize,
    has_any: bool,
    is_full: bool,
}

impl Notes {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            max_note_bytes: limits.max_note_bytes,
            left_bytes: limits.max_notes_bytes,
            has_any: false,
            is_full: false,
        }
    }

    /// Returns what to write for a note with this text: nothing once the notes are full.
    pub(crate) fn admit(&mut self, text: &str) -> Option<String> {
        if self.is_full {
            return None;
        }
        self.has_any = true;
        let text = cut(text, self.max_note_bytes);
        let Some(left_bytes) = self.left_bytes.checked_sub(text.len()) else {
            self.is_full = true;
            return Some(DROPPED.to_owned());
        };
        self.left_bytes = left_bytes;
        Some(text)
    }

    pub(crate) fn has_any(&self) -> bool {
        self.has_any
    }

    /// Whether every further note is dropped.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }
}

/// At most `max_bytes` bytes of `text`, and a sign that something is missing.
pub(crate) fn cut(text: &str, max_bytes: usize) -> String {
    if text.len() <= max_bytes {
        return text.to_owned();
    }
    format!("{}{CUT}", &text[..text.floor_char_boundary(max_bytes)])
}
