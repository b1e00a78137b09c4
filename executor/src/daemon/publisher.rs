//! Publishing: writes result files and answers to the mailbox, and retries what could not be written.
//!
//! Everything written here is a copy of what is already durable in the record. So attempts go on when the mailbox's
//! disk is full, and the copies are written later.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ground::results::result_file::{ApproverStatus, DataFile, render};
use ground::task::Task;
use protocol::mailbox::Mailbox;
use protocol::mailbox::request::Answer;
use protocol::regular_file;
use protocol::task::TaskId;
use store::{Store, StoreError};

use crate::intake::approver::ApproverPresence;

/// How long to wait before writing again what could not be written.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

pub(super) struct Publisher {
    mailbox: Mailbox,
    /// Data of more bytes goes to a file of its own.
    inline_bytes: usize,
    approver: Arc<ApproverPresence>,
    late: Vec<LateWrite>,
    /// How many writes failed at first since the executor started.
    late_count: u64,
    last_try: Instant,
    is_silent: bool,
    /// Whether something was written that commands may wait for.
    is_news: bool,
}

/// A write that failed and is retried.
enum LateWrite {
    /// The task is read again from the record, so that its current state is published.
    Result(TaskId),
    Answer(TaskId, Box<Answer>),
}

impl Publisher {
    pub(super) fn new(mailbox: Mailbox, inline_bytes: usize, approver: Arc<ApproverPresence>) -> Self {
        if let Err(error) = mailbox.prepare_publications() {
            tracing::warn!(%error, "commands that wait are not woken; they poll");
        }
        Self {
            mailbox,
            inline_bytes,
            approver,
            late: Vec::new(),
            late_count: 0,
            last_try: Instant::now(),
            is_silent: false,
            is_news: false,
        }
    }

    /// Data of more bytes than this is stored in a file beside the result file from now on.
    pub(super) fn set_inline_bytes(&mut self, inline_bytes: usize) {
        self.inline_bytes = inline_bytes;
    }

    /// Brings the result file of `task` up to date, and the data file that it refers to before it.
    /// `position` is the task's place in the queue for a human, if it waits for one.
    pub(super) fn publish(&mut self, task: &Task, position: Option<usize>) {
        if self.is_silent {
            return;
        }
        self.is_news = true;
        if let Err(error) = self.write(task, position) {
            tracing::warn!(id = %task.id, %error, "failed to write a result file; it is retried");
            self.late.push(LateWrite::Result(task.id));
            self.late_count += 1;
        }
    }

    /// Writes the answer to a request that has no result file.
    pub(super) fn answer(&mut self, request: TaskId, answer: Box<Answer>) {
        if self.is_silent {
            return;
        }
        self.is_news = true;
        if let Err(error) = self.mailbox.answer(request, &answer) {
            tracing::warn!(id = %request, %error, "failed to write an answer; it is retried");
            self.late.push(LateWrite::Answer(request, answer));
            self.late_count += 1;
        }
    }

    /// Wakes the commands that wait, if anything was written since the last call.
    pub(super) fn announce(&mut self) {
        if std::mem::take(&mut self.is_news) {
            self.mailbox.announce_publications();
        }
    }

    /// Stops writing: the mailbox belongs to another executor.
    pub(super) fn silence(&mut self) {
        self.is_silent = true;
        self.late.clear();
    }

    /// Whether a write about `id` is still to be retried.
    pub(super) fn is_late(&self, id: TaskId) -> bool {
        self.late.iter().any(|write| match write {
            LateWrite::Result(late) | LateWrite::Answer(late, _) => *late == id,
        })
    }

    /// How many writes failed at first since the executor started.
    pub(super) fn late_count(&self) -> u64 {
        self.late_count
    }

    /// Whether any write is still to be retried.
    pub(super) fn is_behind(&self) -> bool {
        !self.late.is_empty()
    }

    /// When to call [`Self::retry`].
    pub(super) fn next_retry(&self) -> Option<Instant> {
        self.is_behind().then(|| self.last_try + RETRY_INTERVAL)
    }

    /// Retries the late writes, at most once per [`RETRY_INTERVAL`], until one fails again.
    pub(super) fn retry(&mut self, store: &dyn Store) -> Result<(), StoreError> {
        if self.next_retry().is_none_or(|at| at > Instant::now()) {
            return Ok(());
        }
        self.retry_now(store)
    }

    /// Retries the late writes, until one fails again. The executor does this before it ends.
    pub(super) fn retry_now(&mut self, store: &dyn Store) -> Result<(), StoreError> {
        self.last_try = Instant::now();
        let mut late = std::mem::take(&mut self.late).into_iter();
        while let Some(next) = late.next() {
            let written = match &next {
                LateWrite::Result(id) => store
                    .task(*id)?
                    .map_or(Ok(()), |task| self.write(&task, None))
                    .and_then(|()| self.mailbox.remove_taken(*id)),
                LateWrite::Answer(id, answer) => self.mailbox.answer(*id, answer),
            };
            if let Err(error) = written {
                tracing::debug!(%error, "a late write failed again");
                self.late.push(next);
                self.late.extend(late);
                break;
            }
        }
        Ok(())
    }

    fn write(&self, task: &Task, position: Option<usize>) -> io::Result<()> {
        let name = |extension: &str| self.mailbox.data_file(task.id, extension).display().to_string();
        let approver = ApproverStatus {
            queue_position: position,
            is_online: self.approver.is_present(),
            last_seen: self.approver.last_seen(),
        };
        let file = render(task, self.inline_bytes, approver, name);
        match file.data_file {
            Some(DataFile::Text { text, extension }) => {
                self.mailbox.put_data(task.id, extension, &mut text.as_bytes())?;
            }
            Some(DataFile::File { path, extension }) => match regular_file::open(&path) {
                Ok(mut data) => self.mailbox.put_data(task.id, extension, &mut data)?,
                // The data will not come back, but the caller can still learn how the task ended.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    tracing::error!(id = %task.id, path = %path.display(), "the data of a task is missing");
                }
                Err(error) => return Err(error),
            },
            None => {}
        }
        self.mailbox.publish(task.id, &file.text)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use ground::task::sample::stored;
    use ground::task::{End, Outcome};
    use protocol::task::{State, Step};

    use super::*;
    use store::memory::MemoryStore;
    use store::{Change, Transition};

    fn world() -> (tempfile::TempDir, Mailbox, Publisher) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mailbox = Mailbox::open(&folder.path().join("mailbox")).expect("the mailbox opens");
        let publisher = Publisher::new(mailbox.clone(), 10, Arc::default());
        (folder, mailbox, publisher)
    }

    fn ended(outcome: Outcome) -> Task {
        let task = stored(None);
        let end = End { at: task.created_at, outcome, meta: serde_json::Map::new() };
        Task { state: State::Succeeded, end: Some(end), ..task }
    }

    #[test]
    fn data_files_are_readable_by_their_owner_only() {
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
            assert_eq!(fs::metadata(&path).expect("the file exists").permissions().mode() & 0o777, 0o600);
            assert!(mailbox.is_final(task.id));
        }
        assert!(!publisher.is_behind());
    }

    #[test]
    fn a_result_file_is_not_written_before_its_data() {
        let (_folder, mailbox, mut publisher) = world();
        let task = ended(Outcome::Data(serde_json::json!(["more than ten bytes"])));
        // A file cannot replace a folder that is not empty.
        fs::create_dir_all(mailbox.data_file(task.id, "json").join("x")).expect("created");
        publisher.publish(&task, None);
        assert!(publisher.is_behind() && !mailbox.result_file(task.id).exists());
        let entries = fs::read_dir(mailbox.results()).expect("readable").count();
        assert_eq!(entries, 1, "no temporary file remains");
    }

    #[test]
    fn a_late_result_file_shows_the_state_when_it_is_written() {
        let (_folder, mailbox, mut publisher) = world();
        let accepted = stored(None);
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
        Mailbox::open(mailbox.root()).expect("created again");
        publisher.last_try = publisher.last_try.checked_sub(RETRY_INTERVAL).expect("a valid time");
        publisher.retry(&store).expect("the store works");
        assert!(!publisher.is_behind());
        let text = fs::read_to_string(mailbox.result_file(accepted.id)).expect("published");
        assert!(text.contains("\"state\": \"queued\""), "{text}");
        assert!(mailbox.collect_answer(accepted.id).expect("readable").is_some());
    }
}
