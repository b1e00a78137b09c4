//! Forms: turns a JSON Schema into the fields of an HTML form.

use ground::config::seal::is_hidden;
use serde::Serialize;
use serde_json::{Map, Value};

use super::sensitive;
use words::option_label;

pub(super) mod words;

/// One field of a form. `None` means absent from the input, which is not the same as empty.
#[derive(Debug, Serialize)]
pub(super) struct FormField {
    name: String,
    pointer: String,
    label: String,
    description: String,
    #[serde(rename = "type")]
    kind: FieldKind,
    required: bool,
    /// What the form field contains.
    value: Value,
    /// The exact value as JSON, sent back if the human does not change the field.
    json: Option<String>,
    options: Vec<FormChoice>,
    minimum: Option<Value>,
    maximum: Option<Value>,
    pattern: Option<String>,
    placeholder: String,
    /// What becomes of an answer that asks for care.
    fate: Option<AnswerFate>,
}

/// Who gets to see what a human types into a field of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum AnswerFate {
    /// The secret store; the agent gets only the name.
    Stored,
    /// The agent, although the field asks for something secret.
    ReadByAgent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum FieldKind {
    Text,
    Multiline,
    Number,
    Boolean,
    Choice,
    Choices,
    List,
    Secret,
    Json,
}

#[derive(Debug, Serialize)]
struct FormChoice {
    value: Value,
    label: String,
    json: String,
    chosen: bool,
}

/// The fields of `schema`, filled with `input`. Fields that are only in the input come last.
pub(super) fn fields(schema: &Map<String, Value>, input: &Map<String, Value>) -> Vec<FormField> {
    let nothing = Map::new();
    let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&nothing);
    let required = schema.get("required").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let extra = input.keys().filter(|name| !properties.contains_key(*name));
    properties
        .keys()
        .chain(extra)
        .map(|name| {
            let property = properties.get(name).unwrap_or(&Value::Null);
            let is_required = required.iter().any(|other| other == name.as_str());
            field(name, property, is_required, input.get(name))
        })
        .collect()
}

/// The fields of a question. Each says if its answer goes to the secret store, or to the agent although it asks for
/// something secret.
pub(super) fn question_fields(question: &str, schema: &Map<String, Value>) -> Vec<FormField> {
    let nothing = Value::Null;
    let properties = schema.get("properties").and_then(Value::as_object);
    // What a question suggests stands in its form, whether or not an answer is required.
    let defaults = properties.into_iter().flatten().filter_map(|(name, property)| {
        Some((name.clone(), property.get("default")?.clone())).filter(|_| !is_hidden(property))
    });
    let mut fields = fields(schema, &defaults.collect());
    let is_only = fields.len() == 1;
    for field in &mut fields {
        let property = properties.and_then(|properties| properties.get(&field.name)).unwrap_or(&nothing);
        let mut texts = sensitive::texts_of(&field.name, property);
        // The words of a single field are those of the question.
        texts.extend(is_only.then_some(question));
        field.fate = match field.kind {
            FieldKind::Secret => Some(AnswerFate::Stored),
            FieldKind::Text | FieldKind::Multiline | FieldKind::Number | FieldKind::List | FieldKind::Json => {
                sensitive::asks_for_secret(&texts).then_some(AnswerFate::ReadByAgent)
            }
            FieldKind::Boolean | FieldKind::Choice | FieldKind::Choices => None,
        };
    }
    fields
}

/// The JSON Pointer of a field.
pub(super) fn pointer(name: &str) -> String {
    format!("/{}", protocol::json::pointer_token(name))
}

fn field(name: &str, property: &Value, required: bool, value: Option<&Value>) -> FormField {
    let value = value.or_else(|| property.get("default").filter(|_| required));
    let kind = kind_of(property, value);
    let text = |key: &str| property[key].as_str().unwrap_or_default().to_owned();
    let limit = |key: &str| property.get(key).filter(|limit| limit.is_number()).cloned();
    let offered = match kind {
        FieldKind::Choice => offers(property),
        FieldKind::Choices => offers(&property["items"]),
        _ => None,
    };
    let is_chosen = |offer: &Value| match value {
        Some(Value::Array(chosen)) if kind == FieldKind::Choices => chosen.contains(offer),
        chosen => chosen == Some(offer),
    };
    let options = offered.into_iter().flatten().map(|(offer, label)| FormChoice {
        label,
        json: offer.to_string(),
        chosen: is_chosen(&offer),
        value: offer,
    });
    FormField {
        name: name.to_owned(),
        pointer: pointer(name),
        label: property["title"].as_str().unwrap_or(name).to_owned(),
        description: text("description"),
        kind,
        required,
        value: value.map_or(Value::Null, |value| in_field(kind, value)),
        json: value.map(Value::to_string),
        options: options.collect(),
        minimum: limit("minimum"),
        maximum: limit("maximum"),
        pattern: property["pattern"].as_str().map(str::to_owned),
        placeholder: property["examples"][0].as_str().unwrap_or_default().to_owned(),
        fate: None,
    }
}

/// The kind of form field for a property. A value that does not match its schema is shown as JSON.
fn kind_of(property: &Value, value: Option<&Value>) -> FieldKind {
    const LONG_TEXT: u64 = 200;
    let fits = |check: fn(&Value) -> bool| value.is_none_or(check);
    let is_text = |value: &Value| value.is_string();
    if offers(property).is_some() {
        return FieldKind::Choice;
    }
    match property["type"].as_str() {
        Some("boolean") if fits(Value::is_boolean) => FieldKind::Boolean,
        Some("integer" | "number") if fits(Value::is_number) => FieldKind::Number,
        Some("string") if is_hidden(property) => FieldKind::Secret,
        Some("string") if fits(is_text) => {
            let has_lines = value.and_then(Value::as_str).is_some_and(|text| text.contains('\n'));
            let may_be_long = property["maxLength"].as_u64().is_some_and(|max| max > LONG_TEXT);
            let is_long = value.and_then(Value::as_str).is_some_and(|text| text.len() as u64 > LONG_TEXT);
            let needs_lines = property["contentMediaType"].is_string() || has_lines || may_be_long || is_long;
            if needs_lines { FieldKind::Multiline } else { FieldKind::Text }
        }
        Some("array") if offers(&property["items"]).is_some() && fits(Value::is_array) => FieldKind::Choices,
        Some("array") if property["items"]["type"] == "string" && fits(is_lines) => FieldKind::List,
        _ => FieldKind::Json,
    }
}

/// The values to choose from, each with its label, if the schema lists them: as `enum`, with or without `enumNames`, or
/// as constants with titles.
fn offers(schema: &Value) -> Option<Vec<(Value, String)>> {
    if let Some(values) = schema["enum"].as_array() {
        let label = |place: usize, value: &Value| option_label(value, schema["enumNames"][place].as_str());
        return Some(values.iter().enumerate().map(|(place, value)| (value.clone(), label(place, value))).collect());
    }
    let constants = schema["oneOf"].as_array().or_else(|| schema["anyOf"].as_array())?;
    let offer = |constant: &Value| {
        let value = constant.get("const")?;
        Some((value.clone(), option_label(value, constant["title"].as_str())))
    };
    constants.iter().map(offer).collect()
}

/// Whether each item fits on its own line of a text area.
fn is_lines(value: &Value) -> bool {
    let is_line = |item: &Value| item.as_str().is_some_and(|text| !text.contains('\n') && text.trim() == text);
    value.as_array().is_some_and(|items| items.iter().all(is_line))
}

/// What the form field contains for a value.
fn in_field(kind: FieldKind, value: &Value) -> Value {
    match kind {
        FieldKind::Boolean => value.clone(),
        FieldKind::List => {
            let items = value.as_array().map_or(&[][..], Vec::as_slice);
            items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("\n").into()
        }
        FieldKind::Json => serde_json::to_string_pretty(value).expect("a JSON value can be serialized").into(),
        FieldKind::Secret => Value::Null,
        FieldKind::Text | FieldKind::Multiline | FieldKind::Number | FieldKind::Choice | FieldKind::Choices => {
            plain(value).into()
        }
    }
}

/// A text as it is, any other value as JSON.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_question_says_what_becomes_of_secrets() {
        let fates = |question: &str, properties: Value| -> Vec<_> {
            let schema = json!({"properties": properties});
            let fields = question_fields(question, schema.as_object().expect("an object"));
            fields.into_iter().map(|field| field.fate).collect()
        };
        let stored = json!({"password": {"type": "string", "format": "password"}, "user": {"type": "string"}});
        assert_eq!(fates("Sign in", stored), [Some(AnswerFate::Stored), None]);
        let plain = json!({"api_key": {"type": "string"}, "x": {"type": "integer", "title": "The PIN"}, "ok": {"type": "boolean"}});
        assert_eq!(fates("Sign in", plain), [Some(AnswerFate::ReadByAgent), Some(AnswerFate::ReadByAgent), None]);
        let single = || json!({"answer": {"type": "string"}});
        assert_eq!(fates("What is your password?", single()), [Some(AnswerFate::ReadByAgent)]);
        assert_eq!(fates("What is your name?", single()), [None]);
    }

    #[test]
    fn choices_have_labels_and_a_question_its_suggestions() {
        let titled = json!([{"const": "a", "title": "First"}, {"const": "b"}]);
        let schema = json!({"properties": {
            "one": {"type": "string", "oneOf": titled, "default": "b"},
            "many": {"type": "array", "items": {"anyOf": titled}, "default": ["a"]},
            "named": {"type": "string", "enum": ["c", "d"], "enumNames": ["Third"]},
            "count": {"type": "integer", "default": 3},
            "any": {"anyOf": [{"const": 1}, {"type": "string"}]}}});
        let found = question_fields("Which?", schema.as_object().expect("an object"));
        let labels: Vec<Vec<_>> = found
            .iter()
            .map(|field| field.options.iter().map(|option| (option.label.as_str(), option.chosen)).collect())
            .collect();
        assert_eq!(labels[0], [("First (value: a)", false), ("b", true)]);
        assert_eq!(labels[1], [("First (value: a)", true), ("b", false)]);
        assert_eq!(labels[2], [("Third (value: c)", false), ("d", false)]);
        assert_eq!((found[3].value.clone(), found[4].kind), (json!("3"), FieldKind::Json));
    }

    #[test]
    fn each_type_gets_its_own_kind_of_field() {
        let schema = json!({"required": ["to"], "properties": {
            "to": {"type": "array", "items": {"type": "string"}},
            "subject": {"type": "string"},
            "body": {"type": "string"},
            "count": {"type": "integer", "minimum": 1},
            "big": {"type": "integer"},
            "urgent": {"type": "boolean"},
            "color": {"enum": ["red", 7]},
            "tags": {"type": "array", "items": {"enum": ["a", "b"]}},
            "password": {"type": "string", "format": "password"},
            "extra": {"type": "object"},
            "odd": {"type": "integer"}
        }});
        let input = json!({"to": ["bob", "eve"], "body": "a\nb", "count": 3, "big": 9_007_199_254_740_993_i64,
            "urgent": false, "color": 7, "tags": ["b"], "extra": {"x": 1}, "odd": "text", "extra_field": null});
        let found = fields(schema.as_object().expect("an object"), input.as_object().expect("an object"));
        let kinds: Vec<_> = found.iter().map(|field| (field.name.as_str(), field.kind, field.value.clone())).collect();
        let expected = [
            ("to", FieldKind::List, json!("bob\neve")),
            ("subject", FieldKind::Text, json!(null)),
            ("body", FieldKind::Multiline, json!("a\nb")),
            ("count", FieldKind::Number, json!("3")),
            ("big", FieldKind::Number, json!("9007199254740993")),
            ("urgent", FieldKind::Boolean, json!(false)),
            ("color", FieldKind::Choice, json!("7")),
            ("tags", FieldKind::Choices, json!("[\"b\"]")),
            ("password", FieldKind::Secret, json!(null)),
            ("extra", FieldKind::Json, json!("{\n  \"x\": 1\n}")),
            ("odd", FieldKind::Json, json!("\"text\"")),
            ("extra_field", FieldKind::Json, json!("null")),
        ];
        assert_eq!(kinds, expected);
        let chosen: Vec<_> = found[7].options.iter().map(|option| (option.json.as_str(), option.chosen)).collect();
        assert_eq!(chosen, [("\"a\"", false), ("\"b\"", true)]);
        assert!(found[0].required && found[0].json.as_deref() == Some("[\"bob\",\"eve\"]") && found[1].json.is_none());
    }
}
