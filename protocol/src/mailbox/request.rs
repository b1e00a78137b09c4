//! The format of requests, and of answers that are not result files.

use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::caller::Caller;
use crate::data_class::DataClass;
use crate::duration::PositiveDuration;
use crate::error::ErrorBody;
use crate::json;
use crate::mailbox::for_callers::{ListingAnswer, ListingQuestion};
use crate::resolution::Resolution;
use crate::task::{State, TaskId};

/// The version of this format; any other one is refused.
pub const VERSION: u32 = 2;

/// One request file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    pub v: u32,
    pub operation: Operation,
    #[serde(default)]
    pub caller: Caller,
}

impl Request {
    pub fn new(operation: Operation, caller: Caller) -> Self {
        Self { v: VERSION, operation, caller }
    }

    /// Parses a request file.
    pub fn parse(bytes: &[u8]) -> Result<Self, InvalidRequest> {
        let file: Value = json::parse(bytes).map_err(|error| InvalidRequest::Malformed(error.to_string()))?;
        if let Some(version) = file.get("v").and_then(Value::as_u64).filter(|version| *version != u64::from(VERSION)) {
            return Err(InvalidRequest::Version(version));
        }
        serde_json::from_value(file).map_err(|error| InvalidRequest::Malformed(error.to_string()))
    }
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRequest {
    #[error("the request has version {0}; this executor understands version {VERSION}")]
    Version(u64),
    #[error("the request is malformed: {0}")]
    Malformed(String),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    Run(Box<RunRequest>),
    Cancel {
        id: TaskId,
        /// Why, in the result of a task that had not started.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Records whether a task that ended as `unknown` took effect.
    Resolve {
        id: TaskId,
        happened: bool,
        #[serde(default)]
        note: Option<String>,
    },
    /// Stops every open task of one of the caller's sessions.
    Abandon {
        session: String,
    },
    /// Forgets the ended tasks of one of the caller's sessions, with their results.
    Forget {
        session: String,
    },
    /// Asks about what a `list` is to print.
    Listing(ListingQuestion),
    Status,
}

impl Operation {
    pub fn run(run: RunRequest) -> Self {
        Self::Run(Box::new(run))
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunRequest {
    pub tool: String,
    #[serde(default)]
    pub input: Map<String, Value>,
    /// Values of `key=value` arguments, which are converted to the types in the schema.
    #[serde(default)]
    pub words: Map<String, Value>,
    #[serde(default)]
    pub idempotency_key: Option<String>,
    #[serde(default)]
    pub dry_run: bool,
    /// With a dry run: it is only said what would be sent and who would be asked, and nothing is performed for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub plan_only: bool,
    /// Whether the result is to have all pages of a list, not only the first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all_pages: bool,
    /// The agent's reason, shown to the human who confirms the task.
    #[serde(default)]
    pub reason: Option<String>,
    /// What to do if the task needs confirmation and no human has the page open.
    #[serde(default)]
    pub if_no_approver: IfNoApprover,
    /// The earliest time at which the task may start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// The most sensitive class of the results from which the input was taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_class: Option<DataClass>,
    /// The words of the search that led the caller to this subtool, as `mailbox/queries.rs` keeps them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found_by: Option<String>,
}

/// Written as `wait`, `fail`, or a duration like `30s`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum IfNoApprover {
    /// Wait for one as long as the configuration says.
    #[default]
    Wait,
    /// Wait for a decision this long, if that is less.
    Within(PositiveDuration),
    /// Refuse the request.
    Fail,
}

impl FromStr for IfNoApprover {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "wait" => Ok(Self::Wait),
            "fail" => Ok(Self::Fail),
            text => text
                .parse()
                .map(Self::Within)
                .map_err(|_| format!("`{text}` is not `wait`, `fail`, or a duration like `30s`")),
        }
    }
}

impl TryFrom<String> for IfNoApprover {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<IfNoApprover> for String {
    fn from(choice: IfNoApprover) -> Self {
        match choice {
            IfNoApprover::Wait => "wait".to_owned(),
            IfNoApprover::Fail => "fail".to_owned(),
            IfNoApprover::Within(duration) => duration.to_string(),
        }
    }
}

/// The answer to a request. An accepted `run` has no answer; its result file takes that role.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The request was refused and left nothing behind.
    Refused(ErrorBody),
    /// An earlier request with the same idempotency key became this task.
    SameAs(TaskId),
    /// What a `--dry-run` would send.
    Plan(Value),
    /// Answers a cancel with the task's current state.
    Cancelling {
        id: TaskId,
        state: State,
    },
    /// Answers a resolve with the task's resolution.
    Resolved {
        id: TaskId,
        resolution: Resolution,
    },
    /// Answers an abandon with the tasks that were open.
    Abandoned(Vec<TaskId>),
    /// Answers a forget with the number of forgotten tasks and the tasks that are still open.
    Forgotten {
        forgotten: usize,
        open: Vec<TaskId>,
    },
    Listing(ListingAnswer),
    Status(Value),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_round_trips_and_unknown_versions_are_refused() {
        let request = Request::new(Operation::Status, Caller { unattended: true, ..Caller::default() });
        let text = serde_json::to_vec(&request).expect("a request serializes");
        assert_eq!(Request::parse(&text), Ok(request));
        for version in [1, 3] {
            let other = format!(r#"{{"v": {version}, "operation": "status"}}"#);
            assert_eq!(Request::parse(other.as_bytes()), Err(InvalidRequest::Version(version)));
        }
        for malformed in ["", "[]", "1", "{}", r#"{"v": 2}"#, r#"{"v": 2, "operation": "status", "more": 1}"#] {
            assert!(matches!(Request::parse(malformed.as_bytes()), Err(InvalidRequest::Malformed(_))), "{malformed}");
        }
    }
}
