//! Single keywords of a schema: types, enumerations, formats, limits of numbers and texts.

use std::collections::HashSet;

use protocol::json::{is_type, named_types};
use serde_json::{Map, Number, Value};

use super::{Cleaned, append_description};

/// The most values of an enumeration that a model is shown.
const MAX_ENUM_VALUES: usize = 50;
/// The longest pattern that is kept.
const MAX_PATTERN_CHARS: usize = 120;
/// Fields deeper than this keep no pattern.
const MAX_PATTERN_LEVEL: usize = 2;

/// The types of a schema: those that it names, made right where that is plain, or those that its keywords imply.
pub(super) fn type_of(own: &Map<String, Value>, state: &mut Cleaned) -> Vec<&'static str> {
    let named: Vec<&str> = match own.get("type") {
        Some(Value::String(kind)) => vec![kind],
        Some(Value::Array(kinds)) => kinds.iter().map(|kind| kind.as_str().unwrap_or("null")).collect(),
        _ => Vec::new(),
    };
    let mut kinds = Vec::new();
    let mut is_any = false;
    for kind in named {
        match canonical(kind) {
            Some(kind) if !kinds.contains(&kind) => kinds.push(kind),
            Some(_) => {}
            None => {
                is_any = true;
                if !matches!(kind, "any" | "") {
                    state.loosen(format!("the type `{kind}` is unknown"));
                }
            }
        }
    }
    if is_any {
        return Vec::new();
    }
    if own.get("nullable") == Some(&Value::Bool(true)) && !kinds.is_empty() && !kinds.contains(&"null") {
        kinds.push("null");
    }
    // `"type": "null"` beside fields is a slip; alone it says that there is nothing to send.
    if kinds.is_empty() || kinds == ["null"] {
        kinds.extend(implied(own));
    }
    kinds
}

fn canonical(kind: &str) -> Option<&'static str> {
    Some(match kind.to_ascii_lowercase().as_str() {
        "string" | "text" | "file" | "date" | "datetime" | "date-time" | "uuid" | "str" | "binary" | "uri" => "string",
        "integer" | "int" | "int32" | "int64" | "long" => "integer",
        "number" | "float" | "double" | "decimal" => "number",
        "boolean" | "bool" => "boolean",
        "array" | "list" => "array",
        "object" | "map" | "dict" => "object",
        "null" => "null",
        _ => return None,
    })
}

fn implied(own: &Map<String, Value>) -> Option<&'static str> {
    if own.get("properties").is_some_and(Value::is_object)
        || own.get("additionalProperties").is_some_and(Value::is_object)
    {
        Some("object")
    } else if own.contains_key("items") {
        Some("array")
    } else if own.get("enum").and_then(Value::as_array).is_some_and(|values| {
        values.iter().any(Value::is_string) && values.iter().all(|value| value.is_string() || value.is_null())
    }) {
        Some("string")
    } else {
        None
    }
}

/// Lets a schema accept `null` too.
pub(super) fn allow_null(schema: &mut Map<String, Value>) {
    match schema.get_mut("type") {
        Some(Value::String(kind)) if kind != "null" => {
            let kinds = vec![Value::from(kind.as_str()), "null".into()];
            schema.insert("type".to_owned(), kinds.into());
        }
        Some(Value::Array(kinds)) if !kinds.contains(&"null".into()) => kinds.push("null".into()),
        _ => {}
    }
    if let Some(Value::Array(values)) = schema.get_mut("enum")
        && !values.contains(&Value::Null)
    {
        values.push(Value::Null);
    }
}

/// Takes over `enum` and `const`: values of the schema's type, without those that are deprecated.
pub(super) fn enumeration(own: &Map<String, Value>, cleaned: &mut Map<String, Value>, full: bool, state: &mut Cleaned) {
    if let Some(value) = own.get("const") {
        cleaned.insert("const".to_owned(), value.clone());
    }
    let Some(Value::Array(values)) = own.get("enum") else { return };
    let deprecated = own.get("enumDeprecated").and_then(Value::as_array);
    let is_deprecated =
        |index: usize| !full && deprecated.and_then(|all| all.get(index)).is_some_and(|it| *it == Value::Bool(true));
    let kinds = named_types(cleaned.get("type"));
    let mut kept: Vec<Value> = Vec::new();
    let mut known = HashSet::new();
    for (index, value) in values.iter().enumerate() {
        let value = match value {
            // YAML reads `true` and `1.0` as what they are not meant to be.
            Value::Number(_) | Value::Bool(_) if kinds == ["string"] => Value::String(value.to_string()),
            Value::String(text) if kinds == ["integer"] || kinds == ["number"] => {
                text.parse::<i64>().map_or_else(|_| value.clone(), Value::from)
            }
            value => value.clone(),
        };
        // Google's names for a value that was not set.
        let is_nothing = !full
            && values.len() > 1
            && value.as_str().is_some_and(|it| it.ends_with("_UNSPECIFIED") || it == "UNSPECIFIED");
        let fits = kinds.is_empty() || kinds.iter().any(|kind| is_type(kind, &value));
        if fits && !is_nothing && !is_deprecated(index) && known.insert(value.to_string()) {
            kept.push(value);
        }
    }
    if kinds.contains(&"null") && !kinds.is_empty() && !kept.contains(&Value::Null) && !kept.is_empty() {
        kept.push(Value::Null);
    }
    if kept.is_empty() {
        if !values.is_empty() {
            state.loosen("an enumeration has no value of its type");
        }
    } else if kept.len() > MAX_ENUM_VALUES && !full {
        let first: Vec<_> = kept.iter().filter_map(Value::as_str).take(5).collect();
        append_description(cleaned, &format!("One of {} values, like {}.", kept.len(), first.join(", ")));
    } else {
        cleaned.insert("enum".to_owned(), kept.into());
    }
}

/// Takes over the formats that tell a model how to write a value.
pub(super) fn format_of(own: &Map<String, Value>, cleaned: &mut Map<String, Value>) {
    let Some(format) = own.get("format").and_then(Value::as_str) else { return };
    let is_text = cleaned.get("type").is_some_and(|kind| kind.to_string().contains("string"));
    let kept = match format {
        "date-time" | "date" | "time" | "duration" | "email" | "uuid" | "ipv4" | "ipv6" | "hostname" | "password" => {
            format
        }
        "google-datetime" | "datetime" => "date-time",
        "uri" | "url" => "uri",
        "byte" | "base64" => "byte",
        "int64" | "uint64" | "google-duration" | "google-fieldmask" if is_text => format,
        _ => return,
    };
    cleaned.insert("format".to_owned(), kept.into());
}

/// Whether a text that is only ever written is a credential, which the page and the record hide. Other fields may be
/// marked so too, and a human must see what they are.
pub(super) fn is_written_credential(name: &str, field: &Value) -> bool {
    const WORDS: [&str; 5] = ["passw", "secret", "token", "pin", "cvv"];
    let name = name.to_lowercase();
    let is_named = WORDS.iter().any(|word| if word.len() > 3 { name.contains(word) } else { name == *word });
    field["writeOnly"] == true && field["type"] == "string" && field.get("format").is_none() && is_named
}

/// Takes over limits of numbers, texts, lists and objects, and patterns.
pub(super) fn number_limits(
    own: &Map<String, Value>,
    cleaned: &mut Map<String, Value>,
    level: usize,
    state: &mut Cleaned,
) {
    let number = |key: &str| own.get(key).and_then(number_of);
    let is_true = |key: &str| own.get(key) == Some(&Value::Bool(true));
    for (inclusive, exclusive) in [("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")] {
        if let Some(limit) = number(inclusive) {
            // Draft 4: a limit that is exclusive says so beside it.
            let key = if is_true(exclusive) { exclusive } else { inclusive };
            cleaned.insert(key.to_owned(), limit.into());
        }
        if let Some(limit) = number(exclusive) {
            cleaned.insert(exclusive.to_owned(), limit.into());
        }
    }
    if let Some(step) = number("multipleOf").filter(|step| step.as_f64().is_some_and(|step| step > 0.0)) {
        cleaned.insert("multipleOf".to_owned(), step.into());
    }
    for key in ["minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"] {
        if let Some(limit) = number(key).and_then(|limit| limit.as_u64()) {
            cleaned.insert(key.to_owned(), limit.into());
        }
    }
    if is_true("uniqueItems") {
        cleaned.insert("uniqueItems".to_owned(), true.into());
    }
    if let Some(pattern) = own.get("pattern").and_then(Value::as_str) {
        // The validator's patterns run in linear time, so they cannot look around or back.
        let looks_around = ["(?=", "(?!", "(?<=", "(?<!", "\\1", "\\2", "\\k<"].iter().any(|it| pattern.contains(it));
        if looks_around {
            state.loosen("a pattern looks around or back");
        } else if pattern.chars().count() <= MAX_PATTERN_CHARS && level <= MAX_PATTERN_LEVEL && !pattern.is_empty() {
            cleaned.insert("pattern".to_owned(), pattern.into());
        }
    }
}

/// `007` as JSON writes it.
fn without_zeros(text: &str) -> &str {
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let rest = text.trim_start_matches('0');
    match (is_plain, rest) {
        (false, _) => text,
        (true, "") => "0",
        (true, rest) => rest,
    }
}

/// A number, also one that is written as text.
fn number_of(value: &Value) -> Option<Number> {
    /// From 2^53 on, floats no longer represent every integer exactly; definitions do not take such numbers.
    const FIRST_INEXACT: f64 = 9_007_199_254_740_992.0;
    let number = match value {
        Value::Number(number) => number.clone(),
        Value::String(text) => serde_json::from_str(without_zeros(text.trim())).ok()?,
        _ => return None,
    };
    let is_exact = number.is_i64() || number.is_u64() || number.as_f64().is_some_and(|it| it.abs() < FIRST_INEXACT);
    is_exact.then_some(number)
}
