//! The words of a form as a human sees them: nothing in them is hidden, and no option goes by another name than its own.
//!
//! What a client sends back stays as it is: values, names of fields, patterns.

use protocol::invisible;
use serde_json::{Map, Value};

use super::plain;
use crate::page::visible::VisibleText;

/// Keywords that say something to programs alone.
const FOR_PROGRAMS: [&str; 15] = [
    "enum",
    "const",
    "default",
    "pattern",
    "required",
    "type",
    "format",
    "$ref",
    "$dynamicRef",
    "$id",
    "$anchor",
    "$schema",
    "contentEncoding",
    "contentMediaType",
    "dependentRequired",
];
/// Keywords whose keys are names and whose values are schemas.
const NAMED_SCHEMAS: [&str; 5] = ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];

/// What an option is called: by its value, and by its title if that is something else.
pub(super) fn option_label(value: &Value, title: Option<&str>) -> String {
    let value = plain(value);
    match title.filter(|title| *title != value) {
        Some(title) => format!("{title} (value: {value})"),
        None => value,
    }
}

/// The form of a question for a client, which shows it itself.
pub(in crate::page) fn shown(schema: &Map<String, Value>) -> Map<String, Value> {
    let mut shown: Map<String, Value> = schema.iter().map(|(key, value)| (key.clone(), keyword(key, value))).collect();
    let title = |name: &Value| name.as_str().map(str::to_owned);
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        let names = |place: usize| schema.get("enumNames").and_then(|names| title(&names[place]));
        let labels: Vec<_> = values
            .iter()
            .enumerate()
            .map(|(place, value)| visible(&option_label(value, names(place).as_deref())))
            .collect();
        if labels.iter().zip(values).any(|(label, value)| *label != plain(value)) {
            shown.insert("enumNames".to_owned(), labels.into());
        }
    }
    if let Some(value) = schema.get("const") {
        let label = visible(&option_label(value, schema.get("title").and_then(Value::as_str)));
        if schema.contains_key("title") || label != plain(value) {
            shown.insert("title".to_owned(), label.into());
        }
    }
    if let Some(suggested) = schema.get("default").map(plain).filter(|text| invisible::next(text).is_some()) {
        let about =
            shown.get("description").and_then(Value::as_str).map(|about| format!("{about} ")).unwrap_or_default();
        shown.insert("description".to_owned(), format!("{about}(suggested: {})", visible(&suggested)).into());
    }
    shown
}

fn keyword(key: &str, value: &Value) -> Value {
    match value {
        _ if FOR_PROGRAMS.contains(&key) => value.clone(),
        Value::Object(schemas) if NAMED_SCHEMAS.contains(&key) => {
            Value::Object(schemas.iter().map(|(name, schema)| (name.clone(), named(name, schema))).collect())
        }
        value => any(value),
    }
}

/// A field, which is known by its name if it has no title.
fn named(name: &str, schema: &Value) -> Value {
    let mut schema = any(schema);
    if let Some(fields) = schema.as_object_mut().filter(|_| invisible::next(name).is_some()) {
        fields.entry("title").or_insert_with(|| visible(name).into());
    }
    schema
}

fn any(value: &Value) -> Value {
    match value {
        Value::String(text) => visible(text).into(),
        Value::Array(items) => items.iter().map(any).collect(),
        Value::Object(schema) => Value::Object(shown(schema)),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

/// A text in which every hidden character is written out.
fn visible(text: &str) -> String {
    VisibleText::text(text).plain().text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(schema: Value) -> Value {
        let Value::Object(schema) = schema else { panic!("an object") };
        Value::Object(shown(&schema))
    }

    #[test]
    fn nothing_in_the_words_is_hidden_and_what_is_sent_back_stays() {
        let form = of(json!({"type": "object", "title": "A\u{200b}", "properties": {
            "to\u{202e}": {"type": "string", "pattern": "^\u{200b}?$", "description": "line\nb\u{2066}"},
            "how": {"enum": ["a\u{200b}", "b"], "default": "a\u{200b}"},
            "many": {"type": "array", "items": {"oneOf": [{"const": "x", "title": "y\u{200b}"}], "examples": ["\u{feff}"]}}
        }, "required": ["to\u{202e}"]}));
        let expected = json!({"type": "object", "title": "A\\u{200B}", "properties": {
            "to\u{202e}": {"type": "string", "pattern": "^\u{200b}?$", "description": "line\nb\\u{2066}", "title": "to\\u{202E}"},
            "how": {"enum": ["a\u{200b}", "b"], "default": "a\u{200b}", "enumNames": ["a\\u{200B}", "b"],
                "description": "(suggested: a\\u{200B})"},
            "many": {"type": "array", "items": {"oneOf": [{"const": "x", "title": "y\\u{200B} (value: x)"}],
                "examples": ["\\u{FEFF}"]}}
        }, "required": ["to\u{202e}"]});
        assert_eq!(form, expected);
    }

    #[test]
    fn an_option_with_another_title_has_both_and_an_ordinary_form_stays() {
        let titled = of(json!({"enum": ["delete", 5], "enumNames": ["Keep", "5"]}));
        assert_eq!(titled["enumNames"], json!(["Keep (value: delete)", "5"]));
        for same in [
            json!({"enum": ["a", "b"]}),
            json!({"enum": ["a"], "enumNames": ["a"]}),
            json!({"oneOf": [{"const": "a"}, {"const": "b", "title": "b"}]}),
            json!({"type": "object", "properties": {"a": {"type": "string", "title": "Your answer", "maxLength": 5}}}),
        ] {
            assert_eq!(of(same.clone()), same);
        }
    }
}
