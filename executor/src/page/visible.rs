//! Visible text: untrusted text, prepared so that a human sees all of it.
//!
//! Nothing is left out or changed. Characters that a browser would hide, reorder or confuse become chips with their
//! names, and the original text can be restored from what is shown.

use std::sync::LazyLock;

use regex::Regex;
use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};
use serde_json::Value;
use unicode_security::MixedScript as _;

use protocol::invisible;
use rows::TextBlock;

mod filters;
mod plain;
mod rows;

pub(super) use filters::add_filters;
pub(super) use plain::plain_line;

/// Characters that are drawn onto the one before them.
static MARK: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^\p{M}").expect("a valid character class"));

/// What a human is told about an escaped text.
const ESCAPED: &str =
    "many characters that are not visible, each written as \\u{its number in hexadecimal}; a backslash is \\\\";

/// A longer run of spaces becomes a chip with their number.
const MAX_SPACES: usize = 2;
/// The shortest text that is tried as JSON, in bytes: `{}`.
const MIN_JSON_BYTES: usize = 2;

/// A part of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TextSpan {
    Text(String),
    /// `count` times a character that is not visible, or hard to see.
    Chip {
        character: char,
        count: usize,
    },
    /// Text and chips together, of a value with very many chips: `\u{200B}` stands for a character that is not visible,
    /// `\u{20*4}` for four of them, and `\\\\` for a backslash.
    Escaped(String),
}

impl TextSpan {
    /// A character that is not visible, in its written-out form.
    fn escaped(&self) -> String {
        match self {
            Self::Text(text) => text.replace('\\', r"\\"),
            Self::Escaped(text) => text.clone(),
            Self::Chip { character, count } => {
                let times = if *count == 1 { String::new() } else { format!("*{count}") };
                format!("\\u{{{:X}{times}}}", u32::from(*character))
            }
        }
    }
}

impl Serialize for TextSpan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match self {
            Self::Text(text) => map.serialize_entry("t", text)?,
            Self::Escaped(text) => {
                map.serialize_entry("c", text)?;
                map.serialize_entry("n", ESCAPED)?;
            }
            Self::Chip { character, count } => {
                let code = format!("U+{:04X}", u32::from(*character));
                let name = name_of(*character);
                if *count == 1 {
                    map.serialize_entry("c", &code)?;
                    map.serialize_entry("n", name)?;
                } else {
                    map.serialize_entry("c", &format!("{code} ×{count}"))?;
                    map.serialize_entry("n", &format!("{count} times {name}"))?;
                }
            }
        }
        map.end()
    }
}

pub(super) type VisibleLine = Vec<TextSpan>;

/// A value as a human must see it.
#[derive(Debug, Serialize)]
pub(super) struct VisibleText {
    blocks: Vec<TextBlock>,
    /// The number of its lines.
    lines: usize,
    bytes: usize,
    kind: &'static str,
    notes: Vec<String>,
    /// The decoded JSON, if the value is a text that holds a JSON object or array.
    decoded: Option<Box<Self>>,
    #[serde(skip)]
    height: usize,
}

impl VisibleText {
    pub(super) fn of(value: &Value) -> Self {
        let kind = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) | Value::Object(_) => "json",
        };
        let text = match value {
            Value::String(text) => text.clone(),
            other => serde_json::to_string_pretty(other).expect("a JSON value can be serialized"),
        };
        let encoded = match value {
            Value::String(text) if text.len() >= MIN_JSON_BYTES => serde_json::from_str::<Value>(text).ok(),
            _ => None,
        };
        let decoded = encoded.filter(|value| value.is_object() || value.is_array());
        let mut notes = notes(&text);
        if decoded.is_some() {
            notes.push("contains encoded JSON".to_owned());
        }
        let decoded = decoded.map(|value| Box::new(Self::of(&value)));
        let shown: Vec<_> = if kind == "json" { text.split('\n').map(indented).collect() } else { lines(&text) };
        let lines = shown.len();
        let (blocks, height) = rows::blocks(shown);
        Self { blocks, lines, bytes: text.len(), kind, notes, decoded, height }
    }

    pub(super) fn text(text: &str) -> Self {
        Self::of(&Value::String(text.to_owned()))
    }

    /// How many lines the value fills in a column of the page's usual width, more or less.
    pub(super) fn height(&self) -> usize {
        self.height
    }
}

/// Splits `text` into lines.
pub(super) fn lines(text: &str) -> Vec<VisibleLine> {
    text.split('\n').map(line).collect()
}

/// A line of pretty-printed JSON. The indentation is ours and part of no value, so it is never shown as a chip.
fn indented(text: &str) -> VisibleLine {
    let rest = text.trim_start_matches(' ');
    let mut spans = line(rest);
    let indent = &text[..text.len() - rest.len()];
    match spans.first_mut() {
        Some(TextSpan::Text(first)) => first.insert_str(0, indent),
        _ if indent.is_empty() => {}
        _ => spans.insert(0, TextSpan::Text(indent.to_owned())),
    }
    spans
}

/// `text` on one line; line breaks become chips.
pub(super) fn line(text: &str) -> VisibleLine {
    let mut spans = Vec::new();
    let mut rest = text;
    while let Some(found) = invisible::next(rest) {
        push_text(&mut spans, &rest[..found.start]);
        push_chips(&mut spans, &rest[found.clone()]);
        rest = &rest[found.end..];
    }
    push_text(&mut spans, rest);
    spans
}

fn push_chips(spans: &mut VisibleLine, hidden: &str) {
    for character in hidden.chars() {
        match spans.last_mut() {
            Some(TextSpan::Chip { character: last, count }) if *last == character => *count += 1,
            _ => spans.push(TextSpan::Chip { character, count: 1 }),
        }
    }
}

/// Adds text whose only special characters are spaces. Long runs and spaces at the edges become chips.
fn push_text(spans: &mut VisibleLine, text: &str) {
    let mut rest = text;
    while !rest.is_empty() {
        let spaces = rest.len() - rest.trim_start_matches(' ').len();
        let is_edge = spans.is_empty() || spaces == rest.len();
        if spaces > MAX_SPACES || spaces > 0 && is_edge {
            spans.push(TextSpan::Chip { character: ' ', count: spaces });
            rest = &rest[spaces..];
            continue;
        }
        // Take the text up to the next run of spaces that becomes a chip.
        let mut end = rest.len();
        let mut from = spaces;
        while let Some(start) = rest[from..].find(' ').map(|at| from + at) {
            let run = rest[start..].len() - rest[start..].trim_start_matches(' ').len();
            if run > MAX_SPACES || start + run == rest.len() {
                end = start;
                break;
            }
            from = start + run;
        }
        match spans.last_mut() {
            Some(TextSpan::Text(last)) => last.push_str(&rest[..end]),
            _ => spans.push(TextSpan::Text(rest[..end].to_owned())),
        }
        rest = &rest[end..];
    }
}

/// Warnings about text that may look like something else: mixed scripts and punycode host names.
fn notes(text: &str) -> Vec<String> {
    let mut notes = Vec::new();
    let words = text.split(|character: char| character.is_whitespace() || "/@:,;<>()\"'".contains(character));
    for word in words.filter(|word| !word.is_empty()) {
        if !word.is_ascii() && word.chars().any(char::is_alphabetic) && !word.is_single_script() {
            push_note(&mut notes, "mixes letters of several scripts", word);
        }
        if word.split('.').any(|label| label.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("xn--"))) {
            push_note(&mut notes, "a host name in punycode", word);
        }
    }
    notes
}

fn push_note(notes: &mut Vec<String>, what: &str, word: &str) {
    const MAX_NOTES: usize = 5;
    const MAX_WORD_CHARS: usize = 60;
    if notes.len() < MAX_NOTES {
        let word: String = word.chars().take(MAX_WORD_CHARS).filter(|character| !character.is_control()).collect();
        let note = format!("{what}: {word}");
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
}

fn name_of(character: char) -> &'static str {
    match character {
        ' ' => "space",
        '\t' => "tab",
        '\n' => "line feed",
        '\r' => "carriage return",
        '\u{0}' => "null",
        '\u{7}' => "bell",
        '\u{8}' => "backspace",
        '\u{1b}' => "escape",
        '\u{7f}' => "delete",
        '\u{85}' => "next line",
        '\u{a0}' => "no-break space",
        '\u{ad}' => "soft hyphen",
        '\u{34f}' => "combining grapheme joiner",
        '\u{61c}' => "arabic letter mark",
        '\u{180e}' => "mongolian vowel separator",
        '\u{200b}' => "zero width space",
        '\u{200c}' => "zero width non-joiner",
        '\u{200d}' => "zero width joiner",
        '\u{200e}' => "left-to-right mark",
        '\u{200f}' => "right-to-left mark",
        '\u{2028}' => "line separator",
        '\u{2029}' => "paragraph separator",
        '\u{202a}' => "left-to-right embedding",
        '\u{202b}' => "right-to-left embedding",
        '\u{202c}' => "pop directional formatting",
        '\u{202d}' => "left-to-right override",
        '\u{202e}' => "right-to-left override",
        '\u{202f}' => "narrow no-break space",
        '\u{2060}' => "word joiner",
        '\u{2066}' => "left-to-right isolate",
        '\u{2067}' => "right-to-left isolate",
        '\u{2068}' => "first strong isolate",
        '\u{2069}' => "pop directional isolate",
        '\u{3000}' => "ideographic space",
        '\u{3164}' => "hangul filler",
        '\u{feff}' => "zero width no-break space",
        '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}' => "variation selector",
        '\u{e0000}'..='\u{e007f}' => "tag character",
        '\u{e000}'..='\u{f8ff}' | '\u{f0000}'..='\u{10ffff}' => "private-use character",
        _ if character.is_control() => "control character",
        _ if character.is_whitespace() => "space of another width",
        _ => "invisible character",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// Restores the original text.
    fn read_back(lines: &[VisibleLine]) -> String {
        let line = |line: &VisibleLine| -> String {
            line.iter()
                .map(|span| match span {
                    TextSpan::Text(text) => text.clone(),
                    TextSpan::Chip { character, count } => character.to_string().repeat(*count),
                    TextSpan::Escaped(_) => unreachable!("only rows are escaped"),
                })
                .collect()
        };
        lines.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    fn texts(lines: &[VisibleLine]) -> impl Iterator<Item = &str> {
        lines.iter().flatten().filter_map(|span| match span {
            TextSpan::Text(text) => Some(text.as_str()),
            TextSpan::Chip { .. } | TextSpan::Escaped(_) => None,
        })
    }

    #[test]
    fn every_hidden_character_becomes_a_chip_with_its_code_point() {
        let hidden = Regex::new(r"^[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Zs}\p{Co}\p{Default_Ignorable_Code_Point}]$")
            .expect("a valid character class");
        for character in '\0'..=char::MAX {
            let text = format!("a{character}b");
            let shown = lines(&text);
            assert_eq!(read_back(&shown), text);
            let is_text = texts(&shown).any(|text| text.contains(character));
            let may_be_text = !hidden.is_match(&character.to_string()) || character == ' ';
            assert!(may_be_text || !is_text, "{:04X} is shown as text", u32::from(character));
            if !is_text && character != '\n' {
                let json = serde_json::to_string(&shown).expect("JSON");
                assert!(json.contains(&format!("U+{:04X}", u32::from(character))), "{json}");
            }
        }
    }

    #[test]
    fn runs_of_spaces_become_chips_with_their_number() {
        let shown = |text: &str| serde_json::to_value(line(text)).expect("JSON");
        assert_eq!(shown("a b  c"), json!([{"t": "a b  c"}]));
        assert_eq!(shown("a    b"), json!([{"t": "a"}, {"c": "U+0020 ×4", "n": "4 times space"}, {"t": "b"}]));
        assert_eq!(shown(" a "), json!([{"c": "U+0020", "n": "space"}, {"t": "a"}, {"c": "U+0020", "n": "space"}]));
        assert_eq!(shown("\u{202e}x"), json!([{"c": "U+202E", "n": "right-to-left override"}, {"t": "x"}]));
        assert_eq!(shown(""), json!([]));
    }

    #[test]
    fn indentation_of_json_does_not_become_chips() {
        let value = json!({"to": [" a", "b    c", "\u{202e}"]});
        let text = serde_json::to_string_pretty(&value).expect("JSON");
        let shown: Vec<_> = text.split('\n').map(indented).collect();
        assert_eq!(read_back(&shown), text);
        let lines = serde_json::to_value(&shown).expect("JSON");
        assert_eq!(lines[1], json!([{"t": "  \"to\": ["}]));
        assert_eq!(lines[2], json!([{"t": "    \" a\","}]), "a space after a quote is visible");
        assert_eq!(lines[3], json!([{"t": "    \"b"}, {"c": "U+0020 ×4", "n": "4 times space"}, {"t": "c\","}]));
        assert_eq!(lines[4][1], json!({"c": "U+202E", "n": "right-to-left override"}));
    }

    #[test]
    fn misleading_text_gets_a_note() {
        let notes_of = |text: &str| VisibleText::text(text).notes;
        assert_eq!(notes_of("to paypal.com, 年度报告, Привет"), [] as [&str; 0]);
        assert_eq!(notes_of("to pаypal.com"), ["mixes letters of several scripts: pаypal.com"]);
        assert_eq!(notes_of("https://xn--pypal-4ve.com/x"), ["a host name in punycode: xn--pypal-4ve.com"]);
        assert_eq!(notes_of(r#"{"to": "eve"}"#), ["contains encoded JSON"]);
        assert!(VisibleText::text("[1]").decoded.is_some() && VisibleText::text("7").decoded.is_none());
    }

    #[test]
    fn numbers_keep_every_digit() {
        let shown = serde_json::to_value(VisibleText::of(&json!(9_007_199_254_740_993_i64))).expect("JSON");
        let spans = &shown["blocks"][0]["rows"][0]["spans"];
        assert_eq!((&shown["kind"], spans), (&json!("number"), &json!([{"t": "9007199254740993"}])));
    }

    proptest! {
        #[test]
        fn the_original_text_can_be_restored(text in r"(\PC|\p{C}|[ \t\n]| {3,5}){0,40}") {
            prop_assert_eq!(read_back(&lines(&text)), text.clone());
            let one_line = [line(&text)];
            prop_assert_eq!(read_back(&one_line), text);
        }
    }
}
