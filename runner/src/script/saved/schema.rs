//! The schema of an input like the one that a script had.

use script::ScriptConstant;
use serde_json::{Map, Value, json};

/// The schema of an object like `required`, in which each constant may be another one.
pub(super) fn schema(required: &Map<String, Value>, constants: &[ScriptConstant]) -> Value {
    let mut properties = Map::new();
    for (name, value) in required {
        properties.insert(name.clone(), property(name, value));
    }
    for ScriptConstant { name, value, .. } in constants {
        let mut property = property(name, value);
        property["default"] = value.clone();
        properties.insert(name.clone(), property);
    }
    let mut schema = json!({"type": "object", "properties": properties, "additionalProperties": false});
    if !required.is_empty() {
        schema["required"] = required.keys().cloned().collect();
    }
    schema
}

/// The schema of a value like this one.
fn property(name: &str, value: &Value) -> Value {
    let mut property = kind(value);
    property["description"] = format!("{}, like {}.", words(name), shown(value)).into();
    property
}

fn kind(value: &Value) -> Value {
    match value {
        Value::Null => json!({}),
        Value::Bool(_) => json!({"type": "boolean"}),
        // `100` may be a limit of 99.5 later.
        Value::Number(_) => json!({"type": "number"}),
        Value::String(_) => json!({"type": "string"}),
        Value::Array(items) => {
            let mut kinds = items.iter().map(kind);
            let first = kinds.next().unwrap_or_else(|| json!({}));
            json!({"type": "array", "items": if kinds.all(|kind| kind == first) { first } else { json!({}) }})
        }
        Value::Object(_) => json!({"type": "object"}),
    }
}

/// A value in a description.
fn shown(value: &Value) -> String {
    const MAX_CHARS: usize = 60;
    let text = value.to_string();
    if text.chars().count() <= MAX_CHARS { text } else { text.chars().take(MAX_CHARS).chain(['…']).collect() }
}

/// `maxDays` as `Max days`.
fn words(name: &str) -> String {
    let mut words = String::with_capacity(name.len() + 4);
    for letter in name.chars() {
        match letter {
            '_' | '-' | '$' => words.push(' '),
            upper if upper.is_ascii_uppercase() && words.ends_with(|before: char| before.is_ascii_lowercase()) => {
                words.extend([' ', upper.to_ascii_lowercase()]);
            }
            letter if words.is_empty() => words.extend(letter.to_uppercase()),
            letter => words.push(letter),
        }
    }
    words.trim().to_owned()
}

/// Whether a schema has a default for something else than one of its properties.
pub(super) fn has_hidden_default(schema: &Map<String, Value>) -> bool {
    schema.iter().any(|(key, value)| match (key.as_str(), value) {
        ("default", _) => true,
        ("properties", Value::Object(properties)) => properties.values().any(|property| has_default(property, true)),
        _ => has_default_below(key, value),
    })
}

fn has_default(schema: &Value, is_input: bool) -> bool {
    let Some(fields) = schema.as_object() else { return false };
    fields.iter().any(|(key, value)| if key == "default" { !is_input } else { has_default_below(key, value) })
}

fn has_default_below(key: &str, value: &Value) -> bool {
    match (key, value) {
        ("const" | "enum" | "examples" | "example", _) => false,
        // Their keys are names.
        ("properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas", Value::Object(schemas)) => {
            schemas.values().any(|schema| has_default(schema, false))
        }
        (_, Value::Array(schemas)) => schemas.iter().any(|schema| has_default(schema, false)),
        _ => has_default(value, false),
    }
}

#[cfg(test)]
mod tests {
    use script::constants;

    use super::*;

    #[test]
    fn the_schema_says_what_an_input_is_like() {
        let before = json!({"city": "Köln", "ids": [1, 2.5]});
        let constants = constants("const maxDays = 30;\nconst rate = 0.5;");
        let found = schema(before.as_object().expect("an object"), &constants);
        let expected = json!({
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "City, like \"Köln\"."},
                "ids": {"type": "array", "items": {"type": "number"}, "description": "Ids, like [1,2.5]."},
                "maxDays": {"type": "number", "description": "Max days, like 30.", "default": 30},
                "rate": {"type": "number", "description": "Rate, like 0.5.", "default": 0.5}
            },
            "additionalProperties": false,
            "required": ["city", "ids"]
        });
        assert_eq!(found, expected);
    }

    #[test]
    fn only_an_input_has_a_default() {
        let input = json!({"type": "number", "default": 3});
        for (schema, is_hidden) in [
            (json!({"properties": {"a": input}}), false),
            (
                json!({"properties": {"default": {"type": "object", "properties": {"default": {}}, "examples": [{"default": 1}]}}}),
                false,
            ),
            (json!({"default": {}}), true),
            (json!({"properties": {"a": {"properties": {"b": input}}}}), true),
            (json!({"properties": {"a": {"items": input}}}), true),
            (json!({"properties": {"a": {"anyOf": [input]}}}), true),
            (json!({"allOf": [{"properties": {"a": input}}]}), true),
            (json!({"$defs": {"a": input}}), true),
            (json!({"patternProperties": {"^a": input}}), true),
        ] {
            assert_eq!(has_hidden_default(schema.as_object().expect("an object")), is_hidden, "{schema}");
        }
    }
}
