//! Required fields with a default: optional, and the default is sent.
//!
//! A service that demands a field and names its default accepts what it would set itself. So the executor fills it in,
//! and a caller may leave the field out. The default of a field that is optional anyway becomes words, elsewhere.

use serde_json::{Map, Value};

use protocol::json::{is_type, named_types};

/// Writes the default that `field`, or what it refers to, declares into `cleaned`, and returns whether there is one.
pub(crate) fn keep(resolved: Option<&Value>, field: &Value, cleaned: &mut Map<String, Value>) -> bool {
    let default = field.get("default").or_else(|| resolved?.get("default"));
    let Some(default) = default.and_then(|default| usable(default, cleaned)) else { return false };
    cleaned.insert("default".to_owned(), default);
    true
}

/// The default, as a value that `schema` accepts.
pub(crate) fn usable(default: &Value, schema: &Map<String, Value>) -> Option<Value> {
    let kinds = named_types(schema.get("type"));
    let fits = |value: &Value| kinds.is_empty() || kinds.iter().any(|kind| is_type(kind, value));
    let value = match default {
        // Some descriptions write every default as text.
        Value::String(text) if !fits(default) => serde_json::from_str(text).ok().filter(Value::is_i64)?,
        Value::Null if kinds.is_empty() => null_of(schema)?,
        value => value.clone(),
    };
    let is_choice = schema.get("enum").and_then(Value::as_array).is_none_or(|choices| choices.contains(&value));
    let is_constant = schema.get("const").is_none_or(|only| *only == value);
    (fits(&value) && is_choice && is_constant).then_some(value)
}

/// `null`, if one of the alternatives is.
fn null_of(schema: &Map<String, Value>) -> Option<Value> {
    let alternatives = ["anyOf", "oneOf"].iter().filter_map(|key| schema.get(*key)?.as_array()).flatten();
    alternatives.into_iter().any(|alternative| alternative["type"] == "null").then_some(Value::Null)
}
