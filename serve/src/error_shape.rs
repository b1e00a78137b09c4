//! An error as the OpenAPI document describes it.

use schemars::JsonSchema;
use serde_json::{Map, Value};

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
