//! The name of a subtool.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The name of a subtool: 1 to 64 characters of `a-z A-Z 0-9 _ -`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SubtoolName(String);

#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a valid subtool name; use 1 to 64 of the characters a-z A-Z 0-9 _ -")]
pub struct InvalidName(String);

impl SubtoolName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SubtoolName {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        if is_name(text) { Ok(Self(text.to_owned())) } else { Err(InvalidName(text.to_owned())) }
    }
}

/// Whether `text` is a valid name of a subtool or a secret.
pub fn is_name(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}

impl fmt::Display for SubtoolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::borrow::Borrow<str> for SubtoolName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for SubtoolName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

impl Serialize for SubtoolName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl JsonSchema for SubtoolName {
    fn schema_name() -> Cow<'static, str> {
        "SubtoolName".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^[a-zA-Z0-9_-]{1,64}$" })
    }
}
