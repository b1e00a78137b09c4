//! Errors and events as the OpenAPI document describes them.

use protocol::error::ErrorBody;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

/// An error.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ErrorAnswer {
    #[schemars(with = "ErrorShape")]
    pub(super) error: ErrorBody,
}

/// What is wrong, and how to go on.
#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) struct ErrorShape {
    /// One of a fixed list, like `bad-api-key`.
    code: String,
    message: String,
    hint: Option<String>,
    details: Option<Map<String, Value>>,
}
