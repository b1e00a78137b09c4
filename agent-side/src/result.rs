//! Result files as a caller reads them. `answer.rs` prints them, `waiting.rs` waits until they are final, and
//! `result_data.rs` reads their data.

use std::path::Path;

use protocol::caller::Caller;
use protocol::code::{Code, Exit};
use protocol::data_class::DataClass;
use protocol::mailbox::Mailbox;
use protocol::mailbox::result::OWNER;
use protocol::task::{State, TaskId};
use serde_json::{Map, Value};

use crate::context::Context;
use crate::error::Error;
use crate::wake_promise::WakePromise;

/// The content of a result file when it was read.
#[derive(Debug, Clone)]
pub struct ResultFile {
    pub id: TaskId,
    pub state: State,
    fields: Map<String, Value>,
}

impl ResultFile {
    /// Reads the result file of a task that `caller` may see; for it, there are no others.
    pub fn read(mailbox: &Mailbox, id: TaskId, caller: &Caller) -> Result<Self, Error> {
        let path = mailbox.result_file(id);
        let unknown = || {
            Error::new(Code::UnknownTask, format!("no task `{id}` in the mailbox `{}`", mailbox.root().display()))
                .hint("to list the tasks: agent-magic-tool tasks")
        };
        let bytes = mailbox.read_result(id).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => unknown(),
            _ => Error::io(&format!("failed to read the result file `{}`", path.display()), &error),
        })?;
        let malformed = |reason: String| {
            Error::new(Code::Io, format!("failed to parse the result file `{}`: {reason}", path.display()))
        };
        let fields: Map<String, Value> =
            serde_json::from_slice(&bytes).map_err(|error| malformed(error.to_string()))?;
        let word = |key: &str| fields.get(key).and_then(Value::as_str);
        if !caller.owns(word(OWNER)) {
            return Err(unknown());
        }
        if let Some(beyond) = caller.beyond_trust(&fields) {
            return Err(beyond.error(&format!("task `{id}`")).into());
        }
        if word("id") != Some(id.to_string().as_str()) {
            return Err(malformed("it is not that of this task".to_owned()));
        }
        let state = word("state").or_else(|| word("status")).unwrap_or_default();
        let state = state.parse().map_err(malformed)?;
        Ok(Self { id, state, fields })
    }

    /// The whole file.
    pub fn to_value(&self) -> Value {
        Value::Object(self.fields.clone())
    }

    /// The class of what it tells.
    pub fn data_class(&self) -> Option<DataClass> {
        DataClass::of_result(&self.fields)
    }

    /// A field of the file; null if the file does not have it.
    pub fn field(&self, key: &str) -> &Value {
        self.fields.get(key).unwrap_or(&Value::Null)
    }

    pub fn is_final(&self) -> bool {
        self.state.is_final()
    }

    /// Whether the task goes on only after a human came, and none has the page open.
    pub fn waits_for_absent_human(&self) -> bool {
        self.needs_human() && self.field("confirmation")["approver"]["online"] == false
    }

    /// Whether the task goes on only after a human's decision or answer.
    pub fn needs_human(&self) -> bool {
        self.state == State::AwaitingConfirmation || (!self.is_final() && self.field("confirmation").is_object())
    }

    /// The exit status of a command that prints this result: the same for `read`, `wait` and `run --wait`.
    pub fn exit(&self) -> Exit {
        match self.state {
            State::Accepted | State::Queued | State::Running if !self.needs_human() => Exit::Pending,
            State::Accepted | State::Queued | State::Running | State::AwaitingConfirmation => {
                Exit::AwaitingConfirmation
            }
            State::Succeeded => Exit::Ok,
            State::Failed | State::Cancelled | State::TimedOut | State::Unknown => Exit::Failed,
            State::Denied | State::Expired => Exit::Refused,
        }
    }
}

/// Removes the caller's wake-ups for the final ones of `files`, which the caller has seen.
pub fn remove_wakeups(files: &[ResultFile], mailbox: &Mailbox, context: &Context) {
    let promise = WakePromise::of(context, mailbox);
    for file in files.iter().filter(|file| file.is_final()) {
        promise.remove(mailbox, file.id);
    }
}

pub fn path_text(path: &Path) -> Value {
    path.display().to_string().into()
}

/// The task that `word` names: a task id, or the path of a result file in this mailbox.
pub fn task_of(word: &str, mailbox: &Mailbox) -> Result<TaskId, Error> {
    let path = Path::new(word);
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let id = name.strip_prefix("result-").and_then(|name| name.split('.').next()).unwrap_or(name);
    let id = id.parse::<TaskId>().map_err(|error| {
        let is_path = word.contains(['/', '.']);
        let message = if is_path { format!("`{word}` is not the name of a result file") } else { error.to_string() };
        Error::new(Code::UnknownTask, message).hint("to list the tasks: agent-magic-tool tasks")
    })?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let is_here = folder.is_none_or(|folder| match (folder.canonicalize(), mailbox.results().canonicalize()) {
        (Ok(folder), Ok(results)) => folder == results,
        _ => false,
    });
    if is_here {
        Ok(id)
    } else {
        Err(Error::new(Code::NotFound, format!("`{word}` is not in the mailbox `{}`", mailbox.root().display()))
            .hint("set AGENT_MAGIC_TOOL_DIR to the mailbox of this file"))
    }
}
