//! What is noted of a task's attempts: why the last one failed, where its job is, whether it sent anything; and when a task
//! is given up.

use std::time::Duration;

use definition::Definition;
use ground::task::failure::Retry;
use ground::task::feedback::{AttemptNews, RecordedSignal};
use ground::task::notes::{AttemptProgress, LastFailure, TaskNotes};
use ground::task::{End, Outcome, Task};
use jiff::{SignedDuration, Timestamp};
use protocol::duration::PositiveDuration;
use protocol::task::{Step, TaskId};
use store::Change;

use super::{Action, Dispatcher, Effects, OpenTask, advance};
use crate::report::FailedAttempt;

/// The default for `give_up_after`: as long as a caller may still want the result of an ordinary call.
const GIVE_UP_AFTER: Duration = Duration::from_hours(1);

impl Dispatcher {
    /// Handles what a running attempt tells.
    pub(super) fn note_news(&mut self, id: TaskId, attempt: u32, news: AttemptNews, effects: &mut Effects) {
        match news {
            AttemptNews::Job(job) => self.note_job(id, attempt, job, effects),
            AttemptNews::Unsent => self.note_unsent(id, attempt, effects),
            AttemptNews::Sending(recorded) => self.note_sending(id, attempt, recorded, effects),
            AttemptNews::Progress(progress) => self.note_progress(id, attempt, progress, effects),
        }
    }

    /// Records where the job of a running attempt is, so that a later executor can go on with it.
    fn note_job(&mut self, id: TaskId, attempt: u32, job: String, effects: &mut Effects) {
        if let Some(open) = self.executing(id, attempt).filter(|open| open.task.notes.job.as_ref() != Some(&job)) {
            let notes = std::mem::take(&mut open.task.notes);
            open.task.notes = TaskNotes { last_failure: None, job: Some(job), progress: None, ..notes };
            effects.changes.push(note(&open.task));
        }
    }

    /// Records that a running attempt waits for a human and has sent nothing.
    fn note_unsent(&mut self, id: TaskId, attempt: u32, effects: &mut Effects) {
        if let Some(open) = self.executing(id, attempt).filter(|open| !open.task.notes.is_unsent) {
            open.task.notes.is_unsent = true;
            effects.changes.push(note(&open.task));
        }
    }

    /// Records that a running attempt may send something from now on, and lets it go on then. An attempt that is not
    /// running anymore gets no signal.
    fn note_sending(&mut self, id: TaskId, attempt: u32, recorded: RecordedSignal, effects: &mut Effects) {
        let Some(open) = self.executing(id, attempt) else { return };
        if std::mem::take(&mut open.task.notes.is_unsent) {
            effects.changes.push(note(&open.task));
        }
        effects.actions.push(Action::TellRecorded(recorded));
    }

    fn executing(&mut self, id: TaskId, attempt: u32) -> Option<&mut OpenTask> {
        self.open.get_mut(&id).filter(|open| open.is_executing() && open.task.attempt == attempt)
    }

    /// Shows how far a running attempt is. Nothing is recorded: what runs after a restart says it anew.
    fn note_progress(&mut self, id: TaskId, attempt: u32, progress: AttemptProgress, effects: &mut Effects) {
        if let Some(open) = self.executing(id, attempt) {
            open.task.notes.progress = Some(progress);
            effects.actions.push(Action::Publish(Box::new(open.task.clone())));
        }
    }
}

/// Notes why an attempt failed that is followed by another.
pub(super) fn note_failure(task: &mut Task, failed: FailedAttempt, at: Timestamp, effects: &mut Effects) {
    let Outcome::Error(error) = failed.end.outcome else { return };
    let server_asked = matches!(failed.retry, Retry::After(_));
    let notes = std::mem::take(&mut task.notes);
    let last_failure = Some(LastFailure { at, error, server_asked });
    task.notes = TaskNotes { last_failure, job: None, is_unsent: false, progress: None, ..notes };
    effects.changes.push(note(task));
}

/// Queues a task again whose attempt was lost before it sent anything, and records that the attempt does not count.
pub(super) fn begin_again(task: &mut Task, at: Timestamp, effects: &mut Effects) {
    advance(task, Step::Retry, at, None, None, effects);
    task.notes.unsent_attempts += 1;
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
    use futures_util::FutureExt as _;
    use ground::task::effect::EffectClass;
    use ground::task::failure::SideEffect;
    use protocol::task::State;
    use serde_json::json;

    use super::super::Event;
    use super::super::recovery::{MAX_LOST_ATTEMPTS, MAX_UNSENT_ATTEMPTS};
    use super::super::tests::{Bench, definition, limits, told_sending};
    use super::*;
    use crate::report::FailureKind;

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
        assert_eq!(bench.state(id), State::Unknown, "a failure after the request is not repeated");
    }

    #[test]
    fn attempts_that_were_lost_before_they_sent_anything_do_not_count() {
        let plain = definition(json!({}));
        let mut bench = Bench::new(limits(2));
        let (id, other) = (bench.start(EffectClass::Once, &plain), bench.start(EffectClass::Once, &plain));
        for lost in 0..2 * MAX_LOST_ATTEMPTS {
            let attempt = bench.stored(id).attempt;
            for id in [id, other] {
                bench.handle(Event::AttemptTold { id, attempt, news: AttemptNews::Unsent });
            }
            if lost % 2 == 0 {
                let turn = bench.crash(Some(&plain));
                assert_eq!(turn.performed.len(), 2, "one that waits for a human holds up no other");
            } else {
                for id in [id, other] {
                    bench.fail(id, FailureKind::Shutdown, Retry::Never, SideEffect::None);
                }
            }
        }
        let stored = bench.stored(id);
        assert_eq!((stored.attempt, stored.counted_attempts()), (2 * MAX_LOST_ATTEMPTS + 1, 1));
        assert!(stored.notes.is_unsent, "the next attempt has sent nothing either");
        let (told, mut recorded) = told_sending(id, stored.attempt);
        bench.handle(told);
        assert!(recorded.as_mut().now_or_never().expect("it was told").is_ok());
        assert!(!bench.stored(id).notes.is_unsent);
        bench.crash(Some(&plain));
        assert_eq!((bench.state(id), bench.state(other)), (State::Unknown, State::Running));
    }

    #[test]
    fn an_attempt_may_send_something_only_when_the_record_says_so() {
        let mut bench = Bench::new(limits(1));
        let id = bench.start(EffectClass::Once, &definition(json!({})));
        bench.handle(Event::AttemptTold { id, attempt: 1, news: AttemptNews::Unsent });
        let (told, mut recorded) = told_sending(id, 1);
        let mut effects = Effects::default();
        bench.dispatcher.handle(told, bench.now, &mut effects);
        assert!(recorded.as_mut().now_or_never().is_none(), "nothing was committed yet");
        assert!(bench.stored(id).notes.is_unsent);
        bench.carry_out(effects);
        assert!(recorded.as_mut().now_or_never().expect("it was told").is_ok());
        assert!(!bench.stored(id).notes.is_unsent);

        bench.fail(id, FailureKind::Timeout, Retry::Never, SideEffect::Possible);
        let (told, mut recorded) = told_sending(id, 1);
        bench.handle(told);
        assert!(recorded.as_mut().now_or_never().expect("it was told").is_err(), "it is no longer waited for");
    }

    #[test]
    fn a_task_that_ends_its_executor_before_it_sends_anything_does_not_do_so_forever() {
        let plain = definition(json!({}));
        let mut bench = Bench::new(limits(1));
        let id = bench.start(EffectClass::Once, &plain);
        bench.handle(Event::AttemptTold { id, attempt: 1, news: AttemptNews::Unsent });
        for _ in 0..MAX_UNSENT_ATTEMPTS {
            assert_eq!(bench.crash(Some(&plain)).performed, [id]);
        }
        bench.crash(Some(&plain));
        assert_eq!(bench.state(id), State::Unknown);
    }
}
