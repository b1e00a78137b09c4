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
}
