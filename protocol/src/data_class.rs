//! How sensitive data is. A subtool declares it of its data, a model has a most that it may get.

use serde::{Deserialize, Serialize};

/// A class of data, from the least to the most sensitive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum DataClass {
    /// Known to everyone.
    Public,
    /// What a subtool returns that declares nothing.
    Internal,
    /// Personal data, mail, contracts.
    Confidential,
    /// Credentials, or what leads to them.
    Secret,
}

impl DataClass {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Internal => "internal",
            Self::Confidential => "confidential",
            Self::Secret => "secret",
        }
    }

    /// Parses the value of an environment variable; a malformed value means the least sensitive class.
    pub fn from_env_value(text: &str) -> Self {
        let classes = [Self::Internal, Self::Confidential, Self::Secret];
        classes.into_iter().find(|class| class.as_str() == text).unwrap_or(Self::Public)
    }
}
