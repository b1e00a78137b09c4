//! Publishing: result files and answers, brought to callers however long it takes.
//!
//! The record is the truth and is durable by now; what is written here is a copy. So a full disk
//! is no reason to give up what runs: what cannot be written is written later.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use protocol::clock;
use protocol::mailbox::Mailbox;
use protocol::mailbox::request::Answer;
use protocol::task::TaskId;

use super::Daemon;
use crate::intake::approver::ApproverPresence;
use crate::page::TaskChange;
use crate::results::result_file::{ApproverStatus, DataFile, render};
use crate::store::{Store, StoreError};
use crate::task::{Outcome, Task};

/// How soon it is tried again to write what could not be written.
pub(super) const TRY_AGAIN: Duration = Duration::from_secs(1);
/// How much of an input is logged.
const LOGGED_INPUT: usize = 1000;

pub(super) struct Publisher {
    mailbox: Mailbox,
    inline_bytes: usize,
    approver: Arc<ApproverPresence>,
    late: Vec<DelayedWrite>,
    /// How many were late since the start.
    late_so_far: u64,
    tried: Instant,
    silent: bool,
}

/// What could not be written.
enum DelayedWrite {
    /// Read again from the record, to be as new as can be.
    Result(TaskId),
    Answer(TaskId, Box<Answer>),
}

impl Publisher {
    pub(super) fn new(mailbox: Mailbox, inline_bytes: usize, approver: Arc<ApproverPresence>) -> Self {
        let tried = Instant::now();
        Self { mailbox, inline_bytes, approver, late: Vec::new(), late_so_far: 0, tried, silent: false }
    }

    /// Brings a task's result file up to date, and before it the data that it refers to.
    /// `place` is its place among those that wait for a human, if it does.
    pub(super) fn publish(&mut self, task: &Task, place: Option<usize>) {
        if self.silent {
            return;
        }
        if let Err(error) = self.write(task, place) {
            tracing::warn!(id = %task.id, %error, "a result file could not be written; it is tried again");
            self.late.push(DelayedWrite::Result(task.id));
            self.late_so_far += 1;
        }
    }

    pub(super) fn answer(&mut self, request: TaskId, answer: Box<Answer>) {
        if self.silent {
            return;
        }
        if let Err(error) = self.mailbox.answer(request, &answer) {
            tracing::warn!(id = %request, %error, "an answer could not be written; it is tried again");
            self.late.push(DelayedWrite::Answer(request, answer));
            self.late_so_far += 1;
        }
    }

    /// Nothing is written from now on: the mailbox is no longer ours.
    pub(super) fn fall_silent(&mut self) {
        self.silent = true;
        self.late.clear();
    }

    /// Whether something about `id` could not be written yet.
    pub(super) fn owes(&self, id: TaskId) -> bool {
        self.late.iter().any(|late| match late {
            DelayedWrite::Result(late) | DelayedWrite::Answer(late, _) => *late == id,
        })
    }

    /// How many could not be written at once since the start.
    pub(super) fn late_so_far(&self) -> u64 {
        self.late_so_far
    }

    pub(super) fn is_behind(&self) -> bool {
        !self.late.is_empty()
    }

    /// Tries again what could not be written, at most once in [`TRY_AGAIN`].
    pub(super) fn catch_up(&mut self, store: &dyn Store) -> Result<(), StoreError> {
        if self.late.is_empty() || self.tried.elapsed() < TRY_AGAIN {
            return Ok(());
        }
        self.tried = Instant::now();
        let mut late = std::mem::take(&mut self.late).into_iter();
        while let Some(next) = late.next() {
            let written = match &next {
                DelayedWrite::Result(id) => store
                    .task(*id)?
                    .map_or(Ok(()), |task| self.write(&task, None))
                    .and_then(|()| self.mailbox.remove_taken(*id)),
                DelayedWrite::Answer(id, answer) => self.mailbox.answer(*id, answer),
            };
            if let Err(error) = written {
                tracing::debug!(%error, "it still cannot be written");
                self.late.push(next);
                self.late.extend(late);
                break;
            }
        }
        Ok(())
    }

    fn write(&self, task: &Task, place: Option<usize>) -> io::Result<()> {
        let name = |extension: &str| self.mailbox.data_file(task.id, extension).display().to_string();
        let approver = ApproverStatus {
            queue_position: place,
            is_online: self.approver.is_present(),
            last_seen: self.approver.last_seen(),
        };
        let file = render(task, self.inline_bytes, approver, name);
        match file.data_file {
            Some(DataFile::Text { text, extension }) => {
                self.mailbox.put_data(task.id, extension, &mut text.as_bytes())?;
            }
            Some(DataFile::File { path, extension }) => match File::open(&path) {
                Ok(mut data) => self.mailbox.put_data(task.id, extension, &mut data)?,
                // It will not come back; how the task ended is still worth knowing.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    tracing::error!(id = %task.id, path = %path.display(), "the data of a task is gone");
                }
                Err(error) => return Err(error),
            },
            None => {}
        }
        self.mailbox.publish(task.id, &file.text)
    }
}

impl Daemon {
    pub(super) fn publish(&mut self, task: &Task) {
        if let Some(resolution) = &task.resolution {
            tracing::info!(id = %task.id, tool = %task.tool, happened = resolution.happened, by = ?resolution.by, "task resolved");
        } else if task.state.is_final() {
            let code = match task.end.as_ref().map(|end| &end.outcome) {
                Some(Outcome::Error(error)) => error.code.as_str(),
                _ => "",
            };
            let duration_ms =
                i64::try_from(clock::now().duration_since(task.created_at).as_millis()).unwrap_or(i64::MAX);
            let input = self.log_text(&task.input);
            // The caller's own word, so that anything may stand there.
            let session = task.caller.session.as_deref().map(|session| self.runner_context.secrets.redact(session));
            tracing::info!(id = %task.id, tool = %task.tool, input, uid = task.caller.uid, session = session.as_deref(), state = %task.state, code, attempts = task.attempt, duration_ms, "task ended");
        }
        self.publisher.publish(task, self.dispatcher.queue_position(task.id));
        // Nobody may be looking on.
        if self.live.send(TaskChange { id: task.id, state: task.state }).is_ok() {}
    }

    /// An input as it may stand in the log.
    pub(super) fn log_text(&self, input: &serde_json::Map<String, serde_json::Value>) -> String {
        let text = serde_json::to_string(input).expect("an object can be written");
        self.runner_context.secrets.redact(&text).chars().take(LOGGED_INPUT).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use protocol::task::{State, Step};

    use super::*;
    use crate::store::contract::task;
    use crate::store::memory::MemoryStore;
    use crate::store::{Change, Transition};
    use crate::task::{End, Outcome};

    fn world() -> (tempfile::TempDir, Mailbox, Publisher) {
        let folder = tempfile::tempdir().expect("a folder");
        let mailbox = Mailbox::open(&folder.path().join("mailbox")).expect("it opens");
        let publisher = Publisher::new(mailbox.clone(), 10, Arc::default());
        (folder, mailbox, publisher)
    }

    fn ended(outcome: Outcome) -> Task {
        let task = task(None);
        let end = End { at: task.created_at, outcome, meta: serde_json::Map::new() };
        Task { state: State::Succeeded, end: Some(end), ..task }
    }

    #[test]
    fn data_lies_beside_its_result_file_for_its_owner_alone() {
        let (folder, mailbox, mut publisher) = world();
        let json = ended(Outcome::Data(serde_json::json!(["more than ten bytes"])));
        let kept = folder.path().join("kept");
        fs::write(&kept, "text").expect("written");
        fs::set_permissions(&kept, fs::Permissions::from_mode(0o644)).expect("set");
        let text = ended(Outcome::File { path: kept, content_type: "text/plain".to_owned(), bytes: 4 });
        for (task, extension, data) in [(&json, "json", "[\n  \"more than ten bytes\"\n]"), (&text, "txt", "text")] {
            publisher.publish(task, None);
            let path = mailbox.data_file(task.id, extension);
            assert_eq!(fs::read_to_string(&path).expect("readable"), data);
            assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
            assert!(mailbox.is_final(task.id));
        }
        assert!(!publisher.is_behind());
    }

    #[test]
    fn data_that_cannot_be_put_there_keeps_the_result_file_back() {
        let (_folder, mailbox, mut publisher) = world();
        let task = ended(Outcome::Data(serde_json::json!(["more than ten bytes"])));
        // A folder with something in it cannot be replaced by a file.
        fs::create_dir_all(mailbox.data_file(task.id, "json").join("x")).expect("made");
        publisher.publish(&task, None);
        assert!(publisher.is_behind() && !mailbox.result_file(task.id).exists());
        let hidden = fs::read_dir(mailbox.results()).expect("a folder").count();
        assert_eq!(hidden, 1, "nothing half-written stays");
    }

    #[test]
    fn what_could_not_be_written_is_written_later_as_it_is_then() {
        let (_folder, mailbox, mut publisher) = world();
        let accepted = task(None);
        let mut store = MemoryStore::default();
        store.commit(&[Change::Accept(Box::new(accepted.clone()))]).expect("committed");
        fs::remove_dir(mailbox.results()).expect("removed");
        fs::remove_dir(mailbox.root().join("taken")).expect("removed");
        publisher.publish(&accepted, None);
        publisher.answer(accepted.id, Box::new(Answer::SameAs(accepted.id)));
        let queued = Transition {
            id: accepted.id,
            step: Step::Enqueue,
            from: State::Accepted,
            attempt: 0,
            to: State::Queued,
            attempt_after: 0,
            not_before: None,
            at: accepted.created_at,
            confirmation: None,
            end: None,
        };
        store.commit(&[Change::Transition(Box::new(queued))]).expect("committed");
        Mailbox::open(mailbox.root()).expect("made again");
        publisher.tried = publisher.tried.checked_sub(TRY_AGAIN).expect("a time");
        publisher.catch_up(&store).expect("the store works");
        assert!(!publisher.is_behind());
        let text = fs::read_to_string(mailbox.result_file(accepted.id)).expect("published");
        assert!(text.contains("\"state\": \"queued\""), "{text}");
        assert!(mailbox.collect_answer(accepted.id).expect("readable").is_some());
    }
}
