//! JSON from outside, read strictly.
//!
//! What `serde_json` would silently change is refused instead: a key that stands twice (it keeps
//! the last) and a whole number beyond what it holds exactly (it would become a float). What is
//! accepted here means the same to every reader after us.

use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// `serde_json`'s own limit is 128; a person's data is far below.
const DEEPEST: usize = 64;
/// From here on neighbouring whole numbers share one float (2^53).
const FIRST_INEXACT: f64 = 9_007_199_254_740_992.0;

/// Why a text is refused, and where.
#[derive(Debug, thiserror::Error)]
#[error("{message} at line {line} column {column}")]
pub struct JsonError {
    pub message: String,
    pub line: usize,
    pub column: usize,
}

/// How much a text may hold before it is refused.
#[derive(Debug, Clone, Copy)]
pub struct JsonLimits {
    most_keys: usize,
}

impl JsonLimits {
    /// What a caller sends: more keys than any input needs, fewer than hurt.
    pub const INPUT: Self = Self { most_keys: 10_000 };
    /// A file of definitions, whose size the loader limits: about what its 16 MiB can hold if they
    /// say anything.
    pub const DEFINITIONS: Self = Self { most_keys: 1_000_000 };
}

/// Reads one JSON value that fills the whole of `bytes`, an input.
pub fn parse(bytes: &[u8]) -> Result<Value, JsonError> {
    parse_within(bytes, JsonLimits::INPUT)
}

/// [`parse`], with other limits.
pub fn parse_within(bytes: &[u8], limits: JsonLimits) -> Result<Value, JsonError> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let mut keys = 0;
    StrictReader { depth: 0, keys: &mut keys, limits }
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value))
        .map_err(|error| JsonError {
            message: without_place(&error.to_string()),
            line: error.line(),
            column: error.column(),
        })
}

/// Escapes a name for use as one reference token of a JSON Pointer (RFC 6901).
pub fn pointer_token(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// `serde_json` ends its messages with the place, which we tell ourselves.
fn without_place(message: &str) -> String {
    message.rsplit_once(" at line ").map_or(message, |(message, _)| message).to_owned()
}

struct StrictReader<'a> {
    depth: usize,
    keys: &'a mut usize,
    limits: JsonLimits,
}

impl StrictReader<'_> {
    fn deeper<E: de::Error>(&mut self) -> Result<StrictReader<'_>, E> {
        if self.depth == DEEPEST {
            return Err(E::custom(format!("nested deeper than {DEEPEST} levels")));
        }
        Ok(StrictReader { depth: self.depth + 1, keys: self.keys, limits: self.limits })
    }
}

impl<'de> DeserializeSeed<'de> for StrictReader<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for StrictReader<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        if value.abs() >= FIRST_INEXACT {
            return Err(E::custom("a number too large to be kept exactly; write it as a string"));
        }
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number that is not finite"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(self.deeper()?)? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut fields: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = fields.next_key::<String>()? {
            *self.keys += 1;
            let most = self.limits.most_keys;
            if *self.keys > most {
                return Err(de::Error::custom(format!("more than {most} keys")));
            }
            if object.contains_key(&key) {
                return Err(de::Error::custom(format!("the key `{key}` stands twice")));
            }
            let value = fields.next_value_seed(self.deeper()?)?;
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn refused(text: &str) -> String {
        parse(text.as_bytes()).expect_err(text).to_string()
    }

    #[test]
    fn whole_numbers_are_kept_exactly_or_refused() {
        for text in ["9007199254740993", "18446744073709551615", "-9223372036854775808", "1.0", "0.1", "1e3"] {
            let value = parse(text.as_bytes()).expect(text);
            assert_eq!(parse(value.to_string().as_bytes()).expect("its own text"), value);
        }
        assert_eq!(parse(b"9007199254740993").expect("exact").to_string(), "9007199254740993");
        assert!(refused("18446744073709551616").contains("too large to be kept exactly"));
    }

    #[test]
    fn a_key_that_stands_twice_is_refused_with_its_place() {
        assert_eq!(refused("{\"a\": 1,\n \"a\": 2}"), "the key `a` stands twice at line 2 column 4");
    }

    #[test]
    fn bombs_are_refused() {
        assert!(refused(&"[".repeat(100_000)).contains("deeper than 64"));
        let keys: Vec<_> = (0..20_000).map(|key| format!("\"{key}\":0")).collect();
        let many = format!("{{{}}}", keys.join(","));
        assert!(refused(&many).contains("more than 10000 keys"));
        assert!(parse_within(many.as_bytes(), JsonLimits::DEFINITIONS).is_ok());
        assert!(refused("{} {}").contains("trailing"));
    }

    proptest! {
        #[test]
        fn it_agrees_with_serde_json_wherever_it_accepts(text in "[\\[\\]{}:,\"a-c0-9.e \\-]{0,40}") {
            if let Ok(value) = parse(text.as_bytes()) {
                let other: Value = serde_json::from_str(&text).expect("ours is the stricter one");
                prop_assert_eq!(value, other);
            }
        }
    }
}
