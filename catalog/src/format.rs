//! The format of a definition file as JSON Schema, for completion and checks in editors.
//!
//! `subtools/subtool.schema.json` contains [`file_schema`]; a test keeps it up to date. The loader does not use it: it
//! checks the types directly, and more than a schema can express, such as template syntax and examples. Where the two
//! differ, the loader is right; for example it accepts ISO 8601 durations, which the schema does not.
//!
//! The schema describes a file as written, before `$defaults` are merged into its subtools. So `required` is removed
//! from the types' own schemas, and each key is required again where `$defaults` does not have it.

use definition::Definition;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

/// The pattern of the keys that are names of subtools.
const NAMES: &str = "^[a-zA-Z0-9_-]{1,64}$";

/// Returns the schema of a definition file, in draft 2020-12.
pub fn file_schema() -> Value {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    generator.subschema_for::<Definition>();
    let mut definitions = generator.take_definitions(true);
    definitions.values_mut().for_each(simplify);

    let subtool = definitions["Definition"].clone();
    let requirements = requirements(&subtool, &definitions);
    for name in mergeable(&definitions) {
        definitions[&name].as_object_mut().expect("the schema of a type is an object").remove("required");
    }
    let mut subtool = definitions.remove("Definition").expect("`Definition` was read above");
    let run = &mut subtool["properties"]["run"];
    let about = run["description"].take();
    *run = json!({
        "description": about,
        "if": { "type": "object", "required": ["$choose"] },
        "then": { "$ref": "#/$defs/RunChoice" },
        "else": { "$ref": "#/$defs/Run" }
    });
    definitions.insert("RunChoice".to_owned(), run_choice());
    definitions.insert("Subtool".to_owned(), subtool);
    definitions.sort_keys();

    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Subtools",
        "description": "Definitions of subtools for agent-magic-tool: each key that does not begin with `$` is a subtool's name.",
        "type": "object",
        "properties": {
            "$schema": {
                "description": "The path or URL of this schema, for editors.",
                "type": "string",
                "examples": ["./subtool.schema.json"]
            },
            "$source": {
                "description": "Where the file was imported from, and what was generated. `import` writes it, and `import --refresh` reads it.",
                "type": "object"
            },
            "$defaults": {
                "description": "Defaults for every subtool of this file. Each subtool is merged over them, object by object.",
                "$ref": "#/$defs/Subtool"
            },
            "$overrides": {
                "description": "Changes of subtools that ship with the program, by name: each is merged over the shipped definition, object by object.",
                "type": "object",
                "patternProperties": { NAMES: { "$ref": "#/$defs/Subtool" } },
                "additionalProperties": false
            },
            "$namespace": {
                "description": "A prefix for every name in this file, followed by `-`.",
                "type": "string",
                "pattern": "^[a-zA-Z0-9_-]{1,62}$"
            }
        },
        "patternProperties": { NAMES: { "$ref": "#/$defs/Subtool" } },
        "additionalProperties": false,
        "allOf": requirements,
        "$defs": definitions
    })
}

/// The schema of a `run` that a variable of the configuration chooses.
fn run_choice() -> Value {
    json!({
        "description": "Several runners, of which a variable of the configuration names one.",
        "type": "object",
        "properties": {
            "$choose": {
                "description": "The name of the runner to use, usually a variable.",
                "type": "string",
                "examples": ["{{ vars.search_engine }}"]
            }
        },
        "additionalProperties": { "$ref": "#/$defs/Run" },
        "minProperties": 2
    })
}

/// Returns [`file_schema`] as the text of `subtools/subtool.schema.json`.
pub fn file_schema_text() -> String {
    format!("{:#}\n", file_schema())
}

/// Makes a generated schema more helpful in editors, and removes details that matter only to Rust.
pub(super) fn simplify(schema: &mut Value) {
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
            keywords.values_mut().for_each(simplify);
        }
        Value::Array(items) => items.iter_mut().for_each(simplify),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Turns a `oneOf` over objects with one key each into one object with exactly one of these keys. Then an editor points
/// at a wrong key instead of reporting that no alternative matches.
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

/// Returns, for each key of a subtool that is required or has required keys, a schema that requires them in every
/// subtool of a file whose `$defaults` do not have that key.
fn requirements(subtool: &Value, definitions: &Map<String, Value>) -> Vec<Value> {
    let required = names(&subtool["required"]);
    let properties = subtool["properties"].as_object().into_iter().flatten();
    let requirements = properties.filter_map(|(key, schema)| {
        let mut requirement = Map::new();
        if required.contains(&key.as_str()) {
            requirement.insert("required".to_owned(), json!([key]));
        }
        if let Some(nested) = requirement_of(schema, definitions) {
            requirement.insert("properties".to_owned(), json!({ key: nested }));
        }
        (!requirement.is_empty()).then(|| {
            json!({
                "if": { "properties": { "$defaults": { "required": [key] } }, "required": ["$defaults"] },
                "else": { "patternProperties": { NAMES: requirement } }
            })
        })
    });
    requirements.collect()
}

/// Returns only the `required` keywords of `schema`, at all levels.
fn requirement_of(schema: &Value, definitions: &Map<String, Value>) -> Option<Value> {
    let schema = resolved(schema, definitions)?;
    let mut requirement = Map::new();
    if let Some(required) = schema.get("required") {
        requirement.insert("required".to_owned(), required.clone());
    }
    let properties: Map<_, _> = schema["properties"]
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(key, schema)| Some((key.clone(), requirement_of(schema, definitions)?)))
        .collect();
    if !properties.is_empty() {
        requirement.insert("properties".to_owned(), properties.into());
    }
    if let Some(nested) = schema.get("additionalProperties").and_then(|schema| requirement_of(schema, definitions)) {
        requirement.insert("additionalProperties".to_owned(), nested);
    }
    (!requirement.is_empty()).then(|| requirement.into())
}

/// Returns the types of `definitions` that can be merged with `$defaults`. The elements of an array cannot.
fn mergeable(definitions: &Map<String, Value>) -> Vec<String> {
    let mut found = vec!["Definition".to_owned()];
    let mut next = 0;
    while let Some(name) = found.get(next) {
        let mut referenced = Vec::new();
        references(&definitions[name], &mut referenced);
        for name in referenced {
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

/// Returns the schema itself, the one that it references, or the alternative that is not null.
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
