//! Result files as a caller reads them: reads one, prints them, and waits until they are final.

use std::path::Path;
use std::time::{Duration, Instant};

use protocol::code::{Code, Exit};
use protocol::mailbox::Mailbox;
use protocol::mailbox::watch::watch_folder;
use protocol::task::{State, TaskId};
use serde_json::{Map, Value};

use crate::backoff::Backoff;
use crate::context::Context;
use crate::error::Error;
use crate::wake_promise::WakePromise;

/// How long to poll before a file watch is set up, which is not worth it for tasks that end soon.
const WATCH_AFTER: Duration = Duration::from_millis(50);
/// Pause between two reads with a file watch, which may miss events.
const MAX_WATCH_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause between two reads without a file watch.
const MAX_POLL_PAUSE: Duration = Duration::from_millis(50);

/// The content of a result file when it was read.
#[derive(Debug, Clone)]
pub(crate) struct ResultFile {
    pub(crate) id: TaskId,
    pub(crate) state: State,
    fields: Map<String, Value>,
}

impl ResultFile {
    pub(crate) fn read(mailbox: &Mailbox, id: TaskId) -> Result<Self, Error> {
        let path = mailbox.result_file(id);
        let bytes = mailbox.read_result(id).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                Error::new(Code::UnknownTask, format!("no task `{id}` in the mailbox `{}`", mailbox.root().display()))
                    .hint("to list the tasks: agent-magic-tool tasks")
            }
            _ => Error::io(&format!("failed to read the result file `{}`", path.display()), &error),
        })?;
        let malformed = |reason: String| {
            Error::new(Code::Io, format!("failed to parse the result file `{}`: {reason}", path.display()))
        };
        let fields: Map<String, Value> =
            serde_json::from_slice(&bytes).map_err(|error| malformed(error.to_string()))?;
        let word = |key: &str| fields.get(key).and_then(Value::as_str);
        let state = word("state").or_else(|| word("status")).unwrap_or_default();
        let state = state.parse().map_err(malformed)?;
        Ok(Self { id, state, fields })
    }

    /// The content of the file and its path, as `run`, `wait` and `read` print them.
    pub(crate) fn answer(&self, mailbox: &Mailbox) -> Value {
        let mut answer = self.fields.clone();
        let after_status = answer.keys().position(|key| key == "status").map_or(0, |place| place + 1);
        answer.shift_insert(after_status, "result_file".to_owned(), path_text(&mailbox.result_file(self.id)));
        Value::Object(answer)
    }

    /// A field of the file; null if the file does not have it.
    pub(crate) fn field(&self, key: &str) -> &Value {
        self.fields.get(key).unwrap_or(&Value::Null)
    }

    pub(crate) fn is_final(&self) -> bool {
        self.state.is_final()
    }

    /// The exit status of a command that waited for this result.
    pub(crate) fn exit(&self) -> Exit {
        match self.state {
            State::Accepted | State::Queued | State::Running => Exit::Pending,
            State::AwaitingConfirmation => Exit::AwaitingConfirmation,
            State::Succeeded => Exit::Ok,
            State::Failed | State::Cancelled | State::TimedOut | State::Unknown => Exit::Failed,
            State::Denied | State::Expired => Exit::Refused,
        }
    }
}

/// Prints a single result as an object and several as a list, and removes the wake-ups for the final ones.
pub(crate) fn print(files: &[ResultFile], mailbox: &Mailbox, context: &Context) -> Result<(), Error> {
    let answers: Vec<_> = files.iter().map(|file| file.answer(mailbox)).collect();
    match <[Value; 1]>::try_from(answers) {
        Ok([answer]) => context.output.json(&answer)?,
        Err(answers) => context.output.json(&answers)?,
    }
    remove_wakeups(files, mailbox, context);
    Ok(())
}

/// Removes the caller's wake-ups for the final ones of `files`, which the caller has seen.
pub(crate) fn remove_wakeups(files: &[ResultFile], mailbox: &Mailbox, context: &Context) {
    let promise = WakePromise::of(context, mailbox);
    for file in files.iter().filter(|file| file.is_final()) {
        promise.remove(mailbox, file.id);
    }
}

pub(crate) fn path_text(path: &Path) -> Value {
    path.display().to_string().into()
}

/// The task that `word` names: a task id, or the path of a result file in this mailbox.
pub(crate) fn task_of(word: &str, mailbox: &Mailbox) -> Result<TaskId, Error> {
    let path = Path::new(word);
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let id = name.strip_prefix("result-").and_then(|name| name.split('.').next()).unwrap_or(name);
    let id = id.parse::<TaskId>().map_err(|error| {
        Error::new(Code::UnknownTask, error.to_string()).hint("to list the tasks: agent-magic-tool tasks")
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

/// When to stop waiting for several tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitMode {
    All,
    Any,
}

/// Waits until all or any of the tasks are final, or until `deadline`; returns their result files in order.
///
/// Calls `keep_alive` regularly, where the caller can make sure that an executor is running.
pub(crate) fn wait_for(
    ids: &[TaskId],
    mailbox: &Mailbox,
    mode: WaitMode,
    deadline: Option<Instant>,
    mut keep_alive: impl FnMut() -> Result<(), Error>,
) -> Result<Vec<ResultFile>, Error> {
    let mut files = ids.iter().map(|id| ResultFile::read(mailbox, *id)).collect::<Result<Vec<_>, _>>()?;
    let mut backoff = Backoff::new(MAX_POLL_PAUSE);
    let mut watch = None;
    loop {
        let is_done = match mode {
            WaitMode::All => files.iter().all(ResultFile::is_final),
            WaitMode::Any => files.iter().any(ResultFile::is_final),
        };
        if is_done || deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return Ok(files);
        }
        if backoff.waited() < WATCH_AFTER {
            backoff.pause(deadline);
        } else {
            keep_alive()?;
            match &watch {
                // Reads the files once more before the first pause: a task may have ended before the watch was set up.
                None => watch = Some(ResultWatch::new(mailbox)),
                Some(Some(watch)) => watch.pause(deadline),
                Some(None) => backoff.pause(deadline),
            }
        }
        for file in files.iter_mut().filter(|file| !file.is_final()) {
            *file = ResultFile::read(mailbox, file.id)?;
        }
    }
}

/// A watch on the results folder.
struct ResultWatch {
    events: std::sync::mpsc::Receiver<()>,
    _watcher: notify::RecommendedWatcher,
}

impl ResultWatch {
    /// `None` if the folder cannot be watched.
    fn new(mailbox: &Mailbox) -> Option<Self> {
        // One pending event is enough to read the files again.
        let (sender, events) = std::sync::mpsc::sync_channel(1);
        let handler = move |_| {
            // If the channel is full, an event is already pending.
            if sender.try_send(()).is_ok() {}
        };
        let watcher = watch_folder(&mailbox.results(), handler).ok()?;
        Some(Self { events, _watcher: watcher })
    }

    /// Waits for an event, at most until `deadline`.
    fn pause(&self, deadline: Option<Instant>) {
        let left = deadline.map_or(MAX_WATCH_PAUSE, |deadline| deadline.saturating_duration_since(Instant::now()));
        // The caller reads the files again after an event, a timeout or the end of the watcher.
        if self.events.recv_timeout(left.min(MAX_WATCH_PAUSE)).is_ok() {}
    }
}
