//! Here-documents: the text on the following lines, up to a line with only the delimiter.

use super::Refusal;
use super::words::{WordReader, expansion};

/// A here-document whose text has not been read yet.
#[derive(Debug)]
pub(super) struct HereDocument {
    pub(super) delimiter: String,
    /// Whether the delimiter is quoted, so that the text is taken literally.
    pub(super) is_literal: bool,
    pub(super) strips_tabs: bool,
    /// Index of the line's text that this here-document fills.
    pub(super) text: usize,
}

const QUOTE_THE_DELIMITER: &str = "quote the delimiter to take the text literally: <<'EOF'";

impl HereDocument {
    pub(super) fn read(&self, reader: &mut WordReader) -> Result<String, Refusal> {
        let mut text = String::new();
        while let Some(line) = reader.line() {
            let line = if self.strips_tabs { line.trim_start_matches('\t') } else { &line };
            if line == self.delimiter {
                return if self.is_literal { Ok(text) } else { unescape(&text) };
            }
            let is_continued = line.chars().rev().take_while(|c| *c == '\\').count() % 2 == 1;
            if is_continued && !self.is_literal {
                return Err(Refusal::shell("\\ at the end of a line", QUOTE_THE_DELIMITER));
            }
            text.push_str(line);
            text.push('\n');
        }
        Err(self.unterminated())
    }

    pub(super) fn unterminated(&self) -> Refusal {
        let problem = format!("the here-document does not end with a line `{}`", self.delimiter);
        Refusal::malformed(problem, "put the delimiter alone on the last line, without spaces before or after it")
    }
}

/// Removes the escapes from the text of a here-document whose delimiter is not quoted; refuses expansions.
fn unescape(text: &str) -> Result<String, Refusal> {
    let mut unescaped = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        match c {
            '\\' if after.starts_with(['\\', '$', '`']) => {
                unescaped.push_str(&after[..1]);
                rest = &after[1..];
                continue;
            }
            '`' => return Err(Refusal::shell("`", QUOTE_THE_DELIMITER)),
            '$' => {
                if let Some(construct) = expansion(after.chars()) {
                    return Err(Refusal::shell(construct, QUOTE_THE_DELIMITER));
                }
            }
            _ => {}
        }
        unescaped.push(c);
        rest = after;
    }
    Ok(unescaped)
}
