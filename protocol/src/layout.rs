//! JSON laid out in lines: how data lies in a file.
//!
//! Laid out once, when it is stored, so that whoever reads a part of it need not read it all, and
//! that `grep` and an agent's own file tools are of use. A value that fits stays on one line, so a
//! line is a record more often than a brace; one that does not is broken open, item by item.

use std::io;

use serde_json::Value;

/// Most records fit, and a screen of lines is still little context for a model.
const WIDTH: usize = 400;

/// `value` as text: its own items on a line each, what lies deeper only broken where it must be.
pub fn laid_out(value: &Value) -> String {
    let mut text = String::new();
    match value {
        Value::Array(_) | Value::Object(_) => open(value, 1, &mut text),
        scalar => text.push_str(&scalar.to_string()),
    }
    text
}

/// How many bytes `value` has as compact text; writes nothing.
pub fn compact_bytes(value: &Value) -> u64 {
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
    serde_json::to_writer(&mut counter, value).expect("JSON can be written, and a counter takes it");
    counter.0
}

fn write(value: &Value, depth: usize, text: &mut String) {
    match one_line(value) {
        Some(line) => text.push_str(&line),
        None => open(value, depth, text),
    }
}

fn open(value: &Value, depth: usize, text: &mut String) {
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

/// `value` as compact text, if that fits; tried with no more work than it may be long.
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
    fn a_record_is_a_line_and_what_is_longer_is_broken_open() {
        let long = "x".repeat(WIDTH);
        let value = json!({"items": [{"id": 1, "to": ["a"]}, {"id": 2, "text": long}], "none": [], "n": null});
        let expected = format!(
            "{{\n  \"items\": [\n    {{\"id\":1,\"to\":[\"a\"]}},\n    {{\n      \"id\": 2,\n      \"text\": \"{long}\"\n    }}\n  ],\n  \"none\": [],\n  \"n\": null\n}}"
        );
        assert_eq!(laid_out(&value), expected);
        assert_eq!(laid_out(&json!(["1", "2"])), "[\n  \"1\",\n  \"2\"\n]");
        assert_eq!((laid_out(&json!([])), laid_out(&json!("a\nb"))), ("[]".to_owned(), "\"a\\nb\"".to_owned()));
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
        fn it_is_the_same_value_and_its_size_is_known(value in value()) {
            prop_assert_eq!(&serde_json::from_str::<Value>(&laid_out(&value)).expect("JSON"), &value);
            prop_assert_eq!(compact_bytes(&value), value.to_string().len() as u64);
        }
    }
}
