//! Parameters that a server wants in headers: `x-mcp-header` in an input schema.
//!
//! The protocol demands that a client which speaks HTTP refuses a tool whose annotations break its rules
//! (2026-07-28, "Custom Headers from Tool Parameters").

use std::collections::HashSet;

use serde_json::{Map, Value};

const HEADER: &str = "x-mcp-header";

/// Keywords whose values are no schemas.
const PLAIN: [&str; 6] = ["enum", "const", "default", "examples", "example", "required"];
/// Keywords with schemas by names.
const MAPS: [&str; 4] = ["$defs", "definitions", "patternProperties", "dependentSchemas"];

/// Checks every annotation in `schema`; the error says which rule is broken.
pub(super) fn check(schema: &Value) -> Result<(), String> {
    visit(schema, true, &mut HashSet::new())
}

/// `is_static` is whether only `properties` lead to `schema`.
fn visit(schema: &Value, is_static: bool, names: &mut HashSet<String>) -> Result<(), String> {
    match schema {
        Value::Array(items) => items.iter().try_for_each(|item| visit(item, false, names)),
        Value::Object(fields) => {
            if let Some(header) = fields.get(HEADER) {
                annotation(header, fields, is_static, names)?;
            }
            for (key, value) in fields.iter().filter(|(key, _)| !PLAIN.contains(&key.as_str())) {
                match value {
                    Value::Object(parts) if key == "properties" => {
                        parts.values().try_for_each(|part| visit(part, is_static, names))?;
                    }
                    Value::Object(parts) if MAPS.contains(&key.as_str()) => {
                        parts.values().try_for_each(|part| visit(part, false, names))?;
                    }
                    part => visit(part, false, names)?,
                }
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn annotation(
    header: &Value,
    schema: &Map<String, Value>,
    is_static: bool,
    names: &mut HashSet<String>,
) -> Result<(), String> {
    let is_token_char = |it: char| it.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(it);
    let Some(name) = header.as_str().filter(|name| !name.is_empty() && name.chars().all(is_token_char)) else {
        return Err(format!("`{HEADER}` is {header}, which cannot be part of a header's name"));
    };
    if !is_static {
        return Err(format!("`{HEADER}` \"{name}\" stands where the value is not at a fixed place"));
    }
    let is_allowed = |kind: &Value| kind.as_str().is_some_and(|kind| ["integer", "string", "boolean"].contains(&kind));
    let is_primitive = match schema.get("type") {
        Some(Value::Array(kinds)) => {
            kinds.iter().any(is_allowed) && kinds.iter().all(|kind| is_allowed(kind) || kind == "null")
        }
        Some(kind) => is_allowed(kind),
        None => false,
    };
    if !is_primitive {
        return Err(format!("`{HEADER}` \"{name}\" stands at a value that is no integer, string or boolean"));
    }
    if !names.insert(name.to_ascii_lowercase()) {
        return Err(format!("two values have the same `{HEADER}`, \"{name}\""));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(properties: &Value) -> Result<(), String> {
        check(&json!({"type": "object", "properties": properties}))
    }

    #[test]
    fn an_annotation_that_follows_the_rules_is_accepted() {
        for properties in [
            json!({}),
            json!({"region": {"type": "string", "x-mcp-header": "Region"}}),
            json!({"at": {"type": "object", "properties": {"n": {"type": "integer", "x-mcp-header": "N"}}}}),
            json!({"a": {"type": "boolean", "x-mcp-header": "A"}, "b": {"type": "string", "x-mcp-header": "B"}}),
            // A parameter of this name, and a value that only looks like an annotation.
            json!({"x-mcp-header": {"type": "number"}, "b": {"enum": [{"x-mcp-header": ""}]}}),
        ] {
            assert_eq!(of(&properties), Ok(()), "{properties}");
        }
    }

    #[test]
    fn an_annotation_that_breaks_a_rule_keeps_the_tool_out() {
        for properties in [
            json!({"a": {"type": "string", "x-mcp-header": ""}}),
            json!({"a": {"type": "string", "x-mcp-header": "A B"}}),
            json!({"a": {"type": "string", "x-mcp-header": "A\r\nB"}}),
            json!({"a": {"type": "string", "x-mcp-header": "Ä"}}),
            json!({"a": {"type": "string", "x-mcp-header": 1}}),
            json!({"a": {"type": "number", "x-mcp-header": "A"}}),
            json!({"a": {"type": "object", "x-mcp-header": "A"}}),
            json!({"a": {"x-mcp-header": "A"}}),
            json!({"a": {"type": "string", "x-mcp-header": "A"}, "b": {"type": "string", "x-mcp-header": "a"}}),
            json!({"a": {"type": "array", "items": {"type": "string", "x-mcp-header": "A"}}}),
            json!({"a": {"anyOf": [{"type": "string", "x-mcp-header": "A"}]}}),
        ] {
            assert!(of(&properties).is_err(), "{properties}");
        }
        let referred = json!({"type": "object", "$defs": {"x": {"type": "string", "x-mcp-header": "A"}}});
        assert!(check(&referred).is_err());
    }
}
