//! The format of a definition file, as JSON Schema: what an editor completes and flags.
//!
//! `subtools/subtool.schema.json` is [`file_schema`] as text; a test keeps it equal. The loader
//! never asks it: it decides by the types, and finds more (a template's syntax, an example that
//! does not fit). Where they differ the loader is right. It takes a spelling that the schema flags:
//! a duration in ISO 8601.
//!
//! The schema sees a file as it is written, before `$defaults` are laid under its subtools. So the
//! types' own schemas lose what they require, and it is required again, key by key, where
//! `$defaults` does not have that key.

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::catalog::definition::Definition;

/// A file's keys that are subtools.
const NAMES: &str = "^[a-zA-Z0-9_-]{1,64}$";

/// The schema of a whole definition file, draft 2020-12.
pub fn file_schema() -> Value {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    generator.subschema_for::<Definition>();
    let mut definitions = generator.take_definitions(true);
    definitions.values_mut().for_each(tidy);

    let subtool = definitions["Definition"].clone();
    let demands = demands(&subtool, &definitions);
    for name in merged(&definitions) {
        definitions[&name].as_object_mut().expect("types are described by objects").remove("required");
    }
    let subtool = definitions.remove("Definition").expect("it was just read");
    definitions.insert("Subtool".to_owned(), subtool);
    definitions.sort_keys();

    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Subtools",
        "description": "Definitions of subtools for agent-magic-tool: each key that does not begin with `$` is a subtool's name.",
        "type": "object",
        "properties": {
            "$schema": {
                "description": "The address of this schema, for editors.",
                "type": "string",
                "examples": ["./subtool.schema.json"]
            },
            "$defaults": {
                "description": "What every subtool of this file has unless it says otherwise: laid under each, object by object.",
                "$ref": "#/$defs/Subtool"
            },
            "$namespace": {
                "description": "Put before every name of this file, with a `-`.",
                "type": "string",
                "pattern": "^[a-zA-Z0-9_-]{1,62}$"
            }
        },
        "patternProperties": { NAMES: { "$ref": "#/$defs/Subtool" } },
        "additionalProperties": false,
        "allOf": demands,
        "$defs": definitions
    })
}

/// [`file_schema`] as the file `subtools/subtool.schema.json` has it.
pub fn file_schema_text() -> String {
    format!("{:#}\n", file_schema())
}

/// Makes a generated schema say more to an editor, and less that only Rust cares about.
fn tidy(schema: &mut Value) {
    match schema {
        Value::Object(keywords) => {
            one_key_of_several(keywords);
            if let Some(format) = keywords.get("format").and_then(Value::as_str)
                && format.starts_with("uint")
            {
                if format == "uint32" {
                    keywords.entry("maximum").or_insert_with(|| u32::MAX.into());
                }
                keywords.remove("format");
            }
            keywords.values_mut().for_each(tidy);
        }
        Value::Array(items) => items.iter_mut().for_each(tidy),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Turns a choice between objects of one key each into one object with one of these keys, because
/// then an editor points at the wrong key instead of saying that none of the choices fits.
fn one_key_of_several(keywords: &mut Map<String, Value>) {
    let Some(Value::Array(choices)) = keywords.get("oneOf") else { return };
    let mut properties = Map::new();
    for choice in choices {
        let Some(fields) = choice["properties"].as_object().filter(|fields| fields.len() == 1) else { return };
        for (name, schema) in fields {
            let mut schema = schema.as_object().cloned().unwrap_or_default();
            schema.extend(choice.get("description").map(|text| ("description".to_owned(), text.clone())));
            properties.insert(name.clone(), Value::Object(schema));
        }
    }
    keywords.remove("oneOf");
    keywords.insert("type".to_owned(), "object".into());
    keywords.insert("properties".to_owned(), Value::Object(properties));
    keywords.insert("additionalProperties".to_owned(), false.into());
    keywords.insert("minProperties".to_owned(), 1.into());
    keywords.insert("maxProperties".to_owned(), 1.into());
}

/// For each key of a subtool that demands something: the demand on every subtool of a file whose
/// `$defaults` do not have that key.
fn demands(subtool: &Value, definitions: &Map<String, Value>) -> Vec<Value> {
    let required = names(&subtool["required"]);
    let properties = subtool["properties"].as_object().into_iter().flatten();
    let demands = properties.filter_map(|(key, schema)| {
        let mut demand = Map::new();
        if required.contains(&key.as_str()) {
            demand.insert("required".to_owned(), json!([key]));
        }
        if let Some(deeper) = demanded(schema, definitions) {
            demand.insert("properties".to_owned(), json!({ key: deeper }));
        }
        (!demand.is_empty()).then(|| {
            json!({
                "if": { "properties": { "$defaults": { "required": [key] } }, "required": ["$defaults"] },
                "else": { "patternProperties": { NAMES: demand } }
            })
        })
    });
    demands.collect()
}

/// What `schema` and all that lies in it require, and nothing else of it.
fn demanded(schema: &Value, definitions: &Map<String, Value>) -> Option<Value> {
    let schema = resolved(schema, definitions)?;
    let mut demand = Map::new();
    if let Some(required) = schema.get("required") {
        demand.insert("required".to_owned(), required.clone());
    }
    let properties: Map<_, _> = schema["properties"]
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(key, schema)| Some((key.clone(), demanded(schema, definitions)?)))
        .collect();
    if !properties.is_empty() {
        demand.insert("properties".to_owned(), properties.into());
    }
    if let Some(deeper) = schema.get("additionalProperties").and_then(|schema| demanded(schema, definitions)) {
        demand.insert("additionalProperties".to_owned(), deeper);
    }
    (!demand.is_empty()).then(|| demand.into())
}

/// The types of `definitions` onto which `$defaults` can be laid; the elements of a list are not.
fn merged(definitions: &Map<String, Value>) -> Vec<String> {
    let mut found = vec!["Definition".to_owned()];
    let mut next = 0;
    while let Some(name) = found.get(next) {
        let mut referred = Vec::new();
        references(&definitions[name], &mut referred);
        for name in referred {
            if !found.contains(&name) {
                found.push(name);
            }
        }
        next += 1;
    }
    found
}

fn references(schema: &Value, found: &mut Vec<String>) {
    match schema {
        Value::Object(keywords) => {
            found.extend(keywords.get("$ref").and_then(definition_name).map(str::to_owned));
            keywords
                .iter()
                .filter(|(keyword, _)| *keyword != "items")
                .for_each(|(_, schema)| references(schema, found));
        }
        Value::Array(choices) => choices.iter().for_each(|schema| references(schema, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The schema itself, the one it refers to, or the one that is not null.
fn resolved<'a>(schema: &'a Value, definitions: &'a Map<String, Value>) -> Option<&'a Value> {
    if let Some(name) = schema.get("$ref").and_then(definition_name) {
        return definitions.get(name);
    }
    match schema.get("anyOf").and_then(Value::as_array).map(Vec::as_slice) {
        Some([one, null]) if null["type"] == "null" => resolved(one, definitions),
        Some(_) => None,
        None => Some(schema),
    }
}

fn definition_name(reference: &Value) -> Option<&str> {
    reference.as_str()?.strip_prefix("#/$defs/")
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}
