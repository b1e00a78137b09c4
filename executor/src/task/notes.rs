//! What is known of the attempts of an open task, beside its state.

use jiff::Timestamp;
use protocol::error::ErrorBody;
use serde::{Deserialize, Serialize};

/// What is known of the attempts so far. The default is nothing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskNotes {
    /// Why the last attempt failed, while the next one is waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<LastFailure>,
    /// The URL of the job that a server does for the current attempt. A lost attempt goes on with it, since asking for
    /// a job changes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
}

/// Why an attempt failed that is followed by another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LastFailure {
    pub at: Timestamp,
    pub error: ErrorBody,
    /// Whether the server said how long to wait.
    #[serde(default)]
    pub server_asked: bool,
}
