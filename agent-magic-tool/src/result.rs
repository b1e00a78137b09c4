//! Result files as the caller reads them: found, trusted, told final from open.

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

/// What ends soon is awaited without a file watch.
const WITHOUT_WATCH: Duration = Duration::from_millis(50);
/// A watch may miss something; the directory is the truth.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Where no watch can be had.
const MAX_PAUSE: Duration = Duration::from_millis(50);

/// One result file as it is now.
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
            _ => Error::io(&format!("the result file `{}` cannot be read", path.display()), &error),
        })?;
        let malformed = |reason: String| {
            Error::new(Code::Io, format!("the result file `{}` cannot be understood: {reason}", path.display()))
        };
        let fields: Map<String, Value> =
            serde_json::from_slice(&bytes).map_err(|error| malformed(error.to_string()))?;
        let word = |key: &str| fields.get(key).and_then(Value::as_str);
        let state = word("state").or_else(|| word("status")).unwrap_or_default();
        let state = state.parse().map_err(malformed)?;
        Ok(Self { id, state, fields })
    }

    /// The file's content, with its path, as the answer to `run`, `wait` and `read`.
    pub(crate) fn answer(&self, mailbox: &Mailbox) -> Value {
        let mut answer = self.fields.clone();
        let after_status = answer.keys().position(|key| key == "status").map_or(0, |place| place + 1);
        answer.shift_insert(after_status, "result_file".to_owned(), path_text(&mailbox.result_file(self.id)));
        Value::Object(answer)
    }

    /// A field of the file.
    pub(crate) fn field(&self, key: &str) -> &Value {
        self.fields.get(key).unwrap_or(&Value::Null)
    }

    pub(crate) fn is_final(&self) -> bool {
        self.state.is_final()
    }

    /// The exit status of a command that waited for this.
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

/// Prints what the files say now: one as itself, several as a list.
pub(crate) fn print(files: &[ResultFile], mailbox: &Mailbox, context: &Context) -> Result<(), Error> {
    let answers: Vec<_> = files.iter().map(|file| file.answer(mailbox)).collect();
    match <[Value; 1]>::try_from(answers) {
        Ok([answer]) => context.output.json(&answer)?,
        Err(answers) => context.output.json(&answers)?,
    }
    collected(files, mailbox, context);
    Ok(())
}

/// The caller has seen these: what is final of them it need not be woken for.
pub(crate) fn collected(files: &[ResultFile], mailbox: &Mailbox, context: &Context) {
    let promise = WakePromise::of(context, mailbox);
    for file in files.iter().filter(|file| file.is_final()) {
        promise.remove(mailbox, file.id);
    }
}

pub(crate) fn path_text(path: &Path) -> Value {
    path.display().to_string().into()
}

/// The task that `word` means: its id, or the path of its result file in this mailbox.
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
            .hint("set AGENT_MAGIC_TOOL_DIR to the mailbox that it is in"))
    }
}

/// What to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitMode {
    All,
    Any,
}

/// Waits until the tasks are final or `deadline` has passed; their files as they are then, in order.
///
/// `nudge` is called now and then: whoever has to see to the executor does it there.
pub(crate) fn wait_for(
    ids: &[TaskId],
    mailbox: &Mailbox,
    until: WaitMode,
    deadline: Option<Instant>,
    mut nudge: impl FnMut() -> Result<(), Error>,
) -> Result<Vec<ResultFile>, Error> {
    let mut files = ids.iter().map(|id| ResultFile::read(mailbox, *id)).collect::<Result<Vec<_>, _>>()?;
    let mut patience = Backoff::new(MAX_PAUSE);
    let mut watch = None;
    loop {
        let is_over = match until {
            WaitMode::All => files.iter().all(ResultFile::is_final),
            WaitMode::Any => files.iter().any(ResultFile::is_final),
        };
        if is_over || deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return Ok(files);
        }
        if patience.waited() < WITHOUT_WATCH {
            patience.pause(deadline);
        } else {
            nudge()?;
            match &watch {
                // Looks once more before it waits: something may have happened until the watch stood.
                None => watch = Some(ResultWatch::on(mailbox)),
                Some(Some(watch)) => watch.pause(deadline),
                Some(None) => patience.pause(deadline),
            }
        }
        for file in files.iter_mut().filter(|file| !file.is_final()) {
            *file = ResultFile::read(mailbox, file.id)?;
        }
    }
}

/// Wakes when something happens among the results.
struct ResultWatch {
    events: std::sync::mpsc::Receiver<()>,
    _watcher: notify::RecommendedWatcher,
}

impl ResultWatch {
    fn on(mailbox: &Mailbox) -> Option<Self> {
        // One event waiting is as good as many.
        let (sender, events) = std::sync::mpsc::sync_channel(1);
        let handler = move |_| {
            // Full is as good as sent, and a receiver that is gone needs nothing.
            if sender.try_send(()).is_ok() {}
        };
        let watcher = watch_folder(&mailbox.results(), handler).ok()?;
        Some(Self { events, _watcher: watcher })
    }

    fn pause(&self, deadline: Option<Instant>) {
        let left = deadline.map_or(LOOK_AGAIN, |deadline| deadline.saturating_duration_since(Instant::now()));
        // An event, the end of patience, a watcher that died: each is a reason to look.
        if self.events.recv_timeout(left.min(LOOK_AGAIN)).is_ok() {}
    }
}
