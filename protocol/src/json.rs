//! Strict parsing of JSON from outside.
//!
//! Refuses what `serde_json` would silently change: duplicate keys (it keeps the last one), integers that it cannot
//! represent exactly (it turns them into floats), and digits that a float does not keep. JSON that is accepted here means the same to
//! every other parser.

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value};

use crate::decimal::Decimal;

/// The deepest nesting; real data is far below. The limit of `serde_json` is 128.
const MAX_DEPTH: usize = 64;
/// From 2^53 on, floats no longer represent every integer exactly.
const FIRST_INEXACT: f64 = 9_007_199_254_740_992.0;
/// Every float is written with at most this many digits.
const MAX_KEPT_DIGITS: usize = 17;

/// Why a text is refused, and at which position.
#[derive(Debug, thiserror::Error)]
#[error("{message} at line {line} column {column}")]
pub struct JsonError {
    pub message: String,
    pub line: usize,
    pub column: usize,
}

impl JsonError {
    fn of(error: &serde_json::Error, bytes: &[u8]) -> Self {
        let message = in_plain_words(without_position(&error.to_string()), bytes);
        Self { message, line: error.line(), column: error.column() }
    }

    /// The error of a number that begins after `before`.
    fn of_rounded(before: &[u8]) -> Self {
        let message =
            "the number has more digits than can be kept exactly; round it, or write it as a string".to_owned();
        Self { message, line: 1, column: 1 }.after(before)
    }

    /// The same error in a text that begins with `before`.
    #[must_use]
    pub fn after(self, before: &[u8]) -> Self {
        let last = before.split(|byte| *byte == b'\n').next_back().map_or(0, <[u8]>::len);
        let lines = before.split(|byte| *byte == b'\n').count() - 1;
        Self { line: self.line + lines, column: self.column + if self.line == 1 { last } else { 0 }, ..self }
    }
}

/// Limits on the content of a JSON text.
#[derive(Debug, Clone, Copy)]
pub struct JsonLimits {
    max_keys: usize,
    /// Whether a number with digits that are not kept is refused.
    is_exact: bool,
}

impl JsonLimits {
    /// For what callers send: more keys than any real input has.
    pub const INPUT: Self = Self { max_keys: 10_000, is_exact: true };
    /// For a file of definitions: about as many keys as a file of 16 MiB, the loader's limit, has in practice.
    pub const DEFINITIONS: Self = Self { max_keys: 1_000_000, is_exact: false };
}

/// Parses `bytes` as exactly one JSON value, with the limits for what callers send.
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
        .map_err(|error| JsonError::of(&error, bytes))
        .and_then(|value| match rounded_number(bytes).filter(|_| limits.is_exact) {
            Some(at) => Err(JsonError::of_rounded(&bytes[..at])),
            None => Ok(value),
        })
}

/// Parses what a service answered, which cannot be refused: a number that would not be kept exactly becomes a text.
pub fn parse_answer(text: &str) -> serde_json::Result<Value> {
    let bytes = text.as_bytes();
    let is_inexact = |number: &Range<usize>| is_rounded(&bytes[number.clone()]) || is_too_large(&text[number.clone()]);
    let (mut exact, mut copied) = (String::new(), 0);
    for number in long_numbers(bytes).filter(is_inexact) {
        exact.push_str(&text[copied..number.start]);
        exact.push('"');
        exact.push_str(&text[number.clone()]);
        exact.push('"');
        copied = number.end;
    }
    if copied == 0 {
        return serde_json::from_str(text);
    }
    exact.push_str(&text[copied..]);
    // Texts that are no JSON are told of as they came.
    serde_json::from_str(&exact).or_else(|_| serde_json::from_str(text))
}

/// Whether an integer is kept as a float only.
fn is_too_large(number: &str) -> bool {
    !number.contains(['.', 'e', 'E']) && number.parse::<i64>().is_err() && number.parse::<u64>().is_err()
}

/// Finds the first number in a JSON text with digits that a float does not keep.
fn rounded_number(bytes: &[u8]) -> Option<usize> {
    long_numbers(bytes).find(|number| is_rounded(&bytes[number.clone()])).map(|number| number.start)
}

/// The numbers of a JSON text with more characters than every float keeps.
fn long_numbers(bytes: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    std::iter::from_fn(move || next_long_number(bytes, &mut at))
}

fn next_long_number(bytes: &[u8], at: &mut usize) -> Option<Range<usize>> {
    let is_part = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'+' | b'-' | b'.' | b'e' | b'E');
    while let Some(byte) = bytes.get(*at) {
        match byte {
            b'"' => {
                *at += 1;
                while bytes.get(*at).is_some_and(|byte| *byte != b'"') {
                    *at += if bytes[*at] == b'\\' { 2 } else { 1 };
                }
                *at += 1;
            }
            b'0'..=b'9' | b'-' => {
                let start = *at;
                *at += bytes[start..].iter().take_while(|byte| is_part(byte)).count();
                if *at - start > MAX_KEPT_DIGITS {
                    return Some(start..*at);
                }
            }
            _ => *at += 1,
        }
    }
    None
}

fn is_rounded(text: &[u8]) -> bool {
    // Other numbers than floats are kept or refused as they are read.
    let text = std::str::from_utf8(text).ok().filter(|text| text.contains(['.', 'e', 'E']));
    let Some(written) = text.and_then(Decimal::parse).filter(|written| written.digits() > MAX_KEPT_DIGITS) else {
        return false;
    };
    let kept = text.and_then(|text| text.parse::<f64>().ok()).and_then(|kept| Decimal::parse(&format!("{kept:e}")));
    kept != Some(written)
}

/// A member of a JSON object whose value was only skipped.
#[derive(Debug)]
pub struct RawMember<'a> {
    pub key: String,
    /// The JSON text of the value. It is well-formed; [`parse_within`] finds whatever else is wrong with it.
    pub text: &'a str,
    /// The offset of `text`.
    pub start: usize,
}

/// Splits a text that is exactly one JSON object into its members, in their order; `None` if it is another value.
///
/// Many times as fast as parsing, because no value is built. The keys of the object itself are distinct.
pub fn members(bytes: &[u8]) -> Result<Option<Vec<RawMember<'_>>>, JsonError> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let split = deserializer.deserialize_map(MemberReader(bytes)).and_then(|found| deserializer.end().map(|()| found));
    let error = match split {
        Ok(found) => return Ok(Some(found)),
        Err(error) => error,
    };
    // The strict parser says best what is wrong.
    match parse_within(bytes, JsonLimits::DEFINITIONS)? {
        Value::Object(_) => Err(JsonError::of(&error, bytes)),
        _ => Ok(None),
    }
}

struct MemberReader<'de>(&'de [u8]);

impl<'de> Visitor<'de> for MemberReader<'de> {
    type Value = Vec<RawMember<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Value, A::Error> {
        let (mut members, mut keys) = (Vec::new(), HashSet::new());
        while let Some(key) = fields.next_key::<String>()? {
            if !keys.insert(key.clone()) {
                return Err(de::Error::custom(format!("duplicate key `{key}`")));
            }
            let text = fields.next_value::<&RawValue>()?.get();
            let start = text.as_ptr().addr() - self.0.as_ptr().addr();
            members.push(RawMember { key, text, start });
        }
        Ok(members)
    }
}

/// Escapes a name for use as one reference token of a JSON Pointer (RFC 6901).
pub fn pointer_token(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// Removes the position at the end of a message of `serde_json`; [`JsonError`] reports it separately.
fn without_position(message: &str) -> &str {
    message.rsplit_once(" at line ").map_or(message, |(message, _)| message)
}

/// Says in plain words what `serde_json` says in those of a parser.
fn in_plain_words(message: &str, bytes: &[u8]) -> String {
    let plain = match message {
        _ if bytes.iter().all(u8::is_ascii_whitespace) => "it is empty",
        "EOF while parsing a value" => "it ends where a value is expected",
        "EOF while parsing an object" => "it ends before an object is closed with `}`",
        "EOF while parsing a list" => "it ends before a list is closed with `]`",
        "EOF while parsing a string" => "it ends inside a text: the closing quote is missing",
        "expected value" => "there is no JSON value here; texts are in double quotes",
        "expected ident" => "there is a word that is not JSON; texts are in double quotes",
        "key must be a string" => "a key is not in double quotes",
        "trailing characters" => "something follows after the end of the JSON",
        "trailing comma" => "a comma is followed by nothing",
        "control character (\\u0000-\\u001F) found while parsing a string" => {
            "a text contains a line break or another control character; write \\n for a line break"
        }
        "invalid escape" => "a backslash in a text is followed by the wrong character; write \\\\ for a backslash",
        other => other,
    };
    plain.to_owned()
}

struct StrictReader<'a> {
    depth: usize,
    keys: &'a mut usize,
    limits: JsonLimits,
}

impl StrictReader<'_> {
    fn nested<E: de::Error>(&mut self) -> Result<StrictReader<'_>, E> {
        if self.depth == MAX_DEPTH {
            return Err(E::custom(format!("nested deeper than {MAX_DEPTH} levels")));
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
            return Err(E::custom("the number is too large to be represented exactly; write it as a string"));
        }
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("the number is not finite"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(self.nested()?)? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut fields: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = fields.next_key::<String>()? {
            *self.keys += 1;
            let max_keys = self.limits.max_keys;
            if *self.keys > max_keys {
                return Err(de::Error::custom(format!("more than {max_keys} keys")));
            }
            if object.contains_key(&key) {
                return Err(de::Error::custom(format!("duplicate key `{key}`")));
            }
            let value = fields.next_value_seed(self.nested()?)?;
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

/// The names in `type` of a schema, which is one name or a list of them; none if it is absent.
pub fn named_types(kind: Option<&Value>) -> Vec<&str> {
    match kind {
        Some(Value::String(name)) => vec![name],
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// How many references are followed to the types that a schema allows.
const MAX_REFERENCES: usize = 8;

/// The types that a schema allows, also by its choices, values and references into `root`; empty if that may be any.
pub fn allowed_types<'a>(schema: &'a Value, root: &'a Value) -> Vec<&'a str> {
    allowed_within(schema, root, MAX_REFERENCES)
}

fn allowed_within<'a>(schema: &'a Value, root: &'a Value, references: usize) -> Vec<&'a str> {
    let named = named_types(schema.get("type"));
    if !named.is_empty() {
        return named;
    }
    let parts = |key: &str| schema[key].as_array().into_iter().flatten();
    let mut kinds: Vec<_> = schema.get("const").into_iter().chain(parts("enum")).map(type_of).collect();
    if let Some(pointer) = schema["$ref"].as_str().and_then(|reference| reference.strip_prefix('#')) {
        let target = root.pointer(pointer).filter(|_| references > 0);
        kinds.extend(target.map(|target| allowed_within(target, root, references - 1)).unwrap_or_default());
    }
    // All of these hold, so one that names no type takes nothing away.
    kinds.extend(parts("allOf").flat_map(|part| allowed_within(part, root, references)));
    for choice in parts("anyOf").chain(parts("oneOf")) {
        let of_choice = allowed_within(choice, root, references);
        if of_choice.is_empty() {
            return Vec::new();
        }
        kinds.extend(of_choice);
    }
    kinds
}

/// Whether `value` is of this type of JSON Schema, to which `1.0` is an integer.
pub fn is_type(kind: &str, value: &Value) -> bool {
    match kind {
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        _ => false,
    }
}

/// The type of JSON Schema that `value` has: of numbers the wider one.
pub fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn refused(text: &str) -> String {
        parse(text.as_bytes()).expect_err(text).to_string()
    }

    #[test]
    fn integers_are_represented_exactly_or_refused() {
        for text in ["9007199254740993", "18446744073709551615", "-9223372036854775808", "1.0", "0.1", "1e3"] {
            let value = parse(text.as_bytes()).expect(text);
            assert_eq!(parse(value.to_string().as_bytes()).expect("JSON that we wrote"), value);
        }
        assert_eq!(parse(b"9007199254740993").expect("an exact integer").to_string(), "9007199254740993");
        assert!(refused("18446744073709551616").contains("too large to be represented exactly"));
    }

    #[test]
    fn a_number_with_digits_that_would_be_lost_is_refused_where_callers_send_it() {
        for text in [
            "100.00000000000000000001",
            "[1, 3.141592653589793238]",
            "{\"a\": {\"b\": -99.99999999999999999999}}",
            "1.00000000000000000000000000001e2",
            "\"\\\"\" ",
        ] {
            let is_text = text.starts_with('"');
            assert_eq!(parse(text.as_bytes()).is_err(), !is_text, "{text}");
            assert!(parse_within(text.as_bytes(), JsonLimits::DEFINITIONS).is_ok(), "{text}");
        }
        assert_eq!(
            refused("{\"a\":\n  0.12345678901234567891}"),
            "the number has more digits than can be kept exactly; round it, or write it as a string at line 2 column 3"
        );
        for kept in [
            "0.1000000000000000000000000",
            "0.30000000000000004",
            "2.2250738585072014e-308",
            "\"100.00000000000000000001\"",
        ] {
            assert!(parse(kept.as_bytes()).is_ok(), "{kept}");
        }
    }

    #[test]
    fn a_duplicate_key_is_refused_with_its_position() {
        assert_eq!(refused("{\"a\": 1,\n \"a\": 2}"), "duplicate key `a` at line 2 column 4");
    }

    #[test]
    fn the_members_of_an_object_are_found_without_reading_their_values() {
        let text = " {\"a\": {\"b\": [1, {}], \"b\": 2} , \"c\":\"\\\"}\"\n}\n";
        let found = members(text.as_bytes()).expect("an object").expect("an object");
        let found: Vec<_> = found.iter().map(|member| (member.key.as_str(), member.text)).collect();
        assert_eq!(found, [("a", "{\"b\": [1, {}], \"b\": 2}"), ("c", "\"\\\"}\"")]);
        let wrong = members(b"{\"a\": 1,\n\"a\": 2}").expect_err("a key twice").to_string();
        assert_eq!(wrong, "duplicate key `a` at line 2 column 3");
        assert!(members(b"[1]").expect("JSON").is_none());
        for wrong in ["{\"a\": 1,}", "{\"a\" 1}", "{\"a\": [}", "{} {}", "", "{\"a\": \"\u{1}\"}", "[1"] {
            let strict = refused(wrong);
            assert_eq!(members(wrong.as_bytes()).expect_err(wrong).to_string(), strict);
        }
        members(b"{\"a\": \"\xff\"}").expect_err("not UTF-8");
    }

    #[test]
    fn an_error_in_a_member_is_located_in_the_whole_text() {
        let text = b"{\n  \"a\": {\"b\": 1, \"b\": 2}, \"c\": {\n\"d\": 1, \"d\": 2}}";
        let located: Vec<_> = members(text)
            .expect("an object")
            .expect("an object")
            .iter()
            .map(|member| parse(member.text.as_bytes()).expect_err("a key twice").after(&text[..member.start]))
            .map(|error| (error.line, error.column))
            .collect();
        assert_eq!(located, [(2, 19), (3, 11)]);
    }

    #[test]
    fn excessive_nesting_and_too_many_keys_are_refused() {
        assert!(refused(&"[".repeat(100_000)).contains("deeper than 64"));
        let keys: Vec<_> = (0..20_000).map(|key| format!("\"{key}\":0")).collect();
        let many = format!("{{{}}}", keys.join(","));
        assert!(refused(&many).contains("more than 10000 keys"));
        assert!(parse_within(many.as_bytes(), JsonLimits::DEFINITIONS).is_ok());
        assert!(refused("{} {}").contains("after the end"));
    }

    #[test]
    fn no_word_of_the_parser_reaches_a_reader() {
        let texts = [
            "",
            " ",
            "{",
            "{\"a\"",
            "{\"a\":",
            "{\"a\": 1",
            "[1",
            "\"a",
            "{a: 1}",
            "nul",
            "tru",
            "hello",
            "{} x",
            "[1,]",
            "{\"a\": 1,}",
            "\"a\nb\"",
            "\"\\x\"",
            "{\"a\" 1}",
            "[1 2]",
            "'a'",
            "01",
            "1.",
            "-",
            "\"\\u12\"",
            "\"\\ud800\"",
        ];
        for text in texts {
            let message = refused(text);
            for word in ["EOF", "while parsing", "expected value", "ident", "trailing", "must be a string"] {
                assert!(!message.contains(word), "{text:?}: {message}");
            }
        }
        assert!(refused("").starts_with("it is empty"));
    }

    proptest! {
        #[test]
        fn accepted_json_means_the_same_to_serde_json(text in "[\\[\\]{}:,\"a-c0-9.e \\-]{0,40}") {
            if let Ok(value) = parse(text.as_bytes()) {
                let other: Value = serde_json::from_str(&text).expect("`serde_json` accepts everything that we accept");
                prop_assert_eq!(value, other);
            }
        }
    }

    #[test]
    fn types_are_those_of_json_schema() {
        let all = ["string", "integer", "number", "boolean", "array", "object", "null"];
        let kinds_of =
            |value: &Value| all.into_iter().filter(|kind| is_type(kind, value)).collect::<Vec<_>>().join(" ");
        for (value, kinds) in [
            (json!("1"), "string"),
            (json!(1), "integer number"),
            (json!(1.0), "integer number"),
            (json!(1.5), "number"),
            (json!(true), "boolean"),
            (json!([1]), "array"),
            (json!({}), "object"),
            (json!(null), "null"),
        ] {
            assert_eq!(kinds_of(&value), kinds, "{value}");
        }
    }
}
