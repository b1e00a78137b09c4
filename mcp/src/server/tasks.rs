//! Delegated runs as tasks of the protocol's extension, for clients that declare it. The id is that of our task, so it
//! outlives the server.
//!
//! A task that waits for a human is `working`, with a message that says what to tell the human. It is never
//! `input_required`: whatever a client on the agent's side answered, it would decide nothing.

use std::str::FromStr;

use jiff::Timestamp;
use protocol::mailbox::Mailbox;
use protocol::task::{State, TaskId};
use rmcp::ErrorData;
use rmcp::model::{CallToolResult, DetailedTask, Task, TaskPayload, TaskStatus};
use serde_json::Value;

use super::results::ResultNow;

/// How often a client should ask.
const POLL_INTERVAL_MS: u64 = 1_000;
/// The end of the id of a task whose result is the data of the subtool alone.
const DATA_ONLY: &str = "-data";

/// The id of a task as clients have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TaskHandle {
    pub(super) id: TaskId,
    /// Whether a tool of its own was called, whose result is the data, rather than a command line, whose result is text.
    pub(super) data_only: bool,
}

impl FromStr for TaskHandle {
    type Err = ErrorData;

    fn from_str(text: &str) -> Result<Self, ErrorData> {
        let (id, data_only) = text.strip_suffix(DATA_ONLY).map_or((text, false), |id| (id, true));
        let id = id.parse().map_err(|_| unknown(text))?;
        Ok(Self { id, data_only })
    }
}

impl std::fmt::Display for TaskHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.id, if self.data_only { DATA_ONLY } else { "" })
    }
}

pub(super) fn unknown(handle: &str) -> ErrorData {
    ErrorData::invalid_params(format!("no task with the id `{handle}`"), None)
}

/// The task as it is now, without its result.
pub(super) fn task(handle: TaskHandle, now: &ResultNow, mailbox: &Mailbox) -> Task {
    let created = now.text("created_at").unwrap_or_default();
    let updated = now.text("finished_at").map_or_else(|| written_at(mailbox, handle.id), str::to_owned);
    let status = match now.state() {
        State::Cancelled => TaskStatus::Cancelled,
        state if state.is_final() => TaskStatus::Completed,
        _ => TaskStatus::Working,
    };
    let task = Task::new(handle.to_string(), status, created, updated).with_poll_interval_ms(POLL_INTERVAL_MS);
    let message = now.text("message").or_else(|| now.file["error"]["message"].as_str());
    match message {
        Some(message) => task.with_status_message(message),
        None => task,
    }
}

/// The task with the result that the call would have given, had it waited.
pub(super) fn detailed(task: Task, result: Option<&CallToolResult>) -> DetailedTask {
    let payload = match (task.status, result) {
        (TaskStatus::Cancelled, _) => TaskPayload::Cancelled,
        (TaskStatus::Completed, Some(result)) => {
            let result = match serde_json::to_value(result) {
                Ok(Value::Object(result)) => result,
                _ => serde_json::Map::new(),
            };
            TaskPayload::Completed { result }
        }
        _ => TaskPayload::Working,
    };
    DetailedTask::new(task, payload)
}

fn written_at(mailbox: &Mailbox, id: TaskId) -> String {
    let written = std::fs::metadata(mailbox.result_file(id)).and_then(|found| found.modified());
    let written = written.ok().and_then(|at| Timestamp::try_from(at).ok());
    written.unwrap_or_else(protocol::clock::now).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_read_as_it_was_written() {
        let id = TaskId::new();
        for data_only in [false, true] {
            let handle = TaskHandle { id, data_only };
            assert_eq!(handle.to_string().parse::<TaskHandle>().expect("it was written by us"), handle);
        }
        for other in ["", "-data", "x", "../x"] {
            assert!(other.parse::<TaskHandle>().is_err(), "{other}");
        }
    }
}
