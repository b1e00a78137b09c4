//! What callers ask for, and the answers that are no result file.

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

    /// Reads a request file, of this version or of the one before.
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

/// Converts a request of version 1, in which the caller's fields stood beside the operation.
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
    },
    /// Says whether a task that ended as unknown took effect.
    Resolve {
        id: TaskId,
        happened: bool,
        #[serde(default)]
        note: Option<String>,
    },
    /// Stops every open task of a session of the caller's.
    Abandon {
        session: String,
    },
    /// Forgets the ended tasks of a session of the caller's, with their results.
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
    /// `key=value` words, which take the type that the schema names.
    #[serde(default)]
    pub words: Map<String, Value>,
    #[serde(default)]
    pub idempotency_key: Option<String>,
    #[serde(default)]
    pub dry_run: bool,
    /// What the agent says to the human who is asked, in its own favour.
    #[serde(default)]
    pub reason: Option<String>,
    /// What happens if a human must be asked and none is there.
    #[serde(default)]
    pub if_no_approver: IfNoApprover,
    /// It is not to start before this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IfNoApprover {
    #[default]
    Wait,
    /// Nothing is accepted.
    Fail,
}

/// An answer. An accepted `run` has none: its result file is the answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Nothing was accepted and nothing is left behind.
    Refused(ErrorBody),
    /// The same was asked for before, under the same idempotency key.
    SameAs(TaskId),
    /// What a `--dry-run` would send.
    Plan(Value),
    /// To a cancel: the task's state now.
    Cancelling {
        id: TaskId,
        state: State,
    },
    /// To a resolve: what holds now.
    Resolved {
        id: TaskId,
        resolution: Resolution,
    },
    /// To an abandon: the tasks that were open.
    Abandoned(Vec<TaskId>),
    /// To a forget: how many tasks are gone, and which are still open.
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
    fn a_request_of_the_last_release_still_loads() {
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
            tool_scope: crate::tool_scope::ToolScope::from_env_value(r#"[["git_*"]]"#),
        };
        assert_eq!(Request::parse(old), Ok(Request::new(Operation::run(run), caller)));
        assert_eq!(
            Request::parse(br#"{"v": 1, "ask": "status"}"#),
            Ok(Request::new(Operation::Status, Caller::default()))
        );
    }

    #[test]
    fn what_is_written_is_read_again_and_other_versions_are_refused() {
        let request = Request::new(Operation::Status, Caller { unattended: true, ..Caller::default() });
        let text = serde_json::to_vec(&request).expect("JSON");
        assert_eq!(Request::parse(&text), Ok(request));
        assert_eq!(Request::parse(br#"{"v": 3, "operation": "status"}"#), Err(InvalidRequest::Version(3)));
        for malformed in ["", "[]", "1", "{}", r#"{"v": 2}"#, r#"{"v": 1, "ask": "status", "more": 1}"#] {
            assert!(matches!(Request::parse(malformed.as_bytes()), Err(InvalidRequest::Malformed(_))), "{malformed}");
        }
    }
}
