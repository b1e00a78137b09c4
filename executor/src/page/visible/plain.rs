//! Visible text without a browser: characters that are not visible are written out, and named.

use ground::page_client::api_client::PlainText;

use super::{TextSpan, VisibleLine, VisibleText, name_of};

/// A longer run of spaces gets a note, since it can push what follows out of view.
const MAX_PLAIN_SPACES: usize = 8;
/// The most names of characters; a text with more kinds of them is no text to read.
const MAX_NAMES: usize = 50;

impl VisibleText {
    /// The same as plain text.
    pub(in crate::page) fn plain(&self) -> PlainText {
        let rows = self.blocks.iter().flat_map(|block| &block.rows).map(|row| (&row.spans, row.end));
        let plain = plain(rows);
        PlainText { notes: self.notes.iter().cloned().chain(plain.notes).collect(), ..plain }
    }

    /// The decoded JSON as plain text, if there is some.
    pub(in crate::page) fn plain_decoded(&self) -> Option<PlainText> {
        self.decoded.as_ref().map(|decoded| decoded.plain())
    }
}

/// One line as plain text.
pub(in crate::page) fn plain_line(line: &VisibleLine) -> PlainText {
    plain(std::iter::once((line, false)))
}

fn plain<'a>(rows: impl Iterator<Item = (&'a VisibleLine, bool)> + Clone) -> PlainText {
    let is_hidden = |span: &TextSpan| match span {
        TextSpan::Text(_) => false,
        TextSpan::Chip { character, .. } => *character != ' ',
        TextSpan::Escaped(_) => true,
    };
    let is_escaped = rows.clone().any(|(spans, _)| spans.iter().any(is_hidden));
    let (mut text, mut hidden, mut notes) = (String::new(), Vec::new(), Vec::new());
    let add = |names: &mut Vec<String>, name: String| {
        if names.len() < MAX_NAMES && !names.contains(&name) {
            names.push(name);
        }
    };
    for (spans, ends) in rows {
        for span in spans {
            match span {
                TextSpan::Text(part) if is_escaped => text.push_str(&part.replace('\\', r"\\")),
                TextSpan::Text(part) => text.push_str(part),
                TextSpan::Chip { character: ' ', count } => {
                    text.extend(std::iter::repeat_n(' ', *count));
                    if *count > MAX_PLAIN_SPACES {
                        add(&mut notes, format!("{count} spaces in a row"));
                    }
                }
                TextSpan::Chip { character, count } => {
                    text.push_str(&span.escaped());
                    let times = if *count == 1 { String::new() } else { format!("{count} times ") };
                    add(&mut hidden, format!("{times}U+{:04X} {}", u32::from(*character), name_of(*character)));
                }
                TextSpan::Escaped(part) => {
                    text.push_str(part);
                    add(&mut hidden, "very many characters that are not visible".to_owned());
                }
            }
        }
        if ends {
            text.push('\n');
        }
    }
    // The reader of a text with a backslash must know whether it is one.
    debug_assert!(!is_escaped || !hidden.is_empty(), "what is written out is named");
    PlainText { text, hidden, notes }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::line;
    use super::*;

    #[test]
    fn what_is_not_visible_is_written_out_and_named() {
        let plain = VisibleText::text("pay\u{202e}  C:\\x\n  and\u{200b}\u{200b}\tmore").plain();
        assert_eq!(plain.text, "pay\\u{202E}  C:\\\\x\n  and\\u{200B*2}\\u{9}more");
        assert_eq!(plain.hidden, ["U+202E right-to-left override", "2 times U+200B zero width space", "U+0009 tab"]);
    }

    #[test]
    fn an_ordinary_text_stays_as_it_is() {
        let text = "fn x() {\n    C:\\temp \\u{202E}\n}\n";
        assert_eq!(VisibleText::text(text).plain(), PlainText { text: text.to_owned(), ..PlainText::default() });
        assert_eq!(VisibleText::of(&json!({"a": [1]})).plain().text, "{\n  \"a\": [\n    1\n  ]\n}");
        let decoded = VisibleText::text("{\"to\": \"\\u200beve\"}").plain_decoded().expect("JSON");
        assert_eq!(decoded.hidden, ["U+200B zero width space"]);
        assert_eq!(plain_line(&line("/a b")).text, "/a b");
    }

    #[test]
    fn what_is_pushed_out_of_view_or_has_very_many_chips_is_told() {
        let pushed = VisibleText::text(&format!("ls{}; rm -r /", " ".repeat(200))).plain();
        assert_eq!((pushed.hidden, pushed.notes), (vec![], vec!["200 spaces in a row".to_owned()]));
        assert!(pushed.text.ends_with("; rm -r /") && pushed.text.len() == 211);
        let many = VisibleText::text(&"a\u{200b}".repeat(20_000)).plain();
        assert_eq!(many.hidden, ["very many characters that are not visible"]);
        assert_eq!(many.text, "a\\u{200B}".repeat(20_000));
    }
}
