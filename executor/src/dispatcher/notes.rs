//! What is noted of a task's attempts: why the last one failed, where its job is; and when a task is given up.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use protocol::duration::PositiveDuration;
use protocol::task::TaskId;

use super::{Action, Dispatcher, Effects};
use crate::attempt::report::FailedAttempt;
use crate::catalog::definition::Definition;
use crate::store::Change;
use crate::task::failure::Retry;
use crate::task::notes::{AttemptProgress, LastFailure, TaskNotes};
use crate::task::{End, Outcome, Task};

/// The default for `give_up_after`: as long as a caller may still want the result of an ordinary call.
const GIVE_UP_AFTER: Duration = Duration::from_hours(1);

impl Dispatcher {
    /// Records where the job of a running attempt is, so that a later executor can go on with it; or that it is over.
    pub(super) fn note_job(&mut self, id: TaskId, attempt: u32, job: Option<String>, effects: &mut Effects) {
        let Some(open) = self.open.get_mut(&id) else { return };
        if !open.is_executing() || open.task.attempt != attempt || open.task.notes.job == job {
            return;
        }
        let reason = open.task.notes.reason.take();
        open.task.notes = TaskNotes { last_failure: None, job, reason, ..TaskNotes::default() };
        effects.changes.push(note(&open.task));
    }

    /// Shows how far a running attempt is. Nothing is recorded: what runs after a restart says it anew.
    pub(super) fn note_progress(&mut self, id: TaskId, attempt: u32, progress: AttemptProgress, effects: &mut Effects) {
        let Some(open) = self.open.get_mut(&id) else { return };
        if open.is_executing() && open.task.attempt == attempt {
            open.task.notes.progress = Some(progress);
            effects.actions.push(Action::Publish(Box::new(open.task.clone())));
        }
    }
}

/// Notes why an attempt failed that is followed by another.
pub(super) fn note_failure(task: &mut Task, failed: FailedAttempt, at: Timestamp, effects: &mut Effects) {
    let Outcome::Error(error) = failed.end.outcome else { return };
    let server_asked = matches!(failed.retry, Retry::After(_));
    let reason = task.notes.reason.take();
    task.notes = TaskNotes {
        last_failure: Some(LastFailure { at, error, server_asked }),
        job: None,
        reason,
        ..TaskNotes::default()
    };
    effects.changes.push(note(task));
}

fn note(task: &Task) -> Change {
    Change::Note { id: task.id, attempt: task.attempt, notes: Box::new(task.notes.clone()) }
}

/// Returns the time after which no further attempt of `task` starts.
pub(super) fn give_up_at(definition: &Definition, task: &Task) -> Timestamp {
    let after = definition.give_up_after.map_or(GIVE_UP_AFTER, PositiveDuration::get);
    let after = SignedDuration::try_from(after).unwrap_or(SignedDuration::MAX);
    task.ready_at().saturating_add(after).unwrap_or(Timestamp::MAX)
}

/// Returns the end of a task whose next attempt would start too late, at `next`.
pub(super) fn given_up(failed: FailedAttempt, next: Timestamp, give_up_at: Timestamp) -> End {
    let mut end = failed.end;
    if let Outcome::Error(error) = &mut end.outcome {
        let who =
            if matches!(failed.retry, Retry::After(_)) { "the server asks to wait" } else { "the next attempt waits" };
        let told = format!("{who} until {next}, and the task is given up at {give_up_at}; run it again after that");
        error.hint = Some(match error.hint.take() {
            Some(hint) => format!("{hint}; {told}"),
            None => told,
        });
    }
    end
}

#[cfg(test)]
mod tests {
    use protocol::task::State;
    use serde_json::json;

    use super::super::Event;
    use super::super::tests::{Bench, definition, limits};
    use super::*;
    use crate::attempt::report::FailureKind;
    use crate::runner::AttemptNews;
    use crate::task::effect::EffectClass;
    use crate::task::failure::SideEffect;

    #[test]
    fn a_task_that_waits_for_its_next_attempt_says_why() {
        let mut bench = Bench::new(limits(1));
        let retried = definition(json!({"retries": {"times": 2, "backoff": "1s"}}));
        let id = bench.start(EffectClass::Read, &retried);
        let asked = Retry::After(Duration::from_secs(90));
        bench.fail(id, FailureKind::Failure, asked, SideEffect::None);
        let waiting = bench.stored(id);
        let failure = waiting.notes.last_failure.expect("it is recorded");
        assert_eq!((failure.at, failure.server_asked), (bench.now, true));
        assert_eq!(waiting.not_before, Some(bench.now + SignedDuration::from_secs(90)));
    }

    #[test]
    fn no_attempt_starts_after_the_time_to_give_up() {
        let mut bench = Bench::new(limits(1));
        let retried = definition(json!({"retries": {"times": 9, "backoff": "10s"}, "give_up_after": "60s"}));
        let id = bench.start(EffectClass::Read, &retried);
        bench.fail(id, FailureKind::Failure, Retry::Later, SideEffect::None);
        assert_eq!(bench.state(id), State::Queued);
        bench.pass(Duration::from_secs(15));
        bench.handle(Event::Tick);
        bench.fail(id, FailureKind::Failure, Retry::After(Duration::from_secs(46)), SideEffect::None);
        assert_eq!(bench.state(id), State::Failed);
        let Some(End { outcome: Outcome::Error(error), .. }) = bench.stored(id).end else { panic!("an error") };
        assert!(error.hint.is_some_and(|hint| hint.contains("the server asks to wait until")));
    }

    #[test]
    fn a_job_is_recorded_and_a_lost_attempt_goes_on_with_it() {
        let url = "https://api.example/jobs/7".to_owned();
        let mut bench = Bench::new(limits(1));
        let id = bench.start(EffectClass::Once, &definition(json!({})));
        let told = |attempt| Event::AttemptTold { id, attempt, news: AttemptNews::Job(url.clone()) };
        bench.handle(told(7));
        assert_eq!(bench.stored(id).notes.job, None, "another attempt");
        bench.handle(told(1));
        assert_eq!(bench.stored(id).notes.job.as_ref(), Some(&url));
        let turn = bench.fail(id, FailureKind::Shutdown, Retry::Never, SideEffect::Possible);
        assert_eq!(turn.performed, [id], "asking for a job changes nothing");
        assert_eq!((bench.stored(id).attempt, bench.stored(id).notes.job.as_ref()), (2, Some(&url)));
        bench.fail(id, FailureKind::Failure, Retry::Later, SideEffect::Possible);
        assert_eq!(bench.state(id), State::Failed, "a failure after the request is not repeated");
    }
}
