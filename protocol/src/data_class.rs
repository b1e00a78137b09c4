//! How sensitive data is. A subtool declares it of its data, a model has a most that it may get.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

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

    /// The class of what a result file tells; `None` if it tells no data.
    pub fn of_result(file: &Map<String, Value>) -> Option<Self> {
        let meta = file.get("_meta");
        let declared = meta.and_then(|meta| Self::deserialize(meta.get("data_class")?).ok());
        // What was not tried has no data, and an error of what was may quote some.
        let was_tried = meta.is_some_and(|meta| meta.get("duration_ms").is_some()) || file.contains_key("last_error");
        let is_data = was_tried || file.get("success") == Some(&Value::Bool(true));
        declared.or(is_data.then_some(Self::Internal))
    }

    /// Parses the value of an environment variable; a malformed value means the least sensitive class.
    pub fn from_env_value(text: &str) -> Self {
        let classes = [Self::Internal, Self::Confidential, Self::Secret];
        classes.into_iter().find(|class| class.as_str() == text).unwrap_or(Self::Public)
    }
}
