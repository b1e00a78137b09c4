//! The line layout of JSON in data files.
//!
//! Data is formatted once, when it is stored, so that callers can read it in parts, with `grep` or with
//! an agent's own file tools. A value that fits in the line width stays on one line, so a line is usually
//! one record; a longer value has one line per item.

use std::io;

use serde::Serialize;
use serde_json::Value;

/// The longest line, in bytes: wide enough for most records, and a screen of lines is still little context
/// for a model.
const WIDTH: usize = 400;

/// Formats `value` with one line for each of its items; nested values are broken only if they do not fit.
pub fn to_lines(value: &Value) -> String {
    let mut text = String::new();
    match value {
        Value::Array(_) | Value::Object(_) => write_open(value, 1, &mut text),
        scalar => text.push_str(&scalar.to_string()),
    }
    text
}

/// Returns the length of `value` as compact JSON, in bytes, without building the text.
pub fn compact_bytes(value: &impl Serialize) -> u64 {
    struct Counter(u64);
    impl io::Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len() as u64;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter(0);
    serde_json::to_writer(&mut counter, value).expect("a JSON value serializes, and the counter accepts every write");
    counter.0
}

fn write(value: &Value, depth: usize, text: &mut String) {
    match one_line(value) {
        Some(line) => text.push_str(&line),
        None => write_open(value, depth, text),
    }
}

/// Writes `value` with one line for each item, whether it would fit on one line or not.
fn write_open(value: &Value, depth: usize, text: &mut String) {
    match value {
        Value::Array(items) => block('[', ']', depth, text, items, |item, text| write(item, depth + 1, text)),
        Value::Object(fields) => block('{', '}', depth, text, fields, |(key, field), text| {
            text.push_str(&Value::from(key.as_str()).to_string());
            text.push_str(": ");
            write(field, depth + 1, text);
        }),
        scalar => text.push_str(&scalar.to_string()),
    }
}

fn block<T>(
    first: char,
    last: char,
    depth: usize,
    text: &mut String,
    items: impl IntoIterator<Item = T>,
    mut write: impl FnMut(T, &mut String),
) {
    let line = |depth: usize, text: &mut String| {
        text.push('\n');
        text.extend(std::iter::repeat_n("  ", depth));
    };
    text.push(first);
    let mut is_empty = true;
    for item in items {
        if !std::mem::take(&mut is_empty) {
            text.push(',');
        }
        line(depth, text);
        write(item, text);
    }
    if !is_empty {
        line(depth - 1, text);
    }
    text.push(last);
}

/// Returns `value` as compact JSON if it fits in the line width. Stops writing when it does not.
fn one_line(value: &Value) -> Option<String> {
    let mut line = [0; WIDTH];
    let mut room = &mut line[..];
    serde_json::to_writer(&mut room, value).ok()?;
    let left = room.len();
    String::from_utf8(line[..WIDTH - left].to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_record_stays_on_one_line_unless_it_is_too_long() {
        let long = "x".repeat(WIDTH);
        let value = json!({"items": [{"id": 1, "to": ["a"]}, {"id": 2, "text": long}], "none": [], "n": null});
        let expected = format!(
            "{{\n  \"items\": [\n    {{\"id\":1,\"to\":[\"a\"]}},\n    {{\n      \"id\": 2,\n      \"text\": \"{long}\"\n    }}\n  ],\n  \"none\": [],\n  \"n\": null\n}}"
        );
        assert_eq!(to_lines(&value), expected);
        assert_eq!(to_lines(&json!(["1", "2"])), "[\n  \"1\",\n  \"2\"\n]");
        assert_eq!((to_lines(&json!([])), to_lines(&json!("a\nb"))), ("[]".to_owned(), "\"a\\nb\"".to_owned()));
    }

    fn value() -> impl Strategy<Value = Value> {
        let scalar = prop_oneof![
            Just(Value::Null),
            any::<i64>().prop_map(Value::from),
            "[a-z\"\\\\\n年]{0,300}".prop_map(Value::from)
        ];
        scalar.prop_recursive(5, 60, 8, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
                prop::collection::vec(("[a-c\"]{0,3}", inner), 0..8)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn lines_parse_to_the_same_value_and_the_compact_size_is_exact(value in value()) {
            prop_assert_eq!(&serde_json::from_str::<Value>(&to_lines(&value)).expect("valid JSON"), &value);
            prop_assert_eq!(compact_bytes(&value), value.to_string().len() as u64);
        }
    }
}
