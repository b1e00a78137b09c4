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
/// How many parts of an object are named, those that must be given aside.
const MAX_PARTS: usize = 4;
/// Longer lists of parts are not shown.
const MAX_CHARS_OF_PARTS: usize = 80;

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
pub(super) fn kind(schema: &Value) -> Option<String> {
    if let Some(choices) = schema["enum"].as_array() {
        let choices: Vec<_> =
            choices.iter().map(|choice| choice.as_str().map_or_else(|| choice.to_string(), str::to_owned)).collect();
        let short = Some(choices.join("|")).filter(|choices| choices.len() <= MAX_CHARS_OF_CHOICES);
        return Some(short.unwrap_or_else(|| "enum".to_owned()));
    }
    let mut kinds = json::allowed_types(schema, &Value::Null);
    kinds.retain(|kind| *kind != "null");
    kinds.dedup();
    match kinds[..] {
        ["string"] => None,
        ["integer" | "number"] => Some("number".to_owned()),
        ["array"] if schema["items"].is_object() => {
            Some(format!("{}[]", kind(&schema["items"]).unwrap_or_else(|| "string".to_owned())))
        }
        ["object"] => Some(parts(schema).unwrap_or_else(|| "object".to_owned())),
        [one] => Some(one.to_owned()),
        _ => Some("any".to_owned()),
    }
}

/// The parts of an object, unless that takes too long: those that must be given, and a few others.
fn parts(schema: &Value) -> Option<String> {
    let all = Parameters::of(schema).by_weight("");
    let required = all.iter().filter(|(_, _, is_required)| *is_required).count();
    let shown = all.iter().take(required.max(MAX_PARTS)).map(|(name, part, is_required)| {
        let optional = if *is_required { "" } else { "?" };
        let kind = match part["type"].as_str() {
            // Not the parts of parts.
            Some("object") => Some("object".to_owned()),
            _ => kind(part),
        };
        format!("{name}{optional}{}", kind.map(|kind| format!(": {kind}")).unwrap_or_default())
    });
    let mut shown: Vec<_> = shown.collect();
    if shown.len() < all.len() {
        shown.push("…".to_owned());
    }
    let text = format!("{{{}}}", shown.join(", "));
    Some(text).filter(|text| !all.is_empty() && text.chars().count() <= MAX_CHARS_OF_PARTS)
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
            Some("(repo, state?: open|closed, labels?: string[], start?: {date?, zone?}, page?: number, …)")
        );
        assert_eq!(signature(&json!({"type": "object"}), "").as_deref(), Some("()"));
    }

    #[test]
    fn what_a_line_cannot_say_has_none() {
        for (property, expected) in [
            (json!({"type": ["integer", "null"]}), Some("(a?: number)")),
            (json!({"anyOf": [{"type": "integer"}, {"type": "null"}]}), Some("(a?: number)")),
            (json!({"anyOf": [{"type": "integer"}, {"type": "string"}]}), Some("(a?: any)")),
            (json!({"$ref": "#/$defs/x"}), Some("(a?: any)")),
            (json!({"type": "array", "items": {"$ref": "#/$defs/x"}}), Some("(a?: any[])")),
            (json!({"type": "array"}), Some("(a?: array)")),
            (json!({"type": "object", "properties": {"m": {"type": "integer"}}}), Some("(a?: {m?: number})")),
            (
                json!({"type": "object", "properties": {"x": {"type": "object", "properties": {"y": {"type": "string"}}}}}),
                Some("(a?: {x?: object})"),
            ),
            (json!({"type": "object"}), Some("(a?: object)")),
            (
                json!({"type": "object", "required": ["f"], "properties": {
                    "a": {"type": "string"}, "b": {"type": "string"}, "c": {"type": "string"}, "d": {"type": "string"},
                    "f": {"type": "boolean"}}}),
                Some("(a?: {f: boolean, a?, b?, c?, …})"),
            ),
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
