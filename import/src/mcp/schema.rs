//! Schemas of a server's tools: kept as they are, or refused as a whole.
//!
//! What is changed does not change what the server accepts: its dialect is written in the usual way, defaults become
//! words, since the executor would send them, and patterns that need a backtracking engine become words too.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::names;
use crate::schema::{append_description, defaults};

/// The largest schema of a tool in bytes of JSON.
const MAX_SCHEMA_BYTES: usize = 128 << 10;
/// The longest default or pattern that a description takes over.
const MAX_SHOWN_CHARS: usize = 80;

/// Keywords whose values are no schemas.
const PLAIN: [&str; 6] = ["enum", "const", "default", "examples", "example", "required"];
/// Keywords with schemas by names of the author's choice.
const MAPS: [&str; 6] = ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"];
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// A schema that can be used.
#[derive(Debug)]
pub(super) struct ToolSchema {
    pub(super) schema: Map<String, Value>,
    /// What it allows that the server's does not.
    pub(super) simplified: BTreeSet<String>,
}

impl ToolSchema {
    /// Makes the schema of the arguments of a call.
    pub(super) fn of_input(schema: &Value) -> Result<Self, String> {
        let mut own = Self::read(schema, "input")?;
        match own.schema.get("type") {
            Some(Value::String(kind)) if kind == "object" => {}
            // Arguments are always an object.
            Some(Value::Array(kinds)) if kinds.iter().any(|kind| kind == "object") => own.set_object(),
            None => own.set_object(),
            Some(kind) => return Err(format!("its input is {kind}, and arguments are an object")),
        }
        // The tool has a title of its own.
        own.schema.remove("title");
        tidy_fields(&mut own.schema);
        Ok(own)
    }

    /// Makes the schema of the structured content of a result.
    pub(super) fn of_output(schema: &Value) -> Result<Self, String> {
        Self::read(schema, "output")
    }

    fn read(schema: &Value, what: &str) -> Result<Self, String> {
        let Value::Object(schema) = schema else {
            return Err(format!("the schema of its {what} is missing, or is no object"));
        };
        let mut schema = schema.clone();
        let bytes = Value::Object(schema.clone()).to_string().len();
        if bytes > MAX_SCHEMA_BYTES {
            return Err(format!("the schema of its {what} has {bytes} bytes, of which {MAX_SCHEMA_BYTES} are allowed"));
        }
        dialect(&mut schema)?;
        let mut ids = BTreeSet::new();
        collect_ids(&schema, &mut ids);
        check_references(&schema, &ids)?;
        let mut simplified = BTreeSet::new();
        tell_patterns(&mut schema, &mut simplified);
        Ok(Self { schema, simplified })
    }

    fn set_object(&mut self) {
        self.schema.insert("type".to_owned(), "object".into());
    }
}

/// Writes the dialect in the way that validators know.
fn dialect(schema: &mut Map<String, Value>) -> Result<(), String> {
    let Some(named) = schema.get("$schema") else { return Ok(()) };
    let place = named.as_str().unwrap_or_default().trim_end_matches('#').trim_end_matches('/');
    let place = place.strip_prefix("https://").or_else(|| place.strip_prefix("http://")).unwrap_or(place);
    let usual = match place {
        // What a schema is without a word.
        "" | "json-schema.org/draft/2020-12/schema" | "json-schema.org/schema" => {
            schema.remove("$schema");
            return Ok(());
        }
        "json-schema.org/draft/2019-09/schema" => "https://json-schema.org/draft/2019-09/schema",
        "json-schema.org/draft-07/schema" => "http://json-schema.org/draft-07/schema#",
        "json-schema.org/draft-06/schema" => "http://json-schema.org/draft-06/schema#",
        "json-schema.org/draft-04/schema" => "http://json-schema.org/draft-04/schema#",
        _ => return Err(format!("its schema is of an unknown dialect, {named}")),
    };
    schema.insert("$schema".to_owned(), usual.into());
    Ok(())
}

/// Calls `visit` with every schema inside `schema`.
fn each_part<'a>(
    schema: &'a Map<String, Value>,
    visit: &mut impl FnMut(&'a Map<String, Value>) -> Result<(), String>,
) -> Result<(), String> {
    for (key, value) in schema.iter().filter(|(key, _)| !PLAIN.contains(&key.as_str())) {
        match value {
            Value::Object(parts) if MAPS.contains(&key.as_str()) => {
                parts.values().filter_map(Value::as_object).try_for_each(&mut *visit)?;
            }
            Value::Object(part) => visit(part)?,
            Value::Array(parts) => parts.iter().filter_map(Value::as_object).try_for_each(&mut *visit)?,
            _ => {}
        }
    }
    Ok(())
}

fn collect_ids<'a>(schema: &'a Map<String, Value>, ids: &mut BTreeSet<&'a str>) {
    ids.extend(["$id", "id"].iter().filter_map(|key| schema.get(*key)?.as_str()));
    // Collecting never fails.
    let _collected = each_part(schema, &mut |part| {
        collect_ids(part, ids);
        Ok(())
    });
}

/// Refuses a schema that needs another file: fetching it would ask a server that no one chose.
fn check_references(schema: &Map<String, Value>, ids: &BTreeSet<&str>) -> Result<(), String> {
    for reference in REFERENCES.iter().filter_map(|key| schema.get(*key)?.as_str()) {
        let place = reference.split('#').next().unwrap_or_default();
        if !place.is_empty() && !ids.contains(place) && !ids.contains(reference) {
            let shown: String = reference.chars().take(MAX_SHOWN_CHARS).collect();
            return Err(format!("it refers to `{shown}`, which lies outside of its schema"));
        }
    }
    each_part(schema, &mut |part| check_references(part, ids))
}

/// Turns the defaults of optional fields into words: as defaults they would be sent, where the server uses its own. A
/// required field with a default is optional, and its default is sent. Drops titles that only repeat a field's name.
fn tidy_fields(schema: &mut Map<String, Value>) {
    if let Some(Value::Object(items)) = schema.get_mut("items") {
        tidy_fields(items);
    }
    let mut required: Vec<Value> = schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    let demanded = required.len();
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    for (name, property) in properties.into_iter().flatten() {
        let Value::Object(property) = property else { continue };
        let repeats = |title: &Value| title.as_str().is_some_and(|title| names::words(title) == names::words(name));
        if property.get("title").is_some_and(repeats) {
            property.remove("title");
        }
        if let Some(at) = required.iter().position(|it| *it == **name)
            && let Some(default) = property.get("default").and_then(|default| defaults::usable(default, property))
        {
            property.insert("default".to_owned(), default);
            required.remove(at);
        } else if let Some(default) = property.remove("default") {
            let says_so = property.get("description").and_then(Value::as_str).unwrap_or_default();
            let shown = default.as_str().map_or_else(|| default.to_string(), str::to_owned);
            let is_plain = !shown.is_empty() && !shown.contains('\n') && shown.chars().count() <= MAX_SHOWN_CHARS;
            if !default.is_null() && is_plain && !says_so.to_lowercase().contains("default") {
                append_description(property, &format!("Default: {shown}."));
            }
        }
        tidy_fields(property);
    }
    if required.is_empty() && demanded > 0 {
        schema.remove("required");
    } else if required.len() < demanded {
        schema.insert("required".to_owned(), required.into());
    }
}

/// Turns patterns that cannot be matched in linear time into words.
fn tell_patterns(schema: &mut Map<String, Value>, simplified: &mut BTreeSet<String>) {
    let pattern =
        schema.get("pattern").and_then(Value::as_str).filter(|pattern| backtracks(pattern)).map(str::to_owned);
    if let Some(pattern) = pattern {
        schema.remove("pattern");
        if pattern.chars().count() <= MAX_SHOWN_CHARS {
            append_description(schema, &format!("Pattern: {pattern}"));
        }
        simplified.insert("a pattern that looks ahead or back is left to the server".to_owned());
    }
    for (key, value) in schema.iter_mut().filter(|(key, _)| !PLAIN.contains(&key.as_str())) {
        match value {
            Value::Object(parts) if MAPS.contains(&key.as_str()) => {
                let parts = parts.values_mut().filter_map(Value::as_object_mut);
                parts.for_each(|part| tell_patterns(part, simplified));
            }
            Value::Object(part) => tell_patterns(part, simplified),
            Value::Array(parts) => {
                parts.iter_mut().filter_map(Value::as_object_mut).for_each(|part| tell_patterns(part, simplified));
            }
            _ => {}
        }
    }
}

/// Whether `pattern` looks around itself or refers back.
fn backtracks(pattern: &str) -> bool {
    let looks = ["(?=", "(?!", "(?<=", "(?<!", "\\k<"].iter().any(|sign| pattern.contains(sign));
    let bytes = pattern.as_bytes();
    let mut index = 0;
    while index + 1 < bytes.len() {
        if bytes[index] == b'\\' {
            if matches!(bytes[index + 1], b'1'..=b'9') {
                return true;
            }
            index += 1;
        }
        index += 1;
    }
    looks
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn input(schema: &Value) -> Value {
        Value::Object(ToolSchema::of_input(schema).expect("usable").schema)
    }

    #[test]
    fn a_schema_stays_as_it_is() {
        for schema in [
            json!({"type": "object"}),
            json!({"type": "object", "additionalProperties": false}),
            json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"type": ["string", "null"]}}}),
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object",
                "properties": {"a": {"type": "array", "items": [{"type": "string"}]}}}),
            // Names of the author, not keywords.
            json!({"type": "object", "properties": {"$ref": {"type": "string"}, "pattern": {"type": "string"}, "default": {"type": "integer"}}}),
            json!({"type": "object", "$id": "https://a.example/s", "properties": {"a": {"$ref": "https://a.example/s#/$defs/x"}}, "$defs": {"x": {}}}),
        ] {
            assert_eq!(input(&schema), schema);
        }
    }

    #[test]
    fn a_dialect_is_written_in_the_usual_way_and_an_object_is_one() {
        let draft = |name: &str| json!({"$schema": name, "type": "object"});
        assert_eq!(input(&draft("https://json-schema.org/draft/2020-12/schema")), json!({"type": "object"}));
        assert_eq!(
            input(&draft("https://json-schema.org/draft-07/schema")),
            draft("http://json-schema.org/draft-07/schema#")
        );
        assert_eq!(input(&json!({})), json!({"type": "object"}));
        assert_eq!(input(&json!({"type": ["object", "null"]})), json!({"type": "object"}));
    }

    #[test]
    fn what_cannot_be_used_is_refused_as_a_whole() {
        for schema in [
            Value::Null,
            json!([]),
            json!({"type": "string"}),
            json!({"$schema": "https://example.com/own-dialect", "type": "object"}),
            json!({"type": "object", "properties": {"a": {"$ref": "https://example.com/a.json"}}}),
            json!({"type": "object", "properties": {"a": {"anyOf": [{"items": {"$ref": "other.json#/x"}}]}}}),
            json!({"type": "object", "description": "x".repeat(MAX_SCHEMA_BYTES)}),
        ] {
            assert!(ToolSchema::of_input(&schema).is_err(), "{schema}");
        }
    }

    #[test]
    fn a_default_becomes_words_and_is_not_sent() {
        let schema = json!({"type": "object", "properties": {
            "limit": {"type": "integer", "default": 10},
            "mode": {"type": "string", "description": "The mode", "default": "fast"},
            "said": {"type": "string", "description": "Defaults to fast.", "default": "fast"},
            "none": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": null},
            "inner": {"type": "object", "title": "Inner", "properties": {"deep": {"type": "boolean", "default": false}}}
        }});
        assert_eq!(
            input(&schema),
            json!({"type": "object", "properties": {
                "limit": {"type": "integer", "description": "Default: 10."},
                "mode": {"type": "string", "description": "The mode. Default: fast."},
                "said": {"type": "string", "description": "Defaults to fast."},
                "none": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                "inner": {"type": "object", "properties": {"deep": {"type": "boolean", "description": "Default: false."}}}
            }})
        );
    }

    #[test]
    fn a_pattern_that_backtracks_becomes_words() {
        let schema = json!({"type": "object", "properties": {
            "mail": {"type": "string", "pattern": "^(?!\\.)[a-z]+$"},
            "twice": {"type": "array", "items": {"type": "string", "pattern": "(a)\\1"}},
            "plain": {"type": "string", "pattern": "^\\\\1[a-z]$"}
        }});
        let own = ToolSchema::of_input(&schema).expect("usable");
        assert_eq!(
            Value::Object(own.schema),
            json!({"type": "object", "properties": {
                "mail": {"type": "string", "description": "Pattern: ^(?!\\.)[a-z]+$"},
                "twice": {"type": "array", "items": {"type": "string", "description": "Pattern: (a)\\1"}},
                "plain": {"type": "string", "pattern": "^\\\\1[a-z]$"}
            }})
        );
        assert_eq!(own.simplified.len(), 1);
    }
}
