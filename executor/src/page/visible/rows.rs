//! Rows: how the lines of a value are laid out, so that a browser shows a megabyte of any text at once.
//!
//! Browsers need minutes for one line of a megabyte, and for a million lines of their own. So a long line is broken into
//! pieces, a run of empty lines is folded into one row that says how many there are, and very many short lines share
//! rows. Rows are grouped into blocks that a browser lays out only when they come into view. No character is left out:
//! the text of all rows together is the text of the value.

use serde::Serialize;

use super::{TextSpan, VisibleLine};

/// A longer line is broken into pieces of about this many bytes.
const MAX_PIECE_BYTES: usize = 2_000;
/// How far back from there a piece may end at a space.
const MAX_BREAK_BYTES: usize = 200;
/// From this many empty lines on, a run of them is folded.
const MIN_FOLDED_LINES: usize = 4;
/// Of a text with more lines, each row holds [`DENSE_LINES`] of them.
const MAX_NUMBERED_LINES: usize = 20_000;
const DENSE_LINES: usize = 100;
/// How many rows of the screen a block fills, more or less; `.text-rows` in values.css knows it as well.
const BLOCK_ROWS: usize = 100;
/// How many bytes fit into one row of the screen, more or less.
const BYTES_PER_ROW: usize = 125;
/// The most chips of a value; of one with more, rows with more than [`MAX_ROW_CHIPS`] are escaped.
const MAX_CHIPS: usize = 5_000;
const MAX_ROW_CHIPS: usize = 10;
/// How many bytes the chip of a character counts as.
const CHIP_BYTES: usize = 10;

/// Rows that are laid out together.
#[derive(Debug, Serialize)]
pub(in crate::page) struct TextBlock {
    pub(super) rows: Vec<TextRow>,
}

/// A line, a piece of one, or several lines.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(in crate::page) struct TextRow {
    /// The number of its line, or of its first and last one; empty for a further piece of a line.
    label: String,
    pub(super) spans: VisibleLine,
    /// Of a run of empty lines that is folded: what it is, in words.
    fold: Option<String>,
    /// Whether a line break follows.
    pub(super) end: bool,
    #[serde(skip)]
    height: usize,
}

impl TextRow {
    fn of(label: String, spans: VisibleLine, end: bool) -> Self {
        let height = bytes_of(&spans).div_ceil(BYTES_PER_ROW).max(1);
        Self { label, spans, fold: None, end, height }
    }

    /// Makes one span of all: a browser needs seconds for hundreds of thousands of chips.
    fn escape(&mut self) {
        let escaped = self.spans.drain(..).map(|span| span.escaped()).collect();
        self.spans.push(TextSpan::Escaped(escaped));
    }
}

fn chips_of(line: &VisibleLine) -> usize {
    line.iter().filter(|span| matches!(span, TextSpan::Chip { .. })).count()
}

/// Lays out `lines`; a line break is between each two of them. Returns the blocks and how many rows of the screen they
/// fill, more or less.
pub(super) fn blocks(lines: Vec<VisibleLine>) -> (Vec<TextBlock>, usize) {
    let mut rows = rows(lines);
    if rows.iter().map(|row| chips_of(&row.spans)).sum::<usize>() > MAX_CHIPS {
        rows.iter_mut().filter(|row| chips_of(&row.spans) > MAX_ROW_CHIPS).for_each(TextRow::escape);
    }
    let height = rows.iter().map(|row| row.height).sum();
    let mut blocks = vec![TextBlock { rows: Vec::new() }];
    let mut filled = 0;
    for row in rows {
        if filled >= BLOCK_ROWS {
            blocks.push(TextBlock { rows: Vec::new() });
            filled = 0;
        }
        filled += row.height;
        blocks.last_mut().expect("there is always one").rows.push(row);
    }
    (blocks, height)
}

fn rows(lines: Vec<VisibleLine>) -> Vec<TextRow> {
    let count = lines.len();
    let is_dense = count > MAX_NUMBERED_LINES;
    let mut rows = Vec::new();
    let mut dense = DenseRow::default();
    let mut lines = lines.into_iter().enumerate().peekable();
    while let Some((at, line)) = lines.next() {
        let is_last = at + 1 == count;
        if line.is_empty() {
            let mut last = at;
            while let Some((next, _)) = lines.next_if(|(_, line)| line.is_empty()) {
                last = next;
            }
            let run = last - at + 1;
            if run >= MIN_FOLDED_LINES {
                rows.extend(dense.take());
                rows.push(folded(at + 1, run, last + 1 == count));
                continue;
            }
            for empty in at..=last {
                let end = empty + 1 != count;
                if is_dense {
                    rows.extend(dense.add(empty + 1, Vec::new(), end));
                } else {
                    rows.push(TextRow::of((empty + 1).to_string(), Vec::new(), end));
                }
            }
            continue;
        }
        if is_dense && bytes_of(&line) <= MAX_PIECE_BYTES {
            rows.extend(dense.add(at + 1, line, !is_last));
            continue;
        }
        rows.extend(dense.take());
        rows.extend(pieces(at + 1, line, !is_last));
    }
    rows.extend(dense.take());
    rows
}

/// One row for `run` empty lines from line `first` on.
fn folded(first: usize, run: usize, is_end: bool) -> TextRow {
    let last = first + run - 1;
    let breaks = "\n".repeat(if is_end { run - 1 } else { run });
    let fold = Some(format!("{run} empty lines"));
    let label = format!("{first}–{last}");
    TextRow { label, spans: vec![TextSpan::Text(breaks)], fold, end: false, height: 1 }
}

/// Breaks a long line into rows.
fn pieces(number: usize, line: VisibleLine, end: bool) -> Vec<TextRow> {
    if bytes_of(&line) <= MAX_PIECE_BYTES {
        return vec![TextRow::of(number.to_string(), line, end)];
    }
    let mut pieces = vec![Vec::new()];
    let mut filled = 0;
    for span in line {
        match span {
            TextSpan::Chip { .. } | TextSpan::Escaped(_) => {
                if filled >= MAX_PIECE_BYTES {
                    pieces.push(Vec::new());
                    filled = 0;
                }
                filled += CHIP_BYTES;
                pieces.last_mut().expect("there is always one").push(span);
            }
            TextSpan::Text(text) => {
                let mut rest = text.as_str();
                while !rest.is_empty() {
                    if filled >= MAX_PIECE_BYTES {
                        pieces.push(Vec::new());
                        filled = 0;
                    }
                    let (piece, after) = rest.split_at(end_of_piece(rest, MAX_PIECE_BYTES - filled));
                    filled = if after.is_empty() { filled + piece.len() } else { MAX_PIECE_BYTES };
                    pieces.last_mut().expect("there is always one").push(TextSpan::Text(piece.to_owned()));
                    rest = after;
                }
            }
        }
    }
    let last = pieces.len() - 1;
    let row = |(at, spans): (usize, VisibleLine)| {
        let label = if at == 0 { number.to_string() } else { String::new() };
        TextRow::of(label, spans, end && at == last)
    };
    pieces.into_iter().enumerate().map(row).collect()
}

/// Where a piece of `text` of about `max` bytes ends: after a space, if one is near, and not before a character that
/// belongs to the one before it.
fn end_of_piece(text: &str, max: usize) -> usize {
    if text.len() <= max {
        return text.len();
    }
    let near = text.floor_char_boundary(max.max(1));
    let from = text.floor_char_boundary(near.saturating_sub(MAX_BREAK_BYTES));
    if let Some(space) = text[from..near].rfind(' ') {
        return from + space + 1;
    }
    let is_start = |character: &char| !is_mark(*character);
    let next = text[near..].char_indices().find(|(_, character)| is_start(character));
    let end = next.map_or(text.len(), |(at, _)| near + at);
    if end == 0 { text.len() } else { end }
}

/// Whether a character is drawn onto the one before it.
fn is_mark(character: char) -> bool {
    super::MARK.is_match(character.encode_utf8(&mut [0; 4]))
}

fn bytes_of(line: &VisibleLine) -> usize {
    let bytes = |span: &TextSpan| match span {
        TextSpan::Text(text) | TextSpan::Escaped(text) => text.len(),
        TextSpan::Chip { .. } => CHIP_BYTES,
    };
    line.iter().map(bytes).sum()
}

/// A row that collects several lines.
#[derive(Default)]
struct DenseRow {
    first: usize,
    last: usize,
    spans: VisibleLine,
    bytes: usize,
}

impl DenseRow {
    /// Adds a line; returns the row if it is full.
    fn add(&mut self, number: usize, line: VisibleLine, end: bool) -> Option<TextRow> {
        if self.first == 0 {
            self.first = number;
        }
        self.last = number;
        self.bytes += bytes_of(&line);
        for span in line {
            self.push(span);
        }
        if end {
            self.push(TextSpan::Text("\n".to_owned()));
        }
        let is_full = self.last - self.first + 1 >= DENSE_LINES || self.bytes > 4 * MAX_PIECE_BYTES;
        if is_full { self.take() } else { None }
    }

    fn push(&mut self, span: TextSpan) {
        match (self.spans.last_mut(), span) {
            (Some(TextSpan::Text(text)), TextSpan::Text(more)) => text.push_str(&more),
            (_, span) => self.spans.push(span),
        }
    }

    /// Returns what was collected, if there is anything.
    fn take(&mut self) -> Option<TextRow> {
        let Self { first, last, spans, .. } = std::mem::take(self);
        let label = if first == last { first.to_string() } else { format!("{first}–{last}") };
        (first != 0).then(|| TextRow { label, spans, fold: None, end: false, height: last - first + 1 })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::page::visible::lines;

    fn unescaped(text: &str) -> String {
        let (mut restored, mut rest) = (String::new(), text);
        while let Some((before, after)) = rest.split_once('\\') {
            restored.push_str(before);
            if let Some(after) = after.strip_prefix('\\') {
                restored.push('\\');
                rest = after;
                continue;
            }
            let (code, after) = after.strip_prefix("u{").and_then(|code| code.split_once('}')).expect("an escape");
            let (number, times) = code.split_once('*').unwrap_or((code, "1"));
            let character = u32::from_str_radix(number, 16).ok().and_then(char::from_u32).expect("a character");
            restored.extend(std::iter::repeat_n(character, times.parse().expect("a number")));
            rest = after;
        }
        restored + rest
    }

    /// Restores the text, and returns the rows.
    fn laid_out(text: &str) -> (String, Vec<TextRow>) {
        let rows: Vec<_> = blocks(lines(text)).0.into_iter().flat_map(|block| block.rows).collect();
        let mut restored = String::new();
        for row in &rows {
            for span in &row.spans {
                match span {
                    TextSpan::Text(text) => restored.push_str(text),
                    TextSpan::Chip { character, count } => restored.extend(std::iter::repeat_n(*character, *count)),
                    TextSpan::Escaped(text) => restored.push_str(&unescaped(text)),
                }
            }
            if row.end {
                restored.push('\n');
            }
        }
        (restored, rows)
    }

    #[test]
    fn a_megabyte_of_anything_becomes_few_short_rows() {
        let megabyte = |part: &str| part.repeat((1 << 20) / part.len());
        let words = megabyte("some words ");
        for text in [
            megabyte("x"),
            megabyte("é"),
            words,
            megabyte("\n"),
            megabyte("a\n"),
            megabyte("\n\n\na\n"),
            megabyte("a\u{200b}"),
            megabyte("\\\u{200b}\n"),
            megabyte("     \u{202e}\\u{5}"),
            megabyte("a line of ordinary length, as there are in most texts\n"),
            format!("x{}", megabyte("\u{301}")),
        ] {
            let (restored, rows) = laid_out(&text);
            assert!(restored == text, "the text is the same: {:?}", text.get(..2));
            assert!(rows.len() <= MAX_NUMBERED_LINES + 10, "{} rows of {:?}", rows.len(), text.get(..2));
            let chips: usize = rows.iter().map(|row| chips_of(&row.spans)).sum();
            assert!(chips <= MAX_CHIPS, "{chips} chips of {:?}", text.get(..2));
            let is_short = |row: &TextRow| row.fold.is_some() || bytes_of(&row.spans) <= 5 * MAX_PIECE_BYTES;
            assert!(rows.iter().all(is_short) || text.starts_with("x\u{301}"), "{:?}", text.get(..2));
        }
    }

    #[test]
    fn runs_of_empty_lines_are_folded_with_their_number() {
        let (_, rows) = laid_out("a\n\n\n\n\n\nb\n\n\nc\n\n\n\n");
        let shown: Vec<_> = rows.iter().map(|row| (row.label.as_str(), row.fold.as_deref())).collect();
        let expected = [
            ("1", None),
            ("2–6", Some("5 empty lines")),
            ("7", None),
            ("8", None),
            ("9", None),
            ("10", None),
            ("11–14", Some("4 empty lines")),
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_long_line_is_broken_at_a_space_and_keeps_its_one_number() {
        let (_, rows) = laid_out(&format!("{}\nnext", "word ".repeat(1_000)));
        let labels: Vec<_> = rows.iter().map(|row| row.label.as_str()).collect();
        assert_eq!(labels, ["1", "", "", "2"]);
        for row in &rows[..2] {
            assert!(matches!(row.spans.last(), Some(TextSpan::Text(text)) if text.ends_with("word ")), "{row:?}");
            assert!(!row.end);
        }
    }

    proptest! {
        #[test]
        fn the_rows_of_any_text_contain_it_whole(
            parts in prop::collection::vec((r"(\PC|\p{C}|[ \t\n]){0,8}", 0..900_usize), 0..6),
        ) {
            let text: String = parts.iter().map(|(part, times)| part.repeat(*times)).collect();
            prop_assert_eq!(laid_out(&text).0, text);
        }
    }
}
