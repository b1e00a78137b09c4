//! The input of a hit in one line: what must be given, and what may be, as `(owner, repo, title, body?, labels?: string[])`.
//!
//! A parameter without a type is a text. It is a hint for who chooses among hits, and often enough for a call; the schema
//! says the rest.

use protocol::json;
use serde_json::Value;

use super::parameters::Parameters;

/// What may be given is named up to here.
const MAX_CHARS: usize = 90;
/// One that is longer says too much.
const MAX_BYTES: usize = 400;
/// Longer lists of choices are not shown.
const MAX_CHARS_OF_CHOICES: usize = 30;
/// How many parts of an object are named.
const MAX_PARTS: usize = 4;

/// Keywords by which more may have to be given than the properties say.
const COMPOSING: [&str; 11] = [
    "$ref",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "dependentRequired",
    "dependentSchemas",
    "minProperties",
    "patternProperties",
    "propertyNames",
];

/// The signature of this input, for a search for `query`; `None` if a line cannot say what must be given.
pub(super) fn signature(input: &Value, query: &str) -> Option<String> {
    let parameters = Parameters::of(input);
    if COMPOSING.iter().any(|keyword| input.get(keyword).is_some()) || !parameters.has_all_required() {
        return None;
    }
    let mut text = String::from("(");
    for (name, schema, is_required) in parameters.by_weight(query) {
        let optional = if is_required { "" } else { "?" };
        let kind = kind(schema).map(|kind| format!(": {kind}")).unwrap_or_default();
        let between = if text.len() > 1 { ", " } else { "" };
        let written = format!("{between}{name}{optional}{kind}");
        if !is_required && text.len() + written.len() > MAX_CHARS {
            text.push_str(between);
            text.push('…');
            break;
        }
        text.push_str(&written);
    }
    text.push(')');
    Some(text).filter(|text| text.len() <= MAX_BYTES)
}

/// What a parameter takes, unless that is a text.
fn kind(schema: &Value) -> Option<String> {
    if let Some(choices) = schema["enum"].as_array() {
        let choices: Vec<_> =
            choices.iter().map(|choice| choice.as_str().map_or_else(|| choice.to_string(), str::to_owned)).collect();
        let short = Some(choices.join("|")).filter(|choices| choices.len() <= MAX_CHARS_OF_CHOICES);
        return Some(short.unwrap_or_else(|| "enum".to_owned()));
    }
    let mut kinds = json::named_types(schema.get("type"));
    kinds.retain(|kind| *kind != "null");
    match kinds[..] {
        ["string"] => None,
        ["integer" | "number"] => Some("number".to_owned()),
        ["array"] if schema["items"].is_object() => {
            Some(format!("{}[]", kind(&schema["items"]).unwrap_or_else(|| "string".to_owned())))
        }
        ["object"] => Some(texts(schema).unwrap_or_else(|| "object".to_owned())),
        [one] => Some(one.to_owned()),
        _ => Some("any".to_owned()),
    }
}

/// The names of the parts of an object, if they are few and texts.
fn texts(schema: &Value) -> Option<String> {
    let parts = Parameters::of(schema).by_weight("");
    let are_texts = parts.iter().all(|(_, part, _)| kind(part).is_none());
    let names = parts.iter().map(|(name, _, is_required)| format!("{name}{}", if *is_required { "" } else { "?" }));
    (are_texts && (1..=MAX_PARTS).contains(&parts.len()))
        .then(|| format!("{{{}}}", names.collect::<Vec<_>>().join(", ")))
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;

    #[test]
    fn what_must_be_given_comes_first_and_what_is_asked_for_next() {
        let text = || json!({"type": "string"});
        let input = json!({"required": ["repo"], "properties": {
            "page": {"type": "integer"}, "state": {"enum": ["open", "closed"]}, "repo": text(), "labels": {"type": "array", "items": text()},
            "start": {"type": "object", "properties": {"date": text(), "zone": text()}}, "more": {"type": "object"},
        }});
        assert_eq!(
            signature(&input, "issues with labels").as_deref(),
            Some("(repo, labels?: string[], start?: {date?, zone?}, page?: number, state?: open|closed, …)")
        );
        assert_eq!(signature(&json!({"type": "object"}), "").as_deref(), Some("()"));
    }

    #[test]
    fn what_a_line_cannot_say_has_none() {
        for (property, expected) in [
            (json!({"type": ["integer", "null"]}), Some("(a?: number)")),
            (json!({"anyOf": [{"type": "integer"}, {"type": "null"}]}), Some("(a?: any)")),
            (json!({"$ref": "#/$defs/x"}), Some("(a?: any)")),
            (json!({"type": "array", "items": {"$ref": "#/$defs/x"}}), Some("(a?: any[])")),
            (json!({"type": "array"}), Some("(a?: array)")),
            (json!({"type": "object", "properties": {"m": {"type": "integer"}}}), Some("(a?: object)")),
            (json!({"enum": ["x".repeat(40)]}), Some("(a?: enum)")),
        ] {
            assert_eq!(signature(&json!({"properties": {"a": property}}), "").as_deref(), expected, "{property}");
        }
        for input in [
            json!({"properties": {"a": {}}, "required": ["b"]}),
            json!({"properties": {"a": {}}, "anyOf": [{"required": ["a"]}]}),
            json!({"$ref": "#/$defs/x"}),
            json!({"properties": {"a": {}, "b": {}}, "dependentRequired": {"a": ["b"]}}),
        ] {
            assert_eq!(signature(&input, ""), None, "{input}");
        }
    }

    #[test]
    fn of_many_only_those_that_must_be_given_are_all_named() {
        let names: Vec<_> = (0..30).map(|number| format!("field_{number}")).collect();
        let properties: Map<String, Value> =
            names.iter().map(|name| (name.clone(), json!({"type": "string"}))).collect();
        let optional = signature(&json!({ "properties": properties }), "").expect("a signature");
        assert!(optional.len() < 110 && optional.ends_with(", …)"), "{optional}");
        let required = signature(&json!({ "properties": properties, "required": names }), "").expect("a signature");
        assert!(required.contains("field_29") && !required.contains('…'), "{required}");
    }
}
