//! How a job is waited for that a server accepted and has not done yet.

use protocol::duration::PositiveDuration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

/// How to wait for a job. Each expression is jq over the body of the latest response, with `$status` and `$headers`.
#[skip_serializing_none]
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Poll {
    /// The URL of the job, from the response that accepted it; may be relative to the request. Absent: the header `Location` or `Operation-Location`.
    #[schemars(example = ".links.self", example = "\"/jobs/\" + .id")]
    pub url: Option<String>,
    /// The time between two requests; a `Retry-After` of the server can extend it. Absent: `2s`.
    #[serde(default = "default_interval")]
    pub interval: PositiveDuration,
    /// True when the job is done. Absent: as soon as the status is not 202.
    #[schemars(example = ".status == \"completed\"")]
    pub until: Option<String>,
    /// True, or the reason as text, if the job failed. Absent: it fails only with an error status.
    #[schemars(example = "if .status == \"failed\" then .error.message // true else false end")]
    pub failed: Option<String>,
    /// The URL of the result of a job that is done. Absent: the body of the job is the result.
    #[schemars(example = ".result_url")]
    pub result: Option<String>,
}

fn default_interval() -> PositiveDuration {
    PositiveDuration::from_millis(2_000)
}
