//! The record of tasks: commits changes, and keeps them in memory while the disk is full.
//!
//! While the disk is full, new tasks are refused at once, and what happens to older tasks waits in memory: an executor
//! that gave up would lose track of what its attempts did. After a failed sync the state of the disk is unknown, so
//! the commit is not tried again, and the executor ends without answering.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use dispatcher::report::{AttemptReport, FailedAttempt, FailureKind};
use dispatcher::{Action, Dispatcher, Effects, Event};
use ground::task::failure::{Retry, SideEffect};
use ground::task::{End, Outcome, Task};
use jiff::Timestamp;
use protocol::clock;
use protocol::code::Code;
use protocol::error::ErrorBody;
use protocol::mailbox::request::Answer;
use protocol::task::{Step, TaskId};
use store::{Change, Store, StoreError};

/// How long to wait before committing again after the disk was full.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// Owns the store, and the effects that could not be committed because the disk was full.
pub(super) struct RecordKeeper {
    store: Box<dyn Store>,
    /// In order. Its actions wait for its changes.
    backlog: Effects,
    last_try: Option<Instant>,
    /// Since when nothing could be committed because the disk was full.
    full_since: Option<Timestamp>,
}

/// The result of a commit.
#[derive(Debug, Default)]
pub(super) struct CommitOutcome {
    /// The changes that are durable now, and how long the commit took.
    pub(super) changes: Vec<Change>,
    pub(super) duration: Duration,
    /// The actions that may be carried out now.
    pub(super) actions: Vec<Action>,
}

impl RecordKeeper {
    pub(super) fn new(store: Box<dyn Store>) -> Self {
        Self { store, backlog: Effects::default(), last_try: None, full_since: None }
    }

    pub(super) fn store(&self) -> &dyn Store {
        self.store.as_ref()
    }

    pub(super) fn store_mut(&mut self) -> &mut dyn Store {
        self.store.as_mut()
    }

    /// Commits `effects`. When this returns, the changes are durable, or they wait in the backlog.
    ///
    /// If the disk is full, `refuse_new` removes the new tasks from `effects`.
    pub(super) fn commit(
        &mut self,
        mut effects: Effects,
        refuse_new: impl FnOnce(&mut Effects),
    ) -> Result<CommitOutcome, StoreError> {
        if !self.is_behind() {
            let started = Instant::now();
            match self.store.commit(&effects.changes) {
                Ok(()) => {
                    let Effects { changes, actions } = effects;
                    // A commit of nothing writes nothing.
                    if !changes.is_empty() {
                        self.full_since = None;
                    }
                    return Ok(CommitOutcome { changes, duration: started.elapsed(), actions });
                }
                Err(error) if error.is_disk_full() => {
                    tracing::error!(%error, "the disk is full: new tasks are refused until the record of tasks can be written");
                    self.last_try = Some(Instant::now());
                    self.full_since.get_or_insert_with(clock::now);
                    refuse_new(&mut effects);
                }
                Err(error) => return Err(error),
            }
        }
        let Effects { mut changes, actions } = effects;
        if changes.is_empty() {
            return Ok(CommitOutcome { actions, ..CommitOutcome::default() });
        }
        // A refusal does not depend on any change, and its caller waits for it.
        let is_refusal =
            |action: &Action| matches!(action, Action::Answer(_, answer) if matches!(&**answer, Answer::Refused(_)));
        let (refusals, waiting): (Vec<_>, Vec<_>) = actions.into_iter().partition(is_refusal);
        self.backlog.changes.append(&mut changes);
        self.backlog.actions.extend(waiting);
        Ok(CommitOutcome { actions: refusals, ..CommitOutcome::default() })
    }

    /// Commits the backlog, at most once per [`RETRY_INTERVAL`].
    pub(super) fn retry(&mut self) -> Result<CommitOutcome, StoreError> {
        if self.next_retry().is_none_or(|at| at > Instant::now()) {
            return Ok(CommitOutcome::default());
        }
        let started = Instant::now();
        self.last_try = Some(started);
        match self.store.commit(&self.backlog.changes) {
            Ok(()) => {
                tracing::info!("the record of tasks can be written again");
                self.full_since = None;
                let Effects { changes, actions } = std::mem::take(&mut self.backlog);
                Ok(CommitOutcome { changes, duration: started.elapsed(), actions })
            }
            Err(error) if error.is_disk_full() => Ok(CommitOutcome::default()),
            Err(error) => Err(error),
        }
    }

    /// Commits the backlog before the executor ends. Changes that cannot be committed are lost.
    pub(super) fn retry_last(&mut self) -> Result<CommitOutcome, StoreError> {
        self.last_try = None;
        let committed = self.retry()?;
        if self.is_behind() {
            let changes = self.backlog.changes.len();
            tracing::error!(changes, "the executor ends without recording the last changes: the disk is full");
        }
        Ok(committed)
    }

    /// When to call [`Self::retry`].
    pub(super) fn next_retry(&self) -> Option<Instant> {
        self.is_behind().then(|| self.last_try.map_or_else(Instant::now, |at| at + RETRY_INTERVAL))
    }

    /// Whether changes wait in the backlog.
    pub(super) fn is_behind(&self) -> bool {
        !self.backlog.changes.is_empty()
    }

    /// Since when the disk with the record was too full for the last commit.
    pub(super) fn full_since(&self) -> Option<Timestamp> {
        self.full_since
    }

    /// Whether the answer to `request` waits in the backlog.
    pub(super) fn has_pending_answer(&self, request: TaskId) -> bool {
        self.backlog.actions.iter().any(|action| matches!(action, Action::Answer(id, _) if *id == request))
    }
}

/// The refusal of new tasks while the disk is full.
pub(super) fn disk_full() -> ErrorBody {
    ErrorBody::new(Code::Throttled, "the disk with the record of tasks is full")
        .hint("nothing was done; free disk space and run it again: `agent-magic-tool executor status` shows the log, which lies beside the record")
}

/// Refuses the tasks that `effects` would have accepted: removes them from the dispatcher, and everything about them
/// from `effects`. Changes of older tasks, and answers, remain.
pub(super) fn refuse_new(dispatcher: &mut Dispatcher, effects: &mut Effects, now: Timestamp) {
    let accepted = |change: &Change| match change {
        Change::Accept(task) => Some((**task).clone()),
        Change::Transition(_)
        | Change::Grant { .. }
        | Change::KeyCounter { .. }
        | Change::DecideScope(_)
        | Change::Note { .. }
        | Change::Resolve(..)
        | Change::Delivery(..)
        | Change::ReplaceQuestion { .. } => None,
    };
    let new: Vec<Task> = effects.changes.iter().filter_map(accepted).collect();
    let ids: HashSet<_> = new.iter().map(|task| task.id).collect();
    let started: HashSet<_> = effects.changes.iter().filter_map(start).collect();
    // Cancel waiting tasks first, so that the slots of the running ones go to older tasks.
    let (running, waiting): (Vec<_>, Vec<_>) = new.iter().partition(|task| started.contains(&task.id));
    for task in waiting {
        let event =
            Event::Cancel { request: task.id, id: task.id, caller: Box::new(task.caller.clone()), reason: None };
        dispatcher.handle(event, now, effects);
    }
    for task in running {
        let end = End { at: now, outcome: Outcome::Error(disk_full()), meta: serde_json::Map::new() };
        let failed =
            FailedAttempt { end, kind: FailureKind::Cancelled, retry: Retry::Never, side_effect: SideEffect::None };
        let event = Event::AttemptFinished(Box::new(AttemptReport { id: task.id, attempt: 1, result: Err(failed) }));
        dispatcher.handle(event, now, effects);
    }
    effects.changes.retain(|change| match change {
        Change::Accept(task) => !ids.contains(&task.id),
        Change::Transition(step) => !ids.contains(&step.id),
        // The use of a grant for a refused task still counts.
        Change::Grant { .. } | Change::KeyCounter { .. } | Change::DecideScope(_) => true,
        Change::Resolve(id, _) | Change::ReplaceQuestion { id, .. } | Change::Note { id, .. } => !ids.contains(id),
        Change::Delivery(delivery, _) => !ids.contains(&delivery.task),
    });
    effects.actions.retain(|action| match action {
        Action::Publish(task) | Action::Perform { task, .. } | Action::Preview { task, .. } => !ids.contains(&task.id),
        Action::Answer(request, _) => !ids.contains(request),
        Action::Interrupt(id, _) => !ids.contains(id),
        Action::Reply(..) => true,
        Action::SwitchOff(_) | Action::TellRecorded(_) => true,
    });
    for action in &mut effects.actions {
        if let Action::Answer(_, answer) = action
            && matches!(&**answer, Answer::SameAs(id) if ids.contains(id))
        {
            **answer = Answer::Refused(disk_full());
        }
    }
    effects.actions.extend(new.iter().map(|task| Action::Answer(task.id, Box::new(Answer::Refused(disk_full())))));
}

fn start(change: &Change) -> Option<TaskId> {
    match change {
        Change::Transition(step) if step.step == Step::Start => Some(step.id),
        Change::Transition(_) | Change::Accept(_) | Change::Grant { .. } | Change::Note { .. } => None,
        Change::Resolve(..) | Change::Delivery(..) | Change::ReplaceQuestion { .. } => None,
        Change::KeyCounter { .. } | Change::DecideScope(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ground::config::Config;
    use rusqlite::ffi;

    use super::*;
    use dispatcher::{Admission, DispatcherLimits};
    use store::memory::MemoryStore;

    #[test]
    fn only_a_full_disk_is_retried() {
        let is_retried = |code| {
            let error: StoreError = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None).into();
            error.is_disk_full()
        };
        assert!(is_retried(ffi::SQLITE_FULL) && is_retried(ffi::SQLITE_IOERR_WRITE));
        assert!(!is_retried(ffi::SQLITE_IOERR_FSYNC), "after a failed sync nothing is retried");
        assert!(!is_retried(ffi::SQLITE_CORRUPT) && !is_retried(ffi::SQLITE_BUSY));
    }

    fn admitted(key: Option<&str>) -> (TaskId, Event) {
        let definition = serde_json::json!({"description": "x", "input": {}, "run": {"process": {"argv": ["true"]}}});
        let definition = Arc::new(serde_json::from_value(definition).expect("a valid definition"));
        let task = ground::task::sample::stored(key);
        (task.id, Event::Admit(Box::new(Admission { task, definition, rate_limits: Vec::new(), earlier: None })))
    }

    #[test]
    fn tasks_refused_by_a_full_disk_leave_no_trace_and_older_tasks_go_on() {
        let now = Timestamp::from_second(1_700_000_100).expect("a valid time");
        let mut dispatcher =
            Dispatcher::new(DispatcherLimits { concurrency: 2, ..DispatcherLimits::of(&Config::default()) });
        let mut store = MemoryStore::default();
        let mut effects = Effects::default();
        let older: Vec<_> = (0..3).map(|_| admitted(None)).collect();
        let ids: Vec<_> = older.iter().map(|(id, _)| *id).collect();
        for (_, event) in older {
            dispatcher.handle(event, now, &mut effects);
        }
        store.commit(&effects.changes).expect("committed");
        assert_eq!(dispatcher.running(), 2);

        // Two running tasks end, and three new ones arrive: one starts, one waits, and one repeats a key.
        let mut effects = Effects::default();
        let end = End { at: now, outcome: Outcome::Data(1.into()), meta: serde_json::Map::new() };
        let first = AttemptReport { id: ids[0], attempt: 1, result: Ok(end.clone()) };
        let second = AttemptReport { id: ids[1], attempt: 1, result: Ok(end) };
        dispatcher.handle(Event::AttemptFinished(Box::new(first)), now, &mut effects);
        dispatcher.handle(Event::AttemptFinished(Box::new(second)), now, &mut effects);
        let new = [admitted(Some("k")), admitted(None), admitted(Some("k"))];
        let new_ids = [new[0].0, new[1].0, new[2].0];
        for (_, event) in new {
            dispatcher.handle(event, now, &mut effects);
        }
        refuse_new(&mut dispatcher, &mut effects, now);

        let refused: HashSet<_> = effects
            .actions
            .iter()
            .filter_map(|action| match action {
                Action::Answer(id, answer) => {
                    assert!(matches!(&**answer, Answer::Refused(error) if error.code == Code::Throttled), "{answer:?}");
                    Some(*id)
                }
                _ => None,
            })
            .collect();
        assert_eq!(refused, HashSet::from(new_ids));
        store.commit(&effects.changes).expect("the remaining changes are complete");
        for id in new_ids {
            assert_eq!(store.task(id).expect("read"), None);
        }
        assert_eq!(store.open_tasks().expect("read").iter().map(|task| task.id).collect::<Vec<_>>(), [ids[2]]);
        assert_eq!(dispatcher.running(), 1, "the older task has a slot");
        let (id, again) = admitted(Some("k"));
        let mut effects = Effects::default();
        dispatcher.handle(again, now, &mut effects);
        assert!(matches!(&effects.changes[0], Change::Accept(task) if task.id == id), "the key is free again");
    }
}
