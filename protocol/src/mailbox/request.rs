//! The format of requests, and of answers that are not result files.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::caller::Caller;
use crate::error::ErrorBody;
use crate::json;
use crate::resolution::Resolution;
use crate::task::{State, TaskId};

/// The version of this format. A request of version 1 is converted; any other version is refused.
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

    /// Parses a request file of this version or of version 1.
    pub fn parse(bytes: &[u8]) -> Result<Self, InvalidRequest> {
        let mut file: Value = json::parse(bytes).map_err(|error| InvalidRequest::Malformed(error.to_string()))?;
        match file.get("v").and_then(Value::as_u64) {
            Some(1) => upgrade(&mut file),
            Some(version) if version != u64::from(VERSION) => return Err(InvalidRequest::Version(version)),
            _ => {}
        }
        serde_json::from_value(file).map_err(|error| InvalidRequest::Malformed(error.to_string()))
    }
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRequest {
    #[error("the request has version {0}; this executor understands versions 1 and {VERSION}")]
    Version(u64),
    #[error("the request is malformed: {0}")]
    Malformed(String),
}

/// Converts a request of version 1, which has the caller's fields beside the operation.
fn upgrade(file: &mut Value) {
    let Some(fields) = file.as_object_mut() else { return };
    let mut caller = Map::new();
    for (old, new) in
        [("session", "session"), ("folder", "folder"), ("depth", "depth"), ("wakes", "wakes"), ("reach", "tool_scope")]
    {
        caller.extend(fields.shift_remove(old).map(|value| (new.to_owned(), value)));
    }
    if let Some(mut operation) = fields.shift_remove("ask") {
        let run = operation.get_mut("run").and_then(Value::as_object_mut);
        let read_only = run.and_then(|run| run.shift_remove("read_only"));
        caller.extend(read_only.map(|value| ("read_only".to_owned(), value)));
        fields.insert("operation".to_owned(), operation);
    }
    fields.insert("caller".to_owned(), caller.into());
    fields.insert("v".to_owned(), VERSION.into());
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
    /// The agent's reason, shown to the human who confirms the task.
    #[serde(default)]
    pub reason: Option<String>,
    /// What to do if the task needs confirmation and no human has the page open.
    #[serde(default)]
    pub if_no_approver: IfNoApprover,
    /// The earliest time at which the task may start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// The words of the search that led the caller to this subtool, as `mailbox/queries.rs` keeps them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found_by: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IfNoApprover {
    #[default]
    Wait,
    /// Refuse the request.
    Fail,
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
    Status(Value),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_of_version_1_still_loads() {
        let old = br#"{"v": 1, "ask": {"run": {"tool": "t", "input": {"a": 1}, "read_only": true}}, "session": "s",
                       "folder": "/work", "depth": 1, "wakes": true, "reach": [["git_*"]]}"#;
        let run = RunRequest {
            tool: "t".to_owned(),
            input: Map::from_iter([("a".to_owned(), 1.into())]),
            ..RunRequest::default()
        };
        let caller = Caller {
            uid: 0,
            session: Some("s".to_owned()),
            folder: Some("/work".into()),
            depth: 1,
            wakes: true,
            read_only: true,
            unattended: false,
            trust: None,
            tool_scope: crate::tool_scope::ToolScope::from_env_value(r#"[["git_*"]]"#),
        };
        assert_eq!(Request::parse(old), Ok(Request::new(Operation::run(run), caller)));
        assert_eq!(
            Request::parse(br#"{"v": 1, "ask": "status"}"#),
            Ok(Request::new(Operation::Status, Caller::default()))
        );
    }

    #[test]
    fn a_request_round_trips_and_unknown_versions_are_refused() {
        let request = Request::new(Operation::Status, Caller { unattended: true, ..Caller::default() });
        let text = serde_json::to_vec(&request).expect("a request serializes");
        assert_eq!(Request::parse(&text), Ok(request));
        assert_eq!(Request::parse(br#"{"v": 3, "operation": "status"}"#), Err(InvalidRequest::Version(3)));
        for malformed in ["", "[]", "1", "{}", r#"{"v": 2}"#, r#"{"v": 1, "ask": "status", "more": 1}"#] {
            assert!(matches!(Request::parse(malformed.as_bytes()), Err(InvalidRequest::Malformed(_))), "{malformed}");
        }
    }
}
