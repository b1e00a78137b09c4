//! Retention: deletes ended tasks beyond the configured age and size, and files that nothing refers to.
//!
//! `store/retention.rs` decides which tasks are forgotten.

use std::collections::{HashMap, VecDeque};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use std::{fs, io};

use dispatcher::Dispatcher;
use ground::config::ExecutorSettings;
use ground::task::Outcome;
use jiff::Timestamp;
use protocol::clock;
use protocol::mailbox::Mailbox;
use protocol::task::TaskId;
use runner::script;
use store::retention::{self, RetainedTask, RetentionLimits};
use store::{Store, StoreError};

use super::DaemonError;
use super::record::RecordKeeper;

/// The longest time between two sweeps.
const MAX_INTERVAL: Duration = Duration::from_hours(1);
/// The shortest time between two sweeps.
const MIN_INTERVAL: Duration = Duration::from_secs(10);
/// Tasks that ended more recently stay, whatever their size: a caller may be about to read the result.
const MIN_AGE: Duration = Duration::from_mins(10);
/// How long ended grants are still shown.
const GRANT_AGE: Duration = Duration::from_hours(30 * 24);
/// How many tasks are forgotten in one step of the event loop. Callers wait for the step.
const MAX_BATCH: usize = 50;

pub(super) struct Sweeper {
    mailbox: Mailbox,
    data_folder: Arc<Path>,
    /// The folder with the records of scripts.
    scripts: PathBuf,
    limits: RetentionLimits,
    next_sweep: Instant,
    /// Tasks that the last sweep found and that are not forgotten yet.
    to_forget: VecDeque<TaskId>,
}

impl Sweeper {
    pub(super) fn new(mailbox: Mailbox, data_folder: Arc<Path>, scripts: PathBuf, config: &ExecutorSettings) -> Self {
        let limits = retention_limits(config);
        Self { mailbox, data_folder, scripts, limits, next_sweep: Instant::now(), to_forget: VecDeque::new() }
    }

    /// Keeps what `config` says from the next sweep on, which is now.
    pub(super) fn apply_settings(&mut self, config: &ExecutorSettings) {
        self.limits = retention_limits(config);
        self.next_sweep = Instant::now();
    }

    /// How long results of ended tasks are kept.
    pub(super) fn max_age(&self) -> Duration {
        self.limits.max_age
    }

    /// When to call [`Self::sweep_due`] and [`Self::forget_some`].
    pub(super) fn next_deadline(&self) -> Instant {
        if self.to_forget.is_empty() { self.next_sweep } else { Instant::now() }
    }

    /// Sweeps if it is time to. `hooks` are the names of the configured hooks.
    pub(super) fn sweep_due(
        &mut self,
        record: &mut RecordKeeper,
        dispatcher: &mut Dispatcher,
        hooks: &[&str],
    ) -> Result<(), DaemonError> {
        if self.next_sweep > Instant::now() {
            return Ok(());
        }
        let outcome = self.sweep(record, dispatcher, hooks);
        // What is kept for a minute must not stay for an hour.
        self.next_sweep = Instant::now() + (self.limits.max_age / 6).clamp(MIN_INTERVAL, MAX_INTERVAL);
        outcome
    }

    /// Finds the tasks to forget in the following steps, and deletes old hook deliveries, grants and files of the
    /// mailbox.
    fn sweep(
        &mut self,
        record: &mut RecordKeeper,
        dispatcher: &mut Dispatcher,
        hooks: &[&str],
    ) -> Result<(), DaemonError> {
        self.to_forget = retention::to_forget(&self.retained(record.store())?, self.limits, clock::now()).into();
        unless_full(record.store_mut().forget_deliveries(before_now(self.limits.max_age), hooks))?;
        let spent = dispatcher.ended_grants(before_now(GRANT_AGE));
        if !spent.is_empty() && unless_full(record.store_mut().forget_grants(&spent))? {
            dispatcher.forget_grants(&spent);
        }
        log_failure("failed to sweep the mailbox", self.mailbox.sweep(SystemTime::now()).map(drop));
        Ok(())
    }

    /// Forgets some of the tasks that the last sweep found.
    pub(super) fn forget_some(&mut self, record: &mut RecordKeeper) -> Result<(), DaemonError> {
        let ids: Vec<_> = self.to_forget.drain(..self.to_forget.len().min(MAX_BATCH)).collect();
        if ids.is_empty() {
            return Ok(());
        }
        if !self.forget(&ids, record)? {
            tracing::warn!("the disk is full: old tasks are not forgotten yet");
            self.to_forget.clear();
        }
        Ok(())
    }

    /// Forgets tasks: their records, results and data. Returns false, without forgetting any, if the disk is full.
    ///
    /// Files that cannot be removed remain for a later sweep.
    pub(super) fn forget(&self, ids: &[TaskId], record: &mut RecordKeeper) -> Result<bool, StoreError> {
        if !unless_full(record.store_mut().forget(ids))? {
            return Ok(false);
        }
        for id in ids {
            log_failure("failed to remove the files of a forgotten task", self.remove_files(*id));
        }
        Ok(true)
    }

    /// Removes data files that no result refers to: an attempt wrote them, and its end was not recorded. The data of an
    /// open task stays, since its end may be about to be recorded.
    pub(super) fn remove_unused_data(&self, store: &dyn Store) -> Result<(), DaemonError> {
        for entry in fs::read_dir(&self.data_folder)? {
            let entry = entry?;
            let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            let is_used = store
                .task(id)?
                .is_some_and(|task| task.end.is_none_or(|end| matches!(end.outcome, Outcome::File { .. })));
            if !is_used {
                log_failure("failed to remove unused data", fs::remove_file(entry.path()));
            }
        }
        Ok(())
    }

    /// Every ended task, with the bytes of its record, result file and data. Includes results without a record: an
    /// executor was killed after it forgot the task and before it removed the files.
    fn retained(&self, store: &dyn Store) -> Result<Vec<RetainedTask>, DaemonError> {
        let mut retained = store.retained()?;
        let mut results = self.mailbox.sizes()?;
        let mut data = HashMap::new();
        for entry in fs::read_dir(&self.data_folder)? {
            let entry = entry?;
            data.insert(entry.file_name(), entry.metadata().map_or(0, |found| found.len()));
        }
        for task in &mut retained {
            let data = data.get(OsStr::new(&task.id.to_string())).copied().unwrap_or(0);
            let (result, _) = results.remove(&task.id).unwrap_or((0, SystemTime::UNIX_EPOCH));
            task.bytes = task.bytes.saturating_add(result).saturating_add(data);
        }
        for (id, (bytes, written)) in results {
            if store.task(id)?.is_none() {
                let ended_at = Timestamp::try_from(written).unwrap_or(Timestamp::MIN);
                retained.push(RetainedTask { id, ended_at, bytes });
            }
        }
        Ok(retained)
    }

    fn remove_files(&self, id: TaskId) -> io::Result<()> {
        self.mailbox.forget(id)?;
        script::forget_record(&self.scripts, &id.to_string())?;
        match fs::remove_file(self.data_folder.join(id.to_string())) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }
}

/// Returns whether it succeeded, false if the disk is full.
fn unless_full(outcome: Result<(), StoreError>) -> Result<bool, StoreError> {
    match outcome {
        Ok(()) => Ok(true),
        Err(error) if error.is_disk_full() => {
            tracing::debug!(%error, "the disk is full");
            Ok(false)
        }
        Err(error) => Err(error),
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

fn retention_limits(config: &ExecutorSettings) -> RetentionLimits {
    let max_age = config.keep.get();
    RetentionLimits { max_age, max_bytes: config.keep_bytes, min_age: MIN_AGE.min(max_age) }
}
