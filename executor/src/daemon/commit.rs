//! Committing: the one write that everything else waits for.
//!
//! Where there is no room for it, new tasks are refused at once, and what happens to older ones is
//! kept in memory until there is: an executor that gave up would not know any more what its tasks
//! did. After a failed sync nobody knows what is on the disk; that is tried no second time, and the
//! executor ends without answering.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use protocol::code::Code;
use protocol::error::ErrorBody;
use protocol::mailbox::request::Answer;
use protocol::task::{Step, TaskId};

use super::{Daemon, DaemonError};
use crate::attempt::report::{AttemptReport, FailedAttempt, FailureKind};
use crate::dispatcher::{Action, Dispatcher, Effects, Event};
use crate::store::Change;
use crate::task::failure::{Retry, SideEffect};
use crate::task::{End, Outcome, Task};

/// How often it is tried again.
const TRY_AGAIN: Duration = Duration::from_millis(500);
/// Nothing waits for the record.
const NO_HURRY: Duration = Duration::from_hours(1);

/// What could not be recorded for want of room, in order; its actions wait with it.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    effects: Effects,
    tried: Option<Instant>,
}

impl Backlog {
    pub(super) fn is_empty(&self) -> bool {
        self.effects.changes.is_empty()
    }

    /// Whether the answer to this request waits.
    pub(super) fn owes(&self, request: TaskId) -> bool {
        self.effects.actions.iter().any(|action| matches!(action, Action::Answer(id, _) if *id == request))
    }
}

impl Daemon {
    /// First what must be durable, then the rest.
    pub(super) fn carry_out(&mut self, mut effects: Effects) -> Result<(), DaemonError> {
        self.hook_dispatcher.owe(&mut effects, &self.mailbox, self.clock.now());
        if self.backlog.is_empty() {
            let started = Instant::now();
            match self.store.commit(&effects.changes) {
                Ok(()) => {
                    self.measure(&effects.changes, started.elapsed());
                    self.act(effects.actions);
                    return Ok(());
                }
                Err(error) if error.is_disk_full() => {
                    tracing::error!(%error, "no room for the record of tasks: new ones are refused until there is");
                    self.backlog.tried = Some(Instant::now());
                    refuse_new(&mut self.dispatcher, &mut effects, self.clock.now());
                }
                Err(error) => return Err(error.into()),
            }
        }
        if effects.changes.is_empty() {
            self.act(effects.actions);
        } else {
            // A refusal depends on nothing that is to be recorded, and its caller waits for it.
            let is_refusal = |action: &Action| matches!(action, Action::Answer(_, answer) if matches!(&**answer, Answer::Refused(_)));
            let (refusals, waiting): (Vec<_>, Vec<_>) = effects.actions.into_iter().partition(is_refusal);
            self.act(refusals);
            self.backlog.effects.changes.append(&mut effects.changes);
            self.backlog.effects.actions.extend(waiting);
        }
        Ok(())
    }

    /// Tries again to record what could not be recorded, at most once in [`TRY_AGAIN`].
    pub(super) fn catch_up_record(&mut self) -> Result<(), DaemonError> {
        if self.backlog.is_empty() || self.backlog.tried.is_some_and(|at| at.elapsed() < TRY_AGAIN) {
            return Ok(());
        }
        let started = Instant::now();
        self.backlog.tried = Some(started);
        match self.store.commit(&self.backlog.effects.changes) {
            Ok(()) => {
                tracing::info!("there is room for the record of tasks again");
                let Effects { changes, actions } = std::mem::take(&mut self.backlog.effects);
                self.measure(&changes, started.elapsed());
                self.act(actions);
                Ok(())
            }
            Err(error) if error.is_disk_full() => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Those who watch are told what is durable.
    fn measure(&mut self, changes: &[Change], took: Duration) {
        if let Some(telemetry) = &mut self.telemetry {
            telemetry.committed(changes, took);
        }
    }

    /// How long nothing need be tried again.
    pub(super) fn patience_with_record(&self) -> Duration {
        if self.backlog.is_empty() { NO_HURRY } else { TRY_AGAIN }
    }

    /// What is not recorded now is not known to the next executor.
    pub(super) fn last_try_to_record(&mut self) -> Result<(), DaemonError> {
        self.backlog.tried = None;
        self.catch_up_record()?;
        if !self.backlog.is_empty() {
            let changes = self.backlog.effects.changes.len();
            tracing::error!(changes, "the executor ends, and there was no room to record the last of what happened");
        }
        Ok(())
    }
}

/// What a caller is told while there is no room.
pub(super) fn disk_full() -> ErrorBody {
    ErrorBody::new(Code::Throttled, "the disk with the record of tasks is full")
        .hint("nothing was done; run it again when there is room: `agent-magic-tool executor status` names the log beside the record")
}

/// Takes the tasks that `effects` would have accepted out of the dispatcher, and out of `effects` all
/// that is about them; what is left is about older tasks, and answers.
fn refuse_new(dispatcher: &mut Dispatcher, effects: &mut Effects, now: jiff::Timestamp) {
    let accepted = |change: &Change| match change {
        Change::Accept(task) => Some((**task).clone()),
        Change::Transition(_) | Change::Grant { .. } | Change::Resolve(..) | Change::Delivery(..) | Change::SetPreview { .. } => None,
    };
    let new: Vec<Task> = effects.changes.iter().filter_map(accepted).collect();
    let ids: HashSet<_> = new.iter().map(|task| task.id).collect();
    let started: HashSet<_> = effects.changes.iter().filter_map(start).collect();
    // Those that wait go first, so that the places of the others are for older tasks.
    let (running, waiting): (Vec<_>, Vec<_>) = new.iter().partition(|task| started.contains(&task.id));
    for task in waiting {
        let event = Event::Cancel { request: task.id, task: task.id, uid: task.caller.uid };
        dispatcher.handle(event, now, effects);
    }
    for task in running {
        let end = End { at: now, outcome: Outcome::Error(disk_full()), meta: serde_json::Map::new() };
        let failed = FailedAttempt { end, kind: FailureKind::Cancelled, retry: Retry::Never, side_effect: SideEffect::None };
        let event = Event::AttemptFinished(Box::new(AttemptReport { id: task.id, attempt: 1, result: Err(failed) }));
        dispatcher.handle(event, now, effects);
    }
    effects.changes.retain(|change| match change {
        Change::Accept(task) => !ids.contains(&task.id),
        Change::Transition(step) => !ids.contains(&step.id),
        // A grant that was used for one of them has one use less.
        Change::Grant { .. } => true,
        Change::Resolve(id, _) | Change::SetPreview { id, .. } => !ids.contains(id),
        Change::Delivery(delivery, _) => !ids.contains(&delivery.task),
    });
    effects.actions.retain(|action| match action {
        Action::Publish(task) | Action::Perform { task, .. } | Action::Preview { task, .. } => !ids.contains(&task.id),
        Action::Answer(request, _) => !ids.contains(request),
        Action::Interrupt(id, _) => !ids.contains(id),
        Action::Reply(..) => true,
        Action::SwitchOff(_) => true,
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
        Change::Transition(_) | Change::Accept(_) | Change::Grant { .. } => None,
        Change::Resolve(..) | Change::Delivery(..) | Change::SetPreview { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rusqlite::ffi;

    use super::*;
    use crate::config::Config;
    use crate::dispatcher::{Admission, DispatcherLimits};
    use crate::store::memory::MemoryStore;
    use crate::store::{Store as _, StoreError};

    #[test]
    fn only_a_want_of_room_is_waited_out() {
        let is_waited_out = |code| {
            let error: StoreError = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None).into();
            error.is_disk_full()
        };
        assert!(is_waited_out(ffi::SQLITE_FULL) && is_waited_out(ffi::SQLITE_IOERR_WRITE));
        assert!(!is_waited_out(ffi::SQLITE_IOERR_FSYNC), "a failed sync is final");
        assert!(!is_waited_out(ffi::SQLITE_CORRUPT) && !is_waited_out(ffi::SQLITE_BUSY));
    }

    fn admitted(key: Option<&str>) -> (TaskId, Event) {
        let definition = serde_json::json!({"description": "x", "input": {}, "run": {"process": {"argv": ["true"]}}});
        let definition = Arc::new(serde_json::from_value(definition).expect("a definition"));
        let task = crate::store::contract::task(key);
        (task.id, Event::Admit(Box::new(Admission { task, definition, earlier: None })))
    }

    #[test]
    fn what_is_refused_for_want_of_room_is_as_if_it_had_never_been_and_older_tasks_go_on() {
        let now = jiff::Timestamp::from_second(1_700_000_100).expect("a time");
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

        // One ends, and two that are new come: one starts, the other waits; a third is the same as one.
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
        store.commit(&effects.changes).expect("what is left can be recorded by itself");
        for id in new_ids {
            assert_eq!(store.task(id).expect("read"), None);
        }
        assert_eq!(store.open_tasks().expect("read").iter().map(|task| task.id).collect::<Vec<_>>(), [ids[2]]);
        assert_eq!(dispatcher.running(), 1, "the older one has its place");
        let (id, again) = admitted(Some("k"));
        let mut effects = Effects::default();
        dispatcher.handle(again, now, &mut effects);
        assert!(matches!(&effects.changes[0], Change::Accept(task) if task.id == id), "its key is free again");
    }
}
