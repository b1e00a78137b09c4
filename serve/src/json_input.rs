//! Reads what a client sends as JSON, and says in plain words which field is wrong.

use serde::de::DeserializeOwned;
use serde_json::Value;

/// Reads the object `value`; an error names the field that is wrong.
pub(crate) fn read<T: DeserializeOwned>(value: Value) -> Result<T, String> {
    if !value.is_object() {
        // A list would count as the fields in their order.
        return Err(format!("it must be an object, and is {}", kind(&value)));
    }
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        explain(if path == "." { "" } else { &path }, &error.inner().to_string())
    })
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// What is wrong at `path`, which is empty for the whole value, from the words of serde.
fn explain(path: &str, reason: &str) -> String {
    let field = if path.is_empty() { "it".to_owned() } else { format!("`{path}`") };
    // The path ends at the object that has, or lacks, the field.
    let parent = path.rsplit_once('.').map_or("", |(parent, _)| parent);
    let inside = |object: &str, name: &str| match object {
        "" | "?" => format!("`{name}`"),
        object => format!("`{object}.{name}`"),
    };
    if let Some(name) = quoted_after(reason, "missing field ") {
        return format!("{} is missing", inside(path, name));
    }
    if let Some(name) = quoted_after(reason, "unknown field ") {
        let known = alternatives(reason).map(|known| format!("; the fields there are {known}"));
        // The path names the unknown field itself, if serde knew it by then.
        let object = if path.rsplit('.').next() == Some(name) { parent } else { path };
        return format!("there is no field {}{}", inside(object, name), known.unwrap_or_default());
    }
    if let Some(value) = quoted_after(reason, "unknown variant ") {
        let known = alternatives(reason).map(|known| format!("; its values are {known}"));
        return format!("{field} cannot be `{value}`{}", known.unwrap_or_default());
    }
    let wrong = ["invalid type: ", "invalid value: "].iter().find_map(|start| reason.strip_prefix(start));
    match wrong.and_then(|wrong| wrong.rsplit_once(", expected ")) {
        Some((found, expected)) => {
            format!("{field} must be {}, and is {}", expected_words(expected), found_words(found))
        }
        None => format!("{field}: {reason}"),
    }
}

/// The word in backquotes that follows `start`.
fn quoted_after<'a>(reason: &'a str, start: &str) -> Option<&'a str> {
    reason.strip_prefix(start)?.strip_prefix('`')?.split('`').next()
}

/// The names after ``expected one of `a`, `b` ``.
fn alternatives(reason: &str) -> Option<String> {
    let (_, known) = reason.rsplit_once(", expected ")?;
    Some(known.trim_start_matches("one of ").replace(" or ", ", "))
}

fn expected_words(expected: &str) -> &str {
    match expected {
        "a string" | "string" | "str" => "a text",
        "a boolean" | "bool" => "true or false",
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number of at least 0",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "a sequence" => "a list",
        "a map" | "map" => "an object",
        named if named.starts_with("struct ") => "an object",
        named if named.starts_with("enum ") => "one of its names",
        other => other,
    }
}

fn found_words(found: &str) -> String {
    match found.split_once(' ') {
        Some(("string", _)) => "a text".to_owned(),
        Some(("integer" | "boolean", value)) => value.trim_matches('`').to_owned(),
        Some(("floating", value)) => value.trim_start_matches("point ").trim_matches('`').to_owned(),
        _ => match found {
            "map" => "an object".to_owned(),
            "sequence" => "a list".to_owned(),
            other => other.to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use ground::page_client::api_client::GateDecision;
    use serde_json::json;

    use super::*;
    use crate::http::api::SubmitRequest;

    #[test]
    fn what_is_wrong_is_said_in_plain_words() {
        let submit = |value: Value| read::<SubmitRequest>(value).expect_err("it is wrong");
        for (value, expected) in [
            (json!({}), "`message` is missing"),
            (json!(["x"]), "it must be an object, and is a list"),
            (json!("x"), "it must be an object, and is a text"),
            (json!(null), "it must be an object, and is null"),
            (json!({"message": 5}), "`message` must be a text, and is 5"),
            (json!({"message": null}), "`message` must be a text, and is null"),
            (json!({"message": ["x"]}), "`message` must be a text, and is a list"),
            (json!({"message": "x", "wait": "yes"}), "`wait` must be true or false, and is a text"),
            (json!({"message": "x", "timeout": true}), "`timeout` must be a number, and is true"),
            (json!({"message": "x", "limits": 1}), "`limits` must be an object, and is 1"),
            (
                json!({"message": "x", "limits": {"steps": -1}}),
                "`limits.steps` must be a whole number of at least 0, and is -1",
            ),
            (
                json!({"message": "x", "limits": {"steps": 1.5}}),
                "`limits.steps` must be a whole number of at least 0, and is 1.5",
            ),
            (
                json!({"message": "x", "limits": {"step": 1}}),
                "there is no field `limits.step`; the fields there are `steps`, `tokens`, `cost`, `calls`, `deadline`",
            ),
            (
                json!({"message": "x", "when_busy": "never"}),
                "`when_busy` cannot be `never`; its values are `interrupt`, `queue`, `cancel`",
            ),
        ] {
            assert_eq!(submit(value.clone()), expected, "{value}");
        }
        let unknown = submit(json!({"message": "x", "mesage": "y"}));
        assert!(
            unknown.starts_with("there is no field `mesage`; the fields there are `message`, `session`, "),
            "{unknown}"
        );
        let decision = read::<GateDecision>(json!({"decision": 5})).expect_err("it is wrong");
        assert!(decision.contains("`decision`"), "{decision}");
    }
}
