//! What is known of a task beside its state: why it was asked for, and how its attempts went.

use jiff::Timestamp;
use protocol::data_class::DataClass;
use protocol::error::ErrorBody;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::confirmation::MAX_REASON_CHARS;

/// What is known of a task. The default is nothing.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskNotes {
    /// Why the last attempt failed, while the next one is waited for.
    pub last_failure: Option<LastFailure>,
    /// The job that a server does for the current attempt: its URL, or what the runner said of it. A lost attempt goes
    /// on with it, since asking for a job changes nothing.
    pub job: Option<String>,
    /// Whether the current attempt waits for a human before it sends anything: if it is lost, it is begun again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_unsent: bool,
    /// How many attempts were lost that had sent nothing. They count towards no limit of attempts.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unsent_attempts: u32,
    /// The agent's own reason for the call; unverified.
    pub reason: Option<String>,
    /// The class of what its input was taken from.
    pub input_class: Option<DataClass>,
    /// The class of its data, and of what its input was taken from; `None` if both are internal by default.
    pub data_class: Option<DataClass>,
    /// Whether the result is to have all pages of the list.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all_pages: bool,
    /// The search words that led the caller to this subtool. Only while the executor that accepted the task runs.
    #[serde(skip)]
    pub found_by: Option<String>,
    /// How far the running attempt is. Not recorded.
    #[serde(skip)]
    pub progress: Option<AttemptProgress>,
}

/// How far an attempt is, as its far side says it.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct AttemptProgress {
    pub done: Option<f64>,
    pub total: Option<f64>,
    pub message: Option<String>,
    /// Whether the far side asked something that a human must answer first.
    #[serde(skip)]
    pub asks_human: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl TaskNotes {
    /// The notes of a task that is accepted with this reason.
    pub fn of_reason(reason: Option<&str>) -> Self {
        Self { reason: reason.map(|reason| reason.chars().take(MAX_REASON_CHARS).collect()), ..Self::default() }
    }
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
