//! The input of a hit in one line: what must be given, and what may be, as `(owner, repo, title, body?, labels?: string[])`.
//!
//! A parameter without a type is a text. It is a hint for who chooses among hits, and often enough for a call; the schema
//! says the rest.

use serde_json::{Map, Value};

use super::parameters::Parameters;

/// What may be given is named up to here.
const MAX_CHARS: usize = 90;
/// Longer lists of choices are not shown.
const MAX_CHARS_OF_CHOICES: usize = 30;
/// How many parts of an object are named.
const MAX_PARTS: usize = 4;

/// The signature of this input, for a search for `query`.
pub(super) fn signature(input: &Value, query: &str) -> String {
    let parameters = Parameters::of(input);
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
    text
}

/// What a parameter takes, unless that is a text or anything.
fn kind(schema: &Value) -> Option<String> {
    if let Some(choices) = schema["enum"].as_array() {
        let choices: Vec<_> =
            choices.iter().map(|choice| choice.as_str().map_or_else(|| choice.to_string(), str::to_owned)).collect();
        return Some(choices.join("|")).filter(|choices| choices.len() <= MAX_CHARS_OF_CHOICES);
    }
    match schema["type"].as_str()? {
        "integer" | "number" => Some("number".to_owned()),
        "boolean" => Some("boolean".to_owned()),
        "array" => Some(format!("{}[]", kind(&schema["items"]).unwrap_or_else(|| "string".to_owned()))),
        "object" => Some(schema["properties"].as_object().and_then(parts).unwrap_or_else(|| "object".to_owned())),
        _ => None,
    }
}

/// The names of the parts of an object, if they are few.
fn parts(properties: &Map<String, Value>) -> Option<String> {
    let names: Vec<_> = properties.keys().map(String::as_str).collect();
    (1..=MAX_PARTS).contains(&names.len()).then(|| format!("{{{}}}", names.join(", ")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_must_be_given_comes_first_and_what_is_asked_for_next() {
        let text = || json!({"type": "string"});
        let input = json!({"required": ["repo"], "properties": {
            "page": {"type": "integer"}, "state": {"enum": ["open", "closed"]}, "repo": text(), "labels": {"type": "array", "items": text()},
            "start": {"type": "object", "properties": {"date": {}, "zone": {}}}, "more": {"type": "object"},
        }});
        assert_eq!(
            signature(&input, "issues with labels"),
            "(repo, labels?: string[], start?: {date, zone}, page?: number, state?: open|closed, …)"
        );
        assert_eq!(signature(&json!({"type": "object"}), ""), "()");
    }

    #[test]
    fn of_many_only_those_that_must_be_given_are_all_named() {
        let names: Vec<_> = (0..40).map(|number| format!("field_{number}")).collect();
        let properties: Map<String, Value> = names.iter().map(|name| (name.clone(), json!({}))).collect();
        let optional = signature(&json!({ "properties": properties }), "");
        assert!(optional.len() < 110 && optional.ends_with(", …)"), "{optional}");
        let required = signature(&json!({ "properties": properties, "required": names }), "");
        assert!(required.contains("field_39") && !required.contains('…'), "{required}");
    }
}
