//! The value of a declared header: one template, or several if the header is sent several times.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// One template for each time that the header is sent, in order.
#[derive(Debug, Clone)]
pub struct HeaderTemplates(pub Vec<String>);

impl<'de> Deserialize<'de> for HeaderTemplates {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrSeveral;
        impl<'de> Visitor<'de> for OneOrSeveral {
            type Value = HeaderTemplates;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or an array of strings")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<HeaderTemplates, E> {
                Ok(HeaderTemplates(vec![text.to_owned()]))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<HeaderTemplates, A::Error> {
                let mut templates = Vec::new();
                while let Some(template) = items.next_element()? {
                    templates.push(template);
                }
                Ok(HeaderTemplates(templates))
            }
        }
        deserializer.deserialize_any(OneOrSeveral)
    }
}

impl Serialize for HeaderTemplates {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [template] => serializer.serialize_str(template),
            templates => serializer.collect_seq(templates),
        }
    }
}

impl JsonSchema for HeaderTemplates {
    fn schema_name() -> Cow<'static, str> {
        "HeaderTemplates".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A template, or an array of templates for a header that is sent several times.",
            "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]
        })
    }
}
