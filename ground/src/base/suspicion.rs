//! What is suspicious about the words that a model reads of a subtool: orders to the model, hidden characters, text that
//! is pushed out of sight or encoded.
//!
//! The author of a description writes into the model's context. A description of a tool says what the tool does; one
//! that gives orders about other tools, about secrets or about what the user may know has another purpose. The rules
//! are narrow: ordinary descriptions must not raise them, and a clever attacker can avoid them.

use std::sync::LazyLock;

use protocol::excerpt;
use protocol::invisible;
use protocol::wording::counted;
use regex::Regex;
use serde_json::{Map, Value};

/// The most suspicions that are reported of one definition.
const MAX_SUSPICIONS: usize = 10;
/// The most bytes that are looked at of one text.
const MAX_TEXT_BYTES: usize = 64 << 10;
/// The most characters that are quoted.
const MAX_QUOTED_CHARS: usize = 80;
/// The most hidden characters that are named.
const MAX_NAMED: usize = 4;
/// How long a run of spaces is that no layout needs.
const MIN_SPACES: usize = 100;
/// How many lines a gap has that no layout needs.
const MIN_EMPTY_LINES: usize = 20;
/// How long a word is that no language has, and no example needs.
const MIN_ENCODED_CHARS: usize = 160;

/// The keywords of a schema whose texts are no words for a model.
const NO_WORDS: [&str; 8] = ["$schema", "$ref", "$id", "$anchor", "pattern", "format", "type", "required"];

/// What is suspicious about one text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suspicion {
    /// Where the text stands in the definition: `input.properties.path.description`.
    pub place: String,
    pub code: &'static str,
    /// What it is, with a quotation in which nothing is hidden.
    pub message: String,
}

/// A rule over a text.
struct WordRule {
    code: &'static str,
    about: &'static str,
    pattern: LazyLock<Regex>,
}

/// Words of the model's instructions, which a description may not speak of.
static RULES: [WordRule; 8] = [
    WordRule {
        code: "overrides-instructions",
        about: "it tells the model to ignore its instructions",
        pattern: LazyLock::new(|| {
            regex(
                r"\b(?:ignore|disregard|forget|override|bypass)\s+(?:(?:all|any|the|your|of|these|those|my|other)\s+){0,4}(?:(?:previous|prior|above|earlier|preceding|existing|foregoing|system|safety)\s+(?:\w+\s+)?(?:instructions?|prompts?|rules|guidelines|directions|messages|policy|policies|guardrails)|your\s+(?:instructions|rules|guidelines))\b",
            )
        }),
    },
    WordRule {
        code: "conceals-from-user",
        about: "it tells the model to keep something from the user",
        pattern: LazyLock::new(|| {
            regex(
                r"\b(?:do\s+not|don['’]?t|never|must\s+not|should\s+not|without|avoid)\s+(?:ever\s+)?(?:tell|telling|mention|mentioning|inform|informing|reveal|revealing|notify|notifying|disclose|disclosing|alert|alerting|warn|warning)\s+(?:(?:[^\s.;:!?]+\s+){0,6}?(?:the|your|to)\s+)?(?:user|human)\b(?:[^'’s]|$)|\b(?:hide|conceal|keep)\s+(?:[^\s.;:!?]+\s+){0,5}?from\s+the\s+(?:user|human)\b|\bthe\s+(?:user|human)\s+(?:must|should|may)\s+(?:not|never)\s+(?:know|see\s+this|notice|find\s+out|be\s+(?:told|informed|notified))",
            )
        }),
    },
    WordRule {
        code: "markup-for-model",
        about: "it has markup that imitates the model's instructions",
        pattern: LazyLock::new(|| {
            regex(
                r"</?\s*(?:important|system|critical|instructions?|system[-_ ]?prompt|assistant|hidden)\s*>|<\|(?:im_start|im_end|system|user|assistant|endoftext)\|>|\[/?INST\]|<</?SYS>>",
            )
        }),
    },
    WordRule {
        code: "reads-secrets",
        about: "it tells the model to read or pass on secrets of this machine",
        pattern: LazyLock::new(|| {
            regex(
                r"\b(?:read|open|cat|load|send|upload|include|pass|attach|copy|fetch|get|provide|access|leak|exfiltrate)\b[^\n]{0,80}?(?:~/\.(?:ssh|aws|gnupg|kube|docker|cursor|claude|codex|netrc|config)\b|\bid_(?:rsa|ed25519|ecdsa)\b|/etc/(?:passwd|shadow)\b|\.aws/credentials\b|\bmcp\.json\b|\bclaude_desktop_config\b|\bsystem\s+prompt\b|\b(?:chat|conversation)\s+history\b|\b(?:whole|entire|full)\s+conversation\b|\ball\s+environment\s+variables\b)",
            )
        }),
    },
    WordRule {
        code: "orders-before-use",
        about: "it orders the model to do something else before a tool is used",
        pattern: LazyLock::new(|| {
            regex(
                r"\b(?:before|prior\s+to|whenever|after)\s+(?:you\s+)?(?:use|using|call|calling|invoke|invoking|running|run)\s+(?:this|any|all|every|another|other)\s+(?:other\s+)?(?:tool|function)s?\b[^.\n]{0,60}?\b(?:read|open|send|forward|upload|fetch|cat|execute|run)\b",
            )
        }),
    },
    WordRule {
        code: "demands-use",
        about: "it demands that the model always uses it",
        pattern: LazyLock::new(|| {
            regex(
                r"\balways\s+(?:call|use|invoke|run|prefer)\s+this\s+(?:tool|function)\b|\b(?:this\s+tool|this\s+function)\s+(?:must|has\s+to)\s+(?:always\s+)?be\s+(?:called|used|invoked|run)\s+(?:first|before\s+(?:any|all|every))|\b(?:do\s+not|don['’]?t|never)\s+(?:use|call|invoke)\s+(?:any\s+)?other\s+tools?\b",
            )
        }),
    },
    WordRule {
        code: "governs-other-tools",
        about: "it says how the model is to use another tool",
        pattern: LazyLock::new(|| {
            regex(
                r"\bwhen(?:ever)?\s+(?:the\s+|an?\s+)?\S{1,60}\s+tool\s+is\s+(?:called|used|invoked|available|present)\b|\b(?:change|replace|redirect|modify)\s+(?:\S+\s+){0,4}(?:recipients?|addressee|destination)\s+(?:\S+\s+){0,3}to\s+\S+@\S+",
            )
        }),
    },
    WordRule {
        code: "encoded-text",
        about: "it has a long encoded text, which a human cannot read",
        pattern: LazyLock::new(|| {
            Regex::new(&format!(r"[A-Za-z0-9+/_=-]{{{MIN_ENCODED_CHARS},}}")).expect("the pattern is valid")
        }),
    },
];

static GAP: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = format!(r"[ \t\x{{a0}}]{{{MIN_SPACES},}}|(?:[ \t\r]*\n){{{MIN_EMPTY_LINES},}}");
    Regex::new(&pattern).expect("the pattern is valid")
});

fn regex(pattern: &str) -> Regex {
    Regex::new(&format!("(?i){pattern}")).expect("the pattern is valid")
}

/// Returns what is suspicious about the words of a definition: its description, and every text of its input schema.
pub fn of_definition(description: &str, input: &Map<String, Value>) -> Vec<Suspicion> {
    let mut found = Vec::new();
    look_at("description", description, &mut found);
    look_into("input", input, false, &mut found);
    found.truncate(MAX_SUSPICIONS);
    found
}

/// Looks at every text of a schema; with `has_names`, its keys are names that the author chose.
fn look_into(place: &str, schema: &Map<String, Value>, has_names: bool, found: &mut Vec<Suspicion>) {
    for (key, value) in schema {
        if found.len() >= MAX_SUSPICIONS {
            return;
        }
        if has_names {
            look_at(place, key, found);
        } else if NO_WORDS.contains(&key.as_str()) {
            continue;
        }
        look_at_value(&format!("{place}.{key}"), value, !has_names && is_map(key), found);
    }
}

fn is_map(key: &str) -> bool {
    ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"].contains(&key)
}

fn look_at_value(place: &str, value: &Value, has_names: bool, found: &mut Vec<Suspicion>) {
    match value {
        Value::String(text) => look_at(place, text, found),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                look_at_value(&format!("{place}[{index}]"), item, false, found);
            }
        }
        Value::Object(fields) => look_into(place, fields, has_names, found),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn look_at(place: &str, text: &str, found: &mut Vec<Suspicion>) {
    let text = excerpt_of(text);
    let mut add = |code: &'static str, message: String| {
        found.push(Suspicion { place: place.to_owned(), code, message });
    };
    // Characters between the letters hide the words as well.
    let visible: String = text.chars().filter(|character| !is_joined(*character)).collect();
    for rule in &RULES {
        if let Some(words) = rule.pattern.find(&visible).filter(|words| rule.applies(words.as_str())) {
            let words = words.as_str().split_whitespace().collect::<Vec<_>>().join(" ");
            let quoted = invisible::escaped(&excerpt::chars(&words, MAX_QUOTED_CHARS));
            add(rule.code, format!("{}: `{quoted}`", rule.about));
        }
    }
    if let Some(gap) = GAP.find(text) {
        add(
            "long-gap",
            format!("a gap of {} spaces and line breaks pushes text out of sight", gap.as_str().chars().count()),
        );
    }
    let invisible = invisible(text);
    if !invisible.is_empty() {
        let mut named: Vec<_> = invisible.iter().map(|it| format!("U+{:04X}", u32::from(*it))).collect();
        named.dedup();
        named.truncate(MAX_NAMED);
        let message =
            format!("it has {} that no one sees: {}", counted(invisible.len(), "character"), named.join(", "));
        add("hidden-characters", message);
    }
}

fn excerpt_of(text: &str) -> &str {
    let mut end = text.len().min(MAX_TEXT_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

impl WordRule {
    /// Of an encoded text, whether it is one: letters of both cases and digits, as no path and no list of names has.
    fn applies(&self, words: &str) -> bool {
        let has = |class: fn(&u8) -> bool| words.as_bytes().iter().any(class);
        let is_mixed =
            has(u8::is_ascii_digit) && (has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase) || is_hex(words));
        // The public half of a key is no secret.
        let is_public = words.ends_with("id_rsa.pub");
        !is_public && (self.code != "encoded-text" || is_mixed)
    }
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Characters that join others or take no room, and stand in no ordinary text between Latin letters.
fn is_joined(character: char) -> bool {
    invisible::is_invisible(character) && !character.is_whitespace()
}

/// The hidden characters that have no use in a text: not line breaks and spaces, nor what emoji and scripts such as
/// Persian or Hindi need.
fn invisible(text: &str) -> Vec<char> {
    let mut found = Vec::new();
    let mut rest = text;
    let mut before = None;
    while let Some(range) = invisible::next(rest) {
        before = rest[..range.start].chars().next_back().or(before);
        for character in rest[range.clone()].chars() {
            let after = rest[range.end..].chars().next();
            let is_useful = match character {
                '\n' | '\r' | '\t' => true,
                // A mark for the order of bytes, at the beginning.
                '\u{feff}' => std::ptr::eq(rest.as_ptr(), text.as_ptr()) && range.start == 0,
                // Soft hyphens come with text that is copied from a page.
                '\u{ad}' => true,
                // They choose the form of the character before them, or join it to the next one.
                '\u{fe0e}' | '\u{fe0f}' | '\u{200c}' | '\u{200d}' => {
                    let is_other =
                        |it: Option<char>| it.is_some_and(|it| !it.is_ascii() || "0123456789#*".contains(it));
                    is_other(before) && (character >= '\u{fe00}' || after.is_none_or(|it| !it.is_ascii_alphanumeric()))
                }
                other => {
                    other.is_whitespace() && !matches!(other, '\u{2028}' | '\u{2029}' | '\u{b}' | '\u{c}' | '\u{85}')
                }
            };
            if !is_useful {
                found.push(character);
            }
        }
        rest = &rest[range.end..];
    }
    found
}

#[cfg(test)]
mod tests;
