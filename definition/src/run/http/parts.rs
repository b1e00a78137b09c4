//! The parts of a multipart body, in the order of the definition.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_with_macros::skip_serializing_none;

/// Names and parts, in order: some services require the file to be last.
#[derive(Debug, Clone)]
pub struct FormParts(pub Vec<(String, FormPart)>);

/// A text template, or a file.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum FormPart {
    /// A text template, or `secret:NAME`.
    Text(String),
    /// The content of a file.
    File(FilePart),
}

/// A file that is sent as one part.
#[skip_serializing_none]
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FilePart {
    /// The path of the file: a template.
    pub file: String,
    /// The content type; default: guessed from the file name.
    pub content_type: Option<String>,
    /// The file name that is sent: a template; default: the file's own name.
    pub file_name: Option<String>,
}

impl<'de> Deserialize<'de> for FormPart {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrFile;
        impl<'de> Visitor<'de> for TextOrFile {
            type Value = FormPart;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or an object with `file`")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<FormPart, E> {
                Ok(FormPart::Text(text.to_owned()))
            }
            fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<FormPart, A::Error> {
                FilePart::deserialize(MapAccessDeserializer::new(fields)).map(FormPart::File)
            }
        }
        deserializer.deserialize_any(TextOrFile)
    }
}

impl<'de> Deserialize<'de> for FormParts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = FormParts;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of parts")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<FormParts, A::Error> {
                let mut parts = Vec::new();
                while let Some(part) = fields.next_entry()? {
                    parts.push(part);
                }
                Ok(FormParts(parts))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

impl Serialize for FormParts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, part)| (name, part)))
    }
}

impl JsonSchema for FormParts {
    fn schema_name() -> Cow<'static, str> {
        "Parts".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        std::collections::BTreeMap::<String, FormPart>::json_schema(generator)
    }
}
