//! The values that a caller gives to a statement. What a database answers is JSON from the start: `database/rows.rs`.
//!
//! A value is bound, never joined into the text of a statement. Numbers that a JSON number cannot hold exactly are given
//! as text, like `"12345678901234567890.123"`: each database reads such a text as the type that stands in its place.

use base64::Engine as _;
use serde_json::{Value as Json, json};

/// A value of a parameter.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Null,
    Boolean(bool),
    Integer(i64),
    /// An integer above `i64::MAX`.
    Unsigned(u64),
    Float(f64),
    /// Text, and everything that has no type of its own in JSON: decimals, dates, UUIDs.
    Text(String),
    Bytes(Vec<u8>),
    /// An array for PostgreSQL's array types; elsewhere the JSON text of it.
    List(Vec<Self>),
    /// A JSON document, as its text.
    Document(Json),
}

impl From<&Json> for Value {
    fn from(json: &Json) -> Self {
        match json {
            Json::Null => Self::Null,
            Json::Bool(value) => Self::Boolean(*value),
            Json::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(integer), _) => Self::Integer(integer),
                (None, Some(unsigned)) => Self::Unsigned(unsigned),
                (None, None) => number.as_f64().map_or_else(|| Self::Text(number.to_string()), Self::Float),
            },
            Json::String(text) => Self::Text(text.clone()),
            Json::Array(items) => Self::List(items.iter().map(Self::from).collect()),
            Json::Object(_) => Self::Document(json.clone()),
        }
    }
}

impl Value {
    /// Returns the value as JSON; bytes as [`bytes_to_json`] writes them.
    pub fn to_json(&self) -> Json {
        match self {
            Self::Null => Json::Null,
            Self::Boolean(value) => Json::Bool(*value),
            Self::Integer(integer) => Json::from(*integer),
            Self::Unsigned(unsigned) => Json::from(*unsigned),
            Self::Float(float) => Json::from(*float),
            Self::Text(text) => Json::String(text.clone()),
            Self::Bytes(bytes) => bytes_to_json(bytes),
            Self::List(items) => Json::Array(items.iter().map(Self::to_json).collect()),
            Self::Document(json) => json.clone(),
        }
    }
}

/// Returns bytes as JSON: as text if they are UTF-8 without control characters, else as an object.
pub fn bytes_to_json(bytes: &[u8]) -> Json {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(|c| c.is_control() && !matches!(c, '\t' | '\n' | '\r')) => Json::from(text),
        _ => json!({ "base64": base64::engine::general_purpose::STANDARD.encode(bytes) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_json_value_keeps_its_type_and_its_digits() {
        let values: Vec<Value> = [
            json!(null),
            json!(true),
            json!(9_007_199_254_740_993_i64),
            json!(u64::MAX),
            json!(0.1),
            json!(""),
            json!("12345678901234567890.123"),
            json!([1, null, "a"]),
            json!({"a": [1]}),
        ]
        .iter()
        .map(Value::from)
        .collect();
        let expected = vec![
            Value::Null,
            Value::Boolean(true),
            Value::Integer(9_007_199_254_740_993),
            Value::Unsigned(u64::MAX),
            Value::Float(0.1),
            Value::Text(String::new()),
            Value::Text("12345678901234567890.123".to_owned()),
            Value::List(vec![Value::Integer(1), Value::Null, Value::Text("a".to_owned())]),
            Value::Document(json!({"a": [1]})),
        ];
        assert_eq!(values, expected);
    }

    #[test]
    fn bytes_that_cannot_be_read_are_encoded() {
        assert_eq!(bytes_to_json("grüß".as_bytes()), json!("grüß"));
        assert_eq!(bytes_to_json(&[0xff, 0x00]), json!({"base64": "/wA="}));
        assert_eq!(bytes_to_json(b"a\0"), json!({"base64": "YQA="}));
    }
}
