//! Housekeeping: what is too old goes, and what callers should find is there.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::time::{Duration, SystemTime};
use std::{fs, io};

use jiff::Timestamp;
use protocol::clock;
use protocol::mailbox::request::Answer;
use protocol::task::TaskId;

use super::commit::disk_full;
use super::{Daemon, DaemonError};
use crate::config;
use crate::store::retention::{self, RetainedTask, RetentionLimits};
use crate::task::Outcome;

/// How often it is done where nothing is kept for a shorter time.
const EVERY: Duration = Duration::from_hours(1);
/// It is not done more often.
const MIN_INTERVAL: Duration = Duration::from_secs(10);
/// How far back results are looked for that an executor recorded and did not publish, though there
/// was not even a placeholder. That is what a loss of power can take back: seconds, in truth.
const RECENT: Duration = EVERY;

/// What ended less long ago stays, whatever it takes: somebody may be about to read it.
const READABLE: Duration = Duration::from_mins(10);
/// How long a grant that has ended is still shown.
const GRANTS: Duration = Duration::from_hours(30 * 24);
/// So many tasks are forgotten in one turn, which callers may have to wait for.
const AT_ONCE: usize = 50;

/// What the configuration says is kept.
pub(super) fn keep(config: &config::ExecutorSettings) -> RetentionLimits {
    let age = config.keep.get();
    RetentionLimits { max_age: age, max_bytes: config.keep_bytes, min_age: READABLE.min(age) }
}

impl Daemon {
    /// How often it is done: what is kept for a minute does not lie there for an hour.
    pub(super) fn sweeps_every(&self) -> Duration {
        (self.keep.max_age / 6).clamp(MIN_INTERVAL, EVERY)
    }

    /// Finds the tasks that ended long ago, or that take too much, to be forgotten in the turns that
    /// follow; clears the mailbox of what nobody needs.
    pub(super) fn sweep(&mut self) -> Result<(), DaemonError> {
        self.to_forget = retention::to_forget(&self.kept()?, self.keep, clock::now()).into();
        self.forget_deliveries()?;
        self.forget_grants()?;
        log_failure("the mailbox could not be swept", self.mailbox.sweep(SystemTime::now()).map(drop));
        Ok(())
    }

    /// Forgets some of those that the last sweep found, with all that lies about them. A file that cannot
    /// be removed is met again by the next one.
    pub(super) fn forget_some(&mut self) -> Result<(), DaemonError> {
        let ids: Vec<_> = self.to_forget.drain(..self.to_forget.len().min(AT_ONCE)).collect();
        if ids.is_empty() {
            return Ok(());
        }
        match self.store.forget(&ids) {
            Err(error) if error.is_disk_full() => {
                tracing::warn!(%error, "old tasks could not be forgotten");
                self.to_forget.clear();
                return Ok(());
            }
            done => done?,
        }
        for id in ids {
            log_failure("a forgotten task's files could not be removed", self.forget(id));
        }
        Ok(())
    }

    /// Forgets what has ended of a user's session, with all that lies about it. What is open stays; so does
    /// what ended a moment ago and is not in the record, or in the mailbox, yet.
    pub(super) fn forget_session(&mut self, uid: u32, session: &str) -> Result<Answer, DaemonError> {
        let mut ids = self.store.ended_in_session(uid, session)?;
        ids.retain(|id| !self.publisher.owes(*id));
        match self.store.forget(&ids) {
            Err(error) if error.is_disk_full() => return Ok(Answer::Refused(disk_full())),
            done => done?,
        }
        for id in &ids {
            log_failure("a forgotten task's files could not be removed", self.forget(*id));
        }
        let open = self.dispatcher.open_in_session(uid, session);
        tracing::info!(uid, session = %self.runner_context.secrets.redact(session), forgotten = ids.len(), open = open.len(), "session forgotten");
        Ok(Answer::Forgotten { forgotten: ids.len(), open })
    }

    /// What no hook will be told any more goes as ended tasks do.
    fn forget_deliveries(&mut self) -> Result<(), DaemonError> {
        let hooks: Vec<_> = self.hook_dispatcher.hooks().names().collect();
        match self.store.forget_deliveries(before_now(self.keep.max_age), &hooks) {
            Err(error) if error.is_disk_full() => Ok(()),
            done => Ok(done?),
        }
    }

    /// Grants that ended long ago.
    fn forget_grants(&mut self) -> Result<(), DaemonError> {
        let spent = self.dispatcher.ended_grants(before_now(GRANTS));
        if spent.is_empty() {
            return Ok(());
        }
        match self.store.forget_grants(&spent) {
            Err(error) if error.is_disk_full() => Ok(()),
            done => {
                done?;
                self.dispatcher.forget_grants(&spent);
                Ok(())
            }
        }
    }

    /// All that has ended, with what its record, its result file and its data take; also the result of
    /// a task that was forgotten by an executor which was killed before it had removed it.
    fn kept(&self) -> Result<Vec<RetainedTask>, DaemonError> {
        let mut kept = self.store.retained()?;
        let mut results = self.mailbox.sizes()?;
        let mut data = HashMap::new();
        for entry in fs::read_dir(&self.data_folder)? {
            let entry = entry?;
            data.insert(entry.file_name(), entry.metadata().map_or(0, |found| found.len()));
        }
        for task in &mut kept {
            let data = data.get(OsStr::new(&task.id.to_string())).copied().unwrap_or(0);
            let (beside, _) = results.remove(&task.id).unwrap_or((0, SystemTime::UNIX_EPOCH));
            task.bytes = task.bytes.saturating_add(beside).saturating_add(data);
        }
        for (id, (bytes, written)) in results {
            if self.store.task(id)?.is_none() {
                let ended_at = Timestamp::try_from(written).unwrap_or(Timestamp::MIN);
                kept.push(RetainedTask { id, ended_at, bytes });
            }
        }
        Ok(kept)
    }

    /// Publishes what an executor before us recorded and did not bring to the mailbox, or what was
    /// removed with an earlier mailbox.
    pub(super) fn restore(&mut self) -> Result<(), DaemonError> {
        let since = if self.presence.is_restored() { RECENT } else { self.keep.max_age };
        for ended in self.store.ended_since(before_now(since))? {
            // A final file does not tell whether it was written before its task was resolved.
            if (ended.is_resolved || !self.mailbox.is_final(ended.id))
                && let Some(task) = self.store.task(ended.id)?
            {
                self.publisher.publish(&task, None);
            }
        }
        for id in self.mailbox.tasks_with_results()? {
            if !self.mailbox.is_final(id)
                && let Some(task) = self.store.task(id)?.filter(|task| task.state.is_final())
            {
                self.publisher.publish(&task, None);
            }
        }
        if !self.publisher.is_behind() {
            // Not marked, the next executor restores everything once more.
            log_failure("the mailbox could not be marked as restored", self.presence.mark_restored());
        }
        self.remove_unused_data()
    }

    fn forget(&self, id: TaskId) -> io::Result<()> {
        self.mailbox.forget(id)?;
        match fs::remove_file(self.data_folder.join(id.to_string())) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// Removes data that no result refers to: its attempt was lost before that was recorded. That of
    /// an open task may be about to be recorded.
    fn remove_unused_data(&self) -> Result<(), DaemonError> {
        for entry in fs::read_dir(&self.data_folder)? {
            let entry = entry?;
            let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            let is_used = self
                .store
                .task(id)?
                .is_some_and(|task| task.end.is_none_or(|end| matches!(end.outcome, Outcome::File { .. })));
            if !is_used {
                log_failure("unused data could not be removed", fs::remove_file(entry.path()));
            }
        }
        Ok(())
    }
}

fn log_failure(what: &str, outcome: io::Result<()>) {
    if let Err(error) = outcome {
        tracing::warn!(%error, "{what}");
    }
}

fn before_now(span: Duration) -> Timestamp {
    clock::now().checked_sub(span).unwrap_or(Timestamp::MIN)
}
