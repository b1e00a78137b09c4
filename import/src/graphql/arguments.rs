//! The arguments of a GraphQL field as JSON Schema.
//!
//! Input objects are written out in place, to a depth; one that contains itself is cut there and says so.

use serde_json::{Map, Value, json};

use super::schema::{GraphqlArgument, GraphqlSchema, TypeKind, TypeReference};
use crate::describe;
use crate::names;

/// How deep input objects are written out, unless the user says: what models fill in is rarely deeper.
const DEFAULT_DEPTH: usize = 4;
/// The most properties of one subtool, at all depths: what is beyond is an object without a description of its fields.
const MAX_PROPERTIES: usize = 200;
/// The most values of an enum that are listed.
const MAX_VALUES: usize = 250;

pub(super) struct ArgumentSchemas<'a> {
    schema: &'a GraphqlSchema,
    depth: usize,
    left: usize,
}

impl<'a> ArgumentSchemas<'a> {
    pub(super) fn new(schema: &'a GraphqlSchema, depth: Option<usize>) -> Self {
        Self { schema, depth: depth.unwrap_or(DEFAULT_DEPTH), left: MAX_PROPERTIES }
    }

    /// Returns the schema of an object with these properties.
    pub(super) fn object(&mut self, arguments: &[GraphqlArgument]) -> Map<String, Value> {
        self.fields(arguments, &mut Vec::new())
    }

    fn fields(&mut self, arguments: &[GraphqlArgument], path: &mut Vec<String>) -> Map<String, Value> {
        let properties: Map<_, _> =
            arguments.iter().map(|argument| (argument.name.clone(), self.property(argument, path))).collect();
        let required: Vec<_> =
            arguments.iter().filter(|it| it.is_required()).map(|it| Value::from(it.name.as_str())).collect();
        let mut object = Map::new();
        object.insert("type".to_owned(), "object".into());
        object.insert("properties".to_owned(), properties.into());
        if !required.is_empty() {
            object.insert("required".to_owned(), required.into());
        }
        object.insert("additionalProperties".to_owned(), false.into());
        object
    }

    fn property(&mut self, argument: &GraphqlArgument, path: &mut Vec<String>) -> Value {
        self.left = self.left.saturating_sub(1);
        let mut schema = self.of_type(&argument.kind, path);
        let mut description = describe::field(&argument.description);
        if description.is_empty() {
            description = self.described_by_type(argument);
        }
        if let Some(text) = &argument.default {
            if let Some(default) = json_of(text) {
                schema.insert("default".to_owned(), default);
            } else {
                description.push_str(" Default: ");
                description.push_str(text);
            }
        }
        let own = schema.remove("description").and_then(|it| it.as_str().map(str::to_owned)).unwrap_or_default();
        let description = [description.as_str(), &own].join(" ").trim().to_owned();
        schema.insert("description".to_owned(), description.into());
        schema.into()
    }

    /// What an argument without a description is: its type's description, or its name in words.
    fn described_by_type(&self, argument: &GraphqlArgument) -> String {
        let name = argument.kind.name();
        let known = self.schema.types.get(name).map(|known| describe::field(&known.description));
        let is_builtin = matches!(name, "Int" | "Float" | "String" | "Boolean" | "ID");
        match known.filter(|text| !text.is_empty() && !is_builtin) {
            Some(text) => text,
            None => crate::text::sentence(&names::words(&argument.name).join(" ")),
        }
    }

    fn of_type(&mut self, kind: &TypeReference, path: &mut Vec<String>) -> Map<String, Value> {
        match kind {
            TypeReference::NonNull(inner) => self.of_type(inner, path),
            TypeReference::List(inner) => {
                let items = self.of_type(inner, path);
                map(json!({"type": "array", "items": items}))
            }
            TypeReference::Named(name) => self.of_named(name, path),
        }
    }

    fn of_named(&mut self, name: &str, path: &mut Vec<String>) -> Map<String, Value> {
        let Some(known) = self.schema.types.get(name).filter(|known| known.kind != TypeKind::Scalar) else {
            return scalar(name);
        };
        match known.kind {
            TypeKind::Enum if known.values.len() <= MAX_VALUES => {
                let values: Vec<_> = known.values.iter().map(|(value, _)| value.as_str()).collect();
                map(json!({"type": "string", "enum": values}))
            }
            TypeKind::Enum => map(json!({"type": "string", "description": format!("A value of `{name}`.")})),
            TypeKind::InputObject => {
                let is_cut = path.len() >= self.depth || self.left == 0;
                if path.iter().any(|outer| outer == name) {
                    return map(
                        json!({"type": "object", "description": format!("Has the fields of `{name}`, as above.")}),
                    );
                }
                if is_cut {
                    return map(json!({"type": "object", "description": format!("A `{name}`.")}));
                }
                path.push(name.to_owned());
                let object = self.fields(&known.inputs, path);
                path.pop();
                object
            }
            TypeKind::Scalar | TypeKind::Object | TypeKind::Interface | TypeKind::Union => Map::new(),
        }
    }
}

/// A scalar: those of GraphQL, those that most servers mean alike, or any value.
fn scalar(name: &str) -> Map<String, Value> {
    let schema = match name {
        "Int" => json!({"type": "integer"}),
        "Float" => json!({"type": "number"}),
        "Boolean" => json!({"type": "boolean"}),
        "String" | "ID" | "UUID" | "Time" | "HTML" | "Base64" | "Cursor" | "EmailAddress" | "Duration" => {
            json!({"type": "string"})
        }
        "DateTime" | "ISO8601DateTime" | "Timestamptz" | "timestamptz" => {
            json!({"type": "string", "description": "A time like `2026-05-01T09:00:00Z`."})
        }
        "Date" | "ISO8601Date" => json!({"type": "string", "description": "A day like `2026-05-01`."}),
        "URI" | "URL" => json!({"type": "string", "description": "A URL."}),
        "JSONObject" | "Map" => json!({"type": "object"}),
        "JSON" | "Any" | "Object" => json!({"description": "Any JSON value."}),
        other => json!({"description": format!("A `{other}`.")}),
    };
    map(schema)
}

/// A default as JSON; `None` if only GraphQL can say it.
fn json_of(text: &str) -> Option<Value> {
    match serde_json::from_str(text) {
        Ok(Value::Null) => None,
        Ok(value) => Some(value),
        Err(_) if text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') => Some(text.into()),
        Err(_) => None,
    }
}

fn map(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}
