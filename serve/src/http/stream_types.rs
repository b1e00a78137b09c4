//! Errors and events as the OpenAPI document describes them.

use protocol::error::ErrorBody;
use schemars::JsonSchema;
use serde::Serialize;

use crate::error_shape::ErrorShape;

/// An error.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ErrorAnswer {
    #[schemars(with = "ErrorShape")]
    pub(super) error: ErrorBody,
}
