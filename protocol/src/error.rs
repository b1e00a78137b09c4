//! Errors in the form that callers read.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::code::Code;

/// An error in the form that callers read, on standard error and in result files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ErrorBody {
    pub code: Code,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// What the caller needs to correct the call: invalid fields, similar names, the API's response.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub details: Map<String, Value>,
}

impl ErrorBody {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None, details: Map::new() }
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    #[must_use]
    pub fn detail(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.details.insert(key.to_owned(), value.into());
        self
    }
}

/// Formats an error and its causes on one line, joined by `: `.
pub fn chain(error: &dyn std::error::Error) -> String {
    let all = std::iter::successors(Some(error), |error| error.source());
    all.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// The causes of an error, without the error itself.
pub fn causes<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(error.source(), |error| error.source())
}

/// The innermost cause alone: what an HTTP client puts around it repeats the URL, which may contain a secret.
pub fn innermost_cause(error: &(dyn std::error::Error + 'static)) -> String {
    causes(error).last().map_or_else(|| "no reason given".to_owned(), ToString::to_string)
}
