//! Text of others for people: names, descriptions, messages and answers must not move the cursor, change colors or turn
//! the reading order of a terminal.

use std::fmt::Write as _;

/// Whether a character turns the order in which others are read.
fn turns_order(character: char) -> bool {
    matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Whether a character is drawn as nothing, and yet sets a direction, breaks a line or hides a text.
fn is_unseen(character: char) -> bool {
    matches!(character, '\u{200e}' | '\u{200f}' | '\u{61c}' | '\u{2028}' | '\u{2029}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Replaces control characters and those that turn the reading order, except line breaks and tabs.
pub fn sanitize(text: &str) -> String {
    let is_harmful = |character: char| {
        (character.is_control() && character != '\n' && character != '\t')
            || turns_order(character)
            || is_unseen(character)
    };
    if !text.contains(is_harmful) {
        return text.to_owned();
    }
    text.replace("\r\n", "\n").chars().map(|c| if is_harmful(c) { '\u{fffd}' } else { c }).collect()
}

/// JSON in which such a character is written as its escape, which is the same JSON.
pub fn harmless_json(json: String) -> String {
    // Those below are escaped already.
    let is_harmful = |character: char| matches!(character, '\u{80}'..='\u{9f}') || turns_order(character);
    if json.is_ascii() || !json.contains(is_harmful) {
        return json;
    }
    let mut text = String::with_capacity(json.len() + 16);
    for character in json.chars() {
        if is_harmful(character) {
            write!(text, "\\u{:04x}", u32::from(character)).expect("a text takes any text");
        } else {
            text.push(character);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_replaced() {
        assert_eq!(sanitize("a\x1b[2Jb\r\nc\td\u{9b}\u{202e}"), "a\u{fffd}[2Jb\nc\td\u{fffd}\u{fffd}");
        assert_eq!(sanitize("A\u{200f}\u{61c}\u{e0041}\u{2028}B"), "A\u{fffd}\u{fffd}\u{fffd}\u{fffd}B");
        assert_eq!(sanitize("grün, 年\n\t\u{200d}"), "grün, 年\n\t\u{200d}");
    }

    #[test]
    fn json_stays_the_same_json() {
        let document = serde_json::json!({"name\u{202e}": "grün, 年, a\u{9b}2J \u{200d} \\\u{2066}\u{1b}"});
        let json = harmless_json(document.to_string());
        assert_eq!(json, "{\"name\\u202e\":\"grün, 年, a\\u009b2J \u{200d} \\\\\\u2066\\u001b\"}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&json).expect("JSON"), document);
    }
}
