//! One element of `argv`: a template, several templates under a condition, or an option for each item of a list.

use std::borrow::Cow;
use std::fmt;

use ground::base::template;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Map, Value};

/// An element of `argv`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Argument {
    /// One argument. If the template is exactly one reference, a list becomes several arguments, and an absent or
    /// null value becomes none.
    Template(String),
    /// Arguments under a condition, like a flag or an option with its value.
    When(ConditionalArguments),
    /// One argument for each item of a list.
    Each(EachItem),
    /// The path of a file that the program writes.
    OutputFile(OutputFile),
    /// A file that the program reads.
    InputFile(InputFile),
}

impl Argument {
    /// Its text, if that never changes.
    pub fn constant(&self) -> Option<&str> {
        match self {
            Self::Template(text) if template::is_constant(text) => Some(text),
            Self::Template(_) | Self::When(_) | Self::Each(_) | Self::OutputFile(_) | Self::InputFile(_) => None,
        }
    }
}

/// An argument that is a file which the program reads. It must lie in the folders of `[files] roots`; the program gets
/// it opened, by a path like `/proc/self/fd/5`, and an approval is bound to its content.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InputFile {
    /// The path of the file, as in `{{ path }}`: a template. A list becomes several arguments, an absent value none.
    pub input_file: String,
    /// What precedes the path in each argument, as in `--config=` or `@`. Absent: nothing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
}

/// An option that is given once for each item of a list.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EachItem {
    /// The list, as in `{{ labels }}`. Absent or empty: no argument.
    pub each: String,
    /// What precedes each item in its argument, as in `--label=`.
    pub prefix: String,
}

/// An argument that is the path of a new file in an empty folder. The program writes it, and it becomes the data.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OutputFile {
    /// The file's name, as in `report.pdf`: some programs choose the format by its extension.
    pub output_file: String,
    /// What precedes the path in the argument, as in `--output=`. Absent: nothing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
}

/// Arguments that are passed only if the condition holds.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConditionalArguments {
    /// An expression over the input, like `author` or `limit > 0`; an absent field counts as false.
    #[serde(rename = "if")]
    pub condition: String,
    /// Templates, as in `argv`.
    pub args: Vec<String>,
}

impl<'de> Deserialize<'de> for Argument {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Element;

        impl<'de> de::Visitor<'de> for Element {
            type Value = Argument;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a template, or an object with `if` and `args`, with `each` and `prefix`, with `output_file`, or \
                     with `input_file`",
                )
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Argument, E> {
                Ok(Argument::Template(text.to_owned()))
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Argument, A::Error> {
                let fields = Map::deserialize(MapAccessDeserializer::new(map))?;
                let (is_file, is_list) = (fields.contains_key("output_file"), fields.contains_key("each"));
                let is_input = fields.contains_key("input_file");
                let fields = Value::Object(fields);
                let argument = if is_input {
                    InputFile::deserialize(fields).map(Argument::InputFile)
                } else if is_list {
                    EachItem::deserialize(fields).map(Argument::Each)
                } else if is_file {
                    OutputFile::deserialize(fields).map(Argument::OutputFile)
                } else {
                    ConditionalArguments::deserialize(fields).map(Argument::When)
                };
                argument.map_err(de::Error::custom)
            }
        }

        deserializer.deserialize_any(Element)
    }
}

impl Serialize for Argument {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Template(text) => text.serialize(serializer),
            Self::When(when) => when.serialize(serializer),
            Self::Each(list) => list.serialize(serializer),
            Self::OutputFile(file) => file.serialize(serializer),
            Self::InputFile(file) => file.serialize(serializer),
        }
    }
}

impl JsonSchema for Argument {
    fn schema_name() -> Cow<'static, str> {
        "Argument".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "One argument: a template; arguments that are passed only under a condition; an option for each item of a list; the path of a file that the program writes; or a file that it reads.",
            "anyOf": [
                { "type": "string" },
                generator.subschema_for::<ConditionalArguments>(),
                generator.subschema_for::<EachItem>(),
                generator.subschema_for::<OutputFile>(),
                generator.subschema_for::<InputFile>()
            ]
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_unknown_key_beside_if_is_an_error() {
        assert!(serde_json::from_value::<Argument>(json!({"if": "a", "args": [], "else": []})).is_err());
        assert!(serde_json::from_value::<Argument>(json!({"output_file": "a", "if": "b"})).is_err());
        assert!(serde_json::from_value::<Argument>(json!(5)).is_err());
    }
}
