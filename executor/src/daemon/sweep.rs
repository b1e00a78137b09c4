//! Housekeeping: what is too old goes, and what callers should find is there.

use std::fs;
use std::io;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;

use super::{Daemon, DaemonError};
use crate::clock;
use crate::task::{Outcome, TaskId};

/// How often it is done where nothing is kept for a shorter time.
const EVERY: Duration = Duration::from_hours(1);
/// It is not done more often.
const LEAST: Duration = Duration::from_secs(10);
/// How far back results are looked for that an executor recorded and did not publish, though there
/// was not even a placeholder. That is what a loss of power can take back: seconds, in truth.
const RECENT: Duration = EVERY;

impl Daemon {
    /// How often it is done: what is kept for a minute does not lie there for an hour, and what goes
    /// goes in small parts, since callers wait meanwhile.
    pub(super) fn sweeps_every(&self) -> Duration {
        (self.keep / 6).clamp(LEAST, EVERY)
    }

    /// Forgets tasks that ended long ago, with all that lies about them; clears the mailbox of what
    /// nobody needs. A file that cannot be removed is met again the next time.
    pub(super) fn sweep(&mut self) -> Result<(), DaemonError> {
        let oldest = before_now(self.keep);
        match self.store.forget(oldest) {
            Err(error) if error.is_want_of_room() => tracing::warn!(%error, "old tasks could not be forgotten"),
            forgotten => {
                for id in forgotten? {
                    log_failure("a forgotten task's files could not be removed", self.forget(id));
                }
            }
        }
        log_failure("the mailbox could not be swept", self.mailbox.sweep(SystemTime::now()).map(drop));
        self.remove_orphans(SystemTime::now())
    }

    /// Publishes what an executor before us recorded and did not bring to the mailbox, or what was
    /// removed with an earlier mailbox.
    pub(super) fn restore(&mut self) -> Result<(), DaemonError> {
        let since = if self.presence.is_restored() { RECENT } else { self.keep };
        for task in self.store.ended_since(before_now(since))? {
            if !self.mailbox.is_final(task.id) {
                self.publisher.publish(&task);
            }
        }
        for id in self.mailbox.results_of()? {
            if !self.mailbox.is_final(id)
                && let Some(task) = self.store.task(id)?.filter(|task| task.state.is_final())
            {
                self.publisher.publish(&task);
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

    /// Removes old results whose task is forgotten: an executor was killed between the two.
    fn remove_orphans(&mut self, now: SystemTime) -> Result<(), DaemonError> {
        for id in self.mailbox.results_of()? {
            let written = fs::metadata(self.mailbox.result_file(id)).and_then(|found| found.modified());
            let is_old = written.is_ok_and(|at| now.duration_since(at).is_ok_and(|age| age > self.keep));
            if is_old && self.store.task(id)?.is_none() {
                log_failure("an orphaned result could not be removed", self.forget(id));
            }
        }
        Ok(())
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
