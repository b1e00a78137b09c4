//! A document: what the index knows of one subtool, and where its words stand.

use serde_json::{Map, Value};

use crate::fields::{DESCRIPTION, FIELD_COUNT, NAME, PARAMETERS, PHRASES, TEXTS};
use crate::verbs::Verb;

/// How deep a schema is read. What lies deeper says little about the subtool.
const MAX_DEPTH: usize = 12;
/// How many parameters of one schema are read.
const MAX_PARAMETERS: usize = 2_000;

/// One subtool, as far as a search is concerned.
#[derive(Debug, Clone, Copy)]
pub struct Document<'a> {
    pub name: &'a str,
    pub description: &'a str,
    /// What users say when they want it.
    pub phrases: &'a [String],
    pub tags: &'a [String],
    /// What it does, if that is known from elsewhere than its words.
    pub verb: Option<Verb>,
    /// The JSON Schema of its input.
    pub input: &'a Map<String, Value>,
}

impl<'a> Document<'a> {
    /// The texts of the fields that are written in the definition.
    pub(crate) fn texts(&self) -> [Vec<&'a str>; FIELD_COUNT] {
        let mut texts = [const { Vec::new() }; FIELD_COUNT];
        texts[NAME].push(self.name);
        texts[DESCRIPTION].push(self.description);
        let mut schema = SchemaWords::default();
        schema.collect(self.input, 0);
        texts[PARAMETERS] = schema.names;
        texts[TEXTS] = schema.texts;
        texts[TEXTS].extend(self.tags.iter().map(String::as_str));
        texts[PHRASES].extend(self.phrases.iter().map(String::as_str));
        texts
    }
}

/// The names of all parameters in a schema, and the titles, descriptions and choices of their schemas.
#[derive(Default)]
struct SchemaWords<'a> {
    names: Vec<&'a str>,
    texts: Vec<&'a str>,
}

impl<'a> SchemaWords<'a> {
    fn collect(&mut self, schema: &'a Map<String, Value>, depth: usize) {
        if depth > MAX_DEPTH {
            return;
        }
        if let Some(Value::Object(properties)) = schema.get("properties") {
            for (name, property) in properties {
                if self.names.len() >= MAX_PARAMETERS {
                    return;
                }
                self.names.push(name);
                self.describe(property);
                self.descend(property, depth);
            }
        }
        for key in ["items", "additionalProperties"] {
            if let Some(part) = schema.get(key) {
                self.descend(part, depth);
            }
        }
        for key in ["anyOf", "oneOf", "allOf", "prefixItems"] {
            for part in schema.get(key).and_then(Value::as_array).into_iter().flatten() {
                self.describe(part);
                self.descend(part, depth);
            }
        }
        for key in ["$defs", "definitions"] {
            for part in schema.get(key).and_then(Value::as_object).into_iter().flatten().map(|(_, part)| part) {
                self.describe(part);
                self.descend(part, depth);
            }
        }
    }

    fn descend(&mut self, schema: &'a Value, depth: usize) {
        if let Value::Object(schema) = schema {
            self.collect(schema, depth + 1);
        }
    }

    fn describe(&mut self, schema: &'a Value) {
        for key in ["title", "description", "const"] {
            self.texts.extend(schema.get(key).and_then(Value::as_str));
        }
        let choices = schema.get("enum").and_then(Value::as_array).into_iter().flatten();
        self.texts.extend(choices.filter_map(Value::as_str));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn parameters_are_found_wherever_a_schema_hides_them() {
        let schema = json!({
            "properties": {"to": {"description": "Who", "enum": ["me", "all"]}, "list": {"items": {"$ref": "#/$defs/x"}}},
            "anyOf": [{"properties": {"cc": {"title": "Copy"}}}],
            "$defs": {"x": {"description": "An item", "properties": {"deep": {"const": "fixed"}}}},
            "additionalProperties": {"properties": {"extra": true}},
        });
        let input = schema.as_object().expect("an object");
        let tags = ["mail".to_owned()];
        let texts = Document { name: "n", description: "d", phrases: &[], tags: &tags, verb: None, input }.texts();
        assert_eq!(texts[PARAMETERS], ["to", "list", "extra", "cc", "deep"]);
        assert_eq!(texts[TEXTS], ["Who", "me", "all", "Copy", "An item", "fixed", "mail"]);
    }

    #[test]
    fn a_schema_that_never_ends_is_read_to_a_depth() {
        let mut schema = json!({});
        for _ in 0..1000 {
            schema = json!({"items": schema});
        }
        let input = schema.as_object().expect("an object");
        assert_eq!(
            Document { name: "n", description: "", phrases: &[], tags: &[], verb: None, input }.texts()[PARAMETERS],
            [""; 0]
        );
        // Dropping it would recurse as deeply.
        std::mem::forget(schema);
    }
}
