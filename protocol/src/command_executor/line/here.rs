//! Here-documents: a text on the lines that follow, up to one that says where it ends.

use super::Refusal;
use super::words::{WordReader, expansion};

/// A here-document whose lines are still to come.
#[derive(Debug)]
pub(super) struct HereDocument {
    pub(super) end: String,
    /// Its end is written in quotes, so that nothing in it means anything.
    pub(super) is_literal: bool,
    pub(super) strips_tabs: bool,
    /// Where its text belongs.
    pub(super) text: usize,
}

const QUOTE_THE_END: &str = "quote the word, and nothing in the text means anything: <<'EOF'";

impl HereDocument {
    pub(super) fn read(&self, reader: &mut WordReader) -> Result<String, Refusal> {
        let mut text = String::new();
        while let Some(line) = reader.line() {
            let line = if self.strips_tabs { line.trim_start_matches('\t') } else { &line };
            if line == self.end {
                return if self.is_literal { Ok(text) } else { plain(&text) };
            }
            let is_continued = line.chars().rev().take_while(|c| *c == '\\').count() % 2 == 1;
            if is_continued && !self.is_literal {
                return Err(Refusal::shell("\\ at the end of a line", QUOTE_THE_END));
            }
            text.push_str(line);
            text.push('\n');
        }
        Err(self.never_ended())
    }

    pub(super) fn never_ended(&self) -> Refusal {
        let problem = format!("the here-document has no line `{}` that ends it", self.end);
        Refusal::broken(problem, "put the word alone on the last line, without blanks before or after it")
    }
}

/// The text of a here-document whose end is not quoted.
fn plain(text: &str) -> Result<String, Refusal> {
    let mut plain = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        match c {
            '\\' if after.starts_with(['\\', '$', '`']) => {
                plain.push_str(&after[..1]);
                rest = &after[1..];
                continue;
            }
            '`' => return Err(Refusal::shell("`", QUOTE_THE_END)),
            '$' => {
                if let Some(construct) = expansion(after.chars()) {
                    return Err(Refusal::shell(construct, QUOTE_THE_END));
                }
            }
            _ => {}
        }
        plain.push(c);
        rest = after;
    }
    Ok(plain)
}
