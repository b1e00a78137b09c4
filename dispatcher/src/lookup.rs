//! Lookups: find out whether a lost attempt of a verifiable task took effect.
//!
//! The task stays in the state `running` meanwhile. Each lookup waits for a slot and is recorded before it starts,
//! like an attempt, and counts as one.

use definition::Definition;
use ground::task::effect::EffectClass;
use ground::task::failure::{Retry, SideEffect};
use ground::task::{End, Outcome, Task};
use jiff::Timestamp;
use protocol::code::Code;
use protocol::error::ErrorBody;
use protocol::task::{State, Step};

use super::ending::into_unknown;
use super::{
    AttemptPurpose, AttemptReport, Dispatcher, Effects, FailedAttempt, FailureKind, OpenTask, advance, failed_end,
    retry_delay,
};

/// What an open task has to do next.
#[derive(Debug)]
pub(super) enum LookupPhase {
    /// It is performed, now or later.
    Work,
    /// Its outcome is unknown and must be looked up. Holds how the attempt ended, if it reported.
    Due(Option<Box<FailedAttempt>>),
    Running(Option<Box<FailedAttempt>>),
}

/// Whether a lookup is defined that can tell if a lost attempt of `task` took effect.
pub(super) fn can_look_up(task: &Task, definition: Option<&Definition>) -> bool {
    task.effect == EffectClass::Verifiable && definition.is_some_and(|definition| definition.verify.is_some())
}

impl OpenTask {
    /// Whether an attempt or a lookup is running for it.
    pub(super) fn is_executing(&self) -> bool {
        self.task.state == State::Running && !matches!(self.phase, LookupPhase::Due(_))
    }

    /// Whether a lookup must follow the attempt that failed like this.
    pub(super) fn needs_lookup(&self, failed: &FailedAttempt) -> bool {
        failed.side_effect != SideEffect::None
            && can_look_up(&self.task, Some(&self.definition))
            && self.task.counted_attempts() < self.max_attempts()
    }

    /// Returns the step and the purpose of the attempt that starts when the task gets a slot.
    pub(super) fn begin(&mut self) -> (Step, AttemptPurpose) {
        match std::mem::replace(&mut self.phase, LookupPhase::Work) {
            LookupPhase::Work => (Step::Start, AttemptPurpose::Work),
            LookupPhase::Due(before) | LookupPhase::Running(before) => {
                self.phase = LookupPhase::Running(before);
                (Step::Verify, AttemptPurpose::Lookup)
            }
        }
    }
}

impl Dispatcher {
    /// Handles the report of a lookup.
    pub(super) fn finish_lookup(&mut self, report: AttemptReport, now: Timestamp, effects: &mut Effects) {
        let Some(open) = self.open.get_mut(&report.id) else { return };
        let before = match std::mem::replace(&mut open.phase, LookupPhase::Work) {
            LookupPhase::Work => None,
            LookupPhase::Due(before) | LookupPhase::Running(before) => before,
        };
        let has_attempts_left = open.task.counted_attempts() < open.max_attempts();
        let failed = match report.result {
            Ok(end) => {
                advance(&mut open.task, Step::Succeed, now, None, Some(end), effects);
                return self.remove(report.id, effects);
            }
            Err(failed) => failed,
        };
        let is_absent = failed.side_effect == SideEffect::None && failed.kind == FailureKind::Failure;
        // It was interrupted, or it failed in a way that may pass.
        let is_retried = failed.kind == FailureKind::Shutdown || has_attempts_left && failed.retry != Retry::Never;
        let wait = retry_delay(&open.definition, &open.task, Retry::Later);
        let (step, end) = if is_absent {
            // Repeating it would be safe, but a failure that a retry cannot fix is final.
            let is_final = before
                .as_ref()
                .is_some_and(|before| before.kind == FailureKind::Failure && before.retry == Retry::Never);
            match before {
                _ if open.cancelling => {
                    let error = ErrorBody::new(Code::Cancelled, "cancelled while it was running")
                        .hint("a lookup found that it did not take effect");
                    (Step::Cancel, failed_end(now, error))
                }
                _ if has_attempts_left && !is_final => {
                    let not_before = before.is_some().then(|| now + wait);
                    advance(&mut open.task, Step::Retry, now, not_before, None, effects);
                    effects.actions.push(super::Action::Publish(Box::new(open.task.clone())));
                    return self.queue_or_delay(report.id, now);
                }
                before => {
                    let mut end = before.map_or(failed.end, |before| before.end);
                    if let Outcome::Error(error) = &mut end.outcome {
                        error.hint = Some("a lookup found that it did not take effect".to_owned());
                    }
                    (Step::Fail, end)
                }
            }
        } else if is_retried {
            open.phase = LookupPhase::Due(before);
            // The delay is not stored: after a crash the lookup runs at once.
            open.task.not_before = (failed.kind != FailureKind::Shutdown).then(|| now + wait);
            return self.queue_or_delay(report.id, now);
        } else {
            (Step::Lose, unknown(before, failed, &open.task))
        };
        advance(&mut open.task, step, now, None, Some(end), effects);
        self.remove(report.id, effects);
    }
}

/// Returns the end of a task whose lookup did not find out what happened.
fn unknown(before: Option<Box<FailedAttempt>>, failed: FailedAttempt, task: &Task) -> End {
    let Outcome::Error(lookup) = failed.end.outcome else { return into_unknown(failed.end, failed.kind, task) };
    let nothing = || (FailureKind::Shutdown, failed_end(failed.end.at, ErrorBody::new(Code::UnknownOutcome, "")));
    let (kind, end) = before.map_or_else(nothing, |before| (before.kind, before.end));
    let mut end = into_unknown(end, kind, task);
    if let Outcome::Error(error) = &mut end.outcome {
        error.details.extend(lookup.details);
        error.details.insert("lookup".to_owned(), lookup.message.into());
    }
    end.meta.extend(failed.end.meta);
    end
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use SideEffect::{None as Surely, Possible};
    use serde_json::json;

    use super::super::recovery::MAX_LOST_ATTEMPTS;
    use super::super::tests::{Bench, definition, error_of, limits};
    use super::super::{Event, FailureKind};
    use super::*;

    fn verifiable() -> Arc<Definition> {
        definition(json!({"verify": {"subtool": "look", "happened": "."}}))
    }

    /// Starts a task whose first attempt fails like this, so that its lookup is running.
    fn in_doubt(
        bench: &mut Bench,
        definition: &Arc<Definition>,
        kind: FailureKind,
        retry: Retry,
    ) -> protocol::task::TaskId {
        let id = bench.start(EffectClass::Verifiable, definition);
        let turn = bench.fail(id, kind, retry, Possible);
        assert_eq!((turn.performed, bench.state(id), bench.stored(id).attempt), (vec![id], State::Running, 2));
        id
    }

    #[test]
    fn a_task_that_took_effect_succeeds_and_one_that_did_not_is_retried() {
        let mut bench = Bench::new(limits(1));
        let definition = verifiable();
        let found = in_doubt(&mut bench, &definition, FailureKind::Timeout, Retry::Later);
        assert_eq!(bench.succeed(found).published, [(found, State::Succeeded)]);

        let absent = in_doubt(&mut bench, &definition, FailureKind::Timeout, Retry::Later);
        let turn = bench.fail(absent, FailureKind::Failure, Retry::Never, Surely);
        assert_eq!((turn.performed, bench.state(absent)), (vec![], State::Queued), "after a delay");
        bench.pass(Duration::from_mins(1));
        assert_eq!(bench.handle(Event::Tick).performed, [absent]);
        bench.succeed(absent);
        assert_eq!((bench.state(absent), bench.stored(absent).attempt), (State::Succeeded, 3));
    }

    #[test]
    fn a_task_whose_lookup_cannot_tell_ends_as_unknown() {
        let mut bench = Bench::new(limits(1));
        let unsure = in_doubt(&mut bench, &verifiable(), FailureKind::Timeout, Retry::Later);
        bench.fail(unsure, FailureKind::Failure, Retry::Never, Possible);
        assert_eq!(bench.state(unsure), State::Unknown);
        assert_eq!(
            (error_of(&bench.stored(unsure)).code, &error_of(&bench.stored(unsure)).details["lookup"]),
            (Code::UnknownOutcome, &json!("no"))
        );

        // A lookup with a temporary failure is retried up to the limit.
        let later = in_doubt(&mut bench, &verifiable(), FailureKind::Timeout, Retry::Later);
        while bench.state(later) == State::Running {
            assert_eq!(bench.fail(later, FailureKind::Failure, Retry::Later, Possible).performed, []);
            bench.pass(Duration::from_mins(10));
            bench.handle(Event::Tick);
        }
        assert_eq!((bench.state(later), bench.stored(later).attempt), (State::Unknown, 2 * MAX_LOST_ATTEMPTS));
    }

    #[test]
    fn a_failure_that_a_retry_cannot_fix_is_final() {
        let mut bench = Bench::new(limits(1));
        let id = in_doubt(&mut bench, &verifiable(), FailureKind::Failure, Retry::Never);
        bench.fail(id, FailureKind::Failure, Retry::Never, Surely);
        let task = bench.stored(id);
        assert_eq!((task.state, error_of(&task).code), (State::Failed, Code::ApiError));
        assert_eq!(error_of(&task).hint.as_deref(), Some("a lookup found that it did not take effect"));
    }

    #[test]
    fn a_lost_attempt_is_looked_up_after_a_crash_and_so_is_a_lost_lookup() {
        let mut bench = Bench::new(limits(1));
        let definition = verifiable();
        let id = bench.start(EffectClass::Verifiable, &definition);
        for attempt in 2..=2 * MAX_LOST_ATTEMPTS {
            assert_eq!(bench.crash(Some(&definition)).performed, [id]);
            assert_eq!((bench.state(id), bench.stored(id).attempt), (State::Running, attempt));
        }
        bench.crash(Some(&definition));
        assert_eq!(bench.state(id), State::Unknown, "a task that crashes its executor each time ends");

        let id = bench.start(EffectClass::Verifiable, &definition);
        bench.crash(None);
        assert_eq!(bench.state(id), State::Unknown, "without its definition there is no lookup");
    }

    #[test]
    fn an_executor_that_shuts_down_leaves_the_lookup_to_the_next_one() {
        let definition = verifiable();
        for is_looking in [false, true] {
            let mut bench = Bench::new(limits(1));
            let id = bench.start(EffectClass::Verifiable, &definition);
            if is_looking {
                bench.fail(id, FailureKind::Timeout, Retry::Later, Possible);
            }
            bench.handle(Event::Drain);
            let turn = bench.fail(id, FailureKind::Shutdown, Retry::Never, Possible);
            assert_eq!((turn.performed, bench.state(id)), (vec![], State::Running));
            assert_eq!(bench.handle(Event::Interrupt).interrupted, [], "no attempt is running");
            assert_eq!(bench.crash(Some(&definition)).performed, [id]);
            assert_eq!(bench.succeed(id).published, [(id, State::Succeeded)]);
        }
    }

    #[test]
    fn a_cancelled_task_ends_as_its_lookup_finds() {
        let mut bench = Bench::new(limits(1));
        for (happened, expected) in [(true, State::Succeeded), (false, State::Cancelled)] {
            let id = in_doubt(&mut bench, &verifiable(), FailureKind::Timeout, Retry::Later);
            assert_eq!(bench.cancel(id, 1).interrupted, [], "a lookup is not interrupted");
            if happened {
                bench.succeed(id);
            } else {
                bench.fail(id, FailureKind::Failure, Retry::Never, Surely);
            }
            assert_eq!(bench.state(id), expected);
        }
    }
}
