//! Looking up: whether a lost attempt of a verifiable task took effect.
//!
//! The task stays running meanwhile: that is what the record says of it, and rightly so. Each lookup
//! waits in line for a place and is recorded before it starts, like an attempt, and counts as one.

use jiff::Timestamp;
use protocol::code::Code;
use protocol::error::ErrorBody;
use protocol::task::{State, Step};

use super::{
    AttemptPurpose, AttemptReport, Dispatcher, Effects, FailedAttempt, FailureKind, OpenTask, advance, failed_end,
    pause, told_lost,
};
use crate::catalog::definition::Definition;
use crate::task::effect::EffectClass;
use crate::task::failure::{Retry, SideEffect};
use crate::task::{End, Outcome, Task};

/// What an open task is about.
#[derive(Debug)]
pub(super) enum LookupPhase {
    /// To be performed, or being so.
    Work,
    /// Recorded as running, and nobody knows what came of it. How the attempt ended, if it reported.
    LookupDue(Option<Box<FailedAttempt>>),
    LookingUp(Option<Box<FailedAttempt>>),
}

/// Whether a lookup can tell if a lost attempt of `task` took effect.
pub(super) fn can_look_up(task: &Task, definition: Option<&Definition>) -> bool {
    task.effect == EffectClass::Verifiable && definition.is_some_and(|definition| definition.verify.is_some())
}

impl OpenTask {
    /// Whether something runs for it right now.
    pub(super) fn is_performed(&self) -> bool {
        self.task.state == State::Running && !matches!(self.phase, LookupPhase::LookupDue(_))
    }

    /// Whether the attempt that ended like this must be looked up.
    pub(super) fn must_look_up(&self, failed: &FailedAttempt) -> bool {
        failed.side_effect == SideEffect::Possible
            && can_look_up(&self.task, Some(&self.definition))
            && self.task.attempt < self.most_attempts()
    }

    /// What is to be done now that it has a place.
    pub(super) fn begin(&mut self) -> (Step, AttemptPurpose) {
        match std::mem::replace(&mut self.phase, LookupPhase::Work) {
            LookupPhase::Work => (Step::Start, AttemptPurpose::Work),
            LookupPhase::LookupDue(before) | LookupPhase::LookingUp(before) => {
                self.phase = LookupPhase::LookingUp(before);
                (Step::Verify, AttemptPurpose::Lookup)
            }
        }
    }
}

impl Dispatcher {
    /// A lookup reported.
    pub(super) fn looked_up(&mut self, finished: AttemptReport, now: Timestamp, effects: &mut Effects) {
        let Some(open) = self.open.get_mut(&finished.id) else { return };
        let before = match std::mem::replace(&mut open.phase, LookupPhase::Work) {
            LookupPhase::Work => None,
            LookupPhase::LookupDue(before) | LookupPhase::LookingUp(before) => before,
        };
        let may_go_on = open.task.attempt < open.most_attempts();
        let failed = match finished.result {
            Ok(end) => {
                advance(&mut open.task, Step::Succeed, now, None, Some(end), effects);
                return self.close(finished.id, effects);
            }
            Err(failed) => failed,
        };
        let is_absent = failed.side_effect == SideEffect::None && failed.kind == FailureKind::Failure;
        // Interrupted, or something stood in its way that may pass.
        let is_looked_up_again = failed.kind == FailureKind::Shutdown || may_go_on && failed.retry != Retry::Never;
        let wait = pause(&open.definition, &open.task, Retry::Later);
        let (step, end) = if is_absent {
            // What a repetition cannot mend is not repeated, though that would be harmless.
            let is_over = before
                .as_ref()
                .is_some_and(|before| before.kind == FailureKind::Failure && before.retry == Retry::Never);
            match before {
                _ if open.cancelling => {
                    let error = ErrorBody::new(Code::Cancelled, "cancelled while it was running")
                        .hint("it was looked up: nothing was changed");
                    (Step::Cancel, failed_end(now, error))
                }
                _ if may_go_on && !is_over => {
                    let not_before = before.is_some().then(|| now + wait);
                    advance(&mut open.task, Step::Retry, now, not_before, None, effects);
                    effects.actions.push(super::Action::Publish(Box::new(open.task.clone())));
                    return self.line_up(finished.id, now);
                }
                before => {
                    let mut end = before.map_or(failed.end, |before| before.end);
                    if let Outcome::Error(error) = &mut end.outcome {
                        error.hint = Some("it was looked up: it did not take effect".to_owned());
                    }
                    (Step::Fail, end)
                }
            }
        } else if is_looked_up_again {
            open.phase = LookupPhase::LookupDue(before);
            // Not recorded: after a crash it is looked up at once.
            open.task.not_before = (failed.kind != FailureKind::Shutdown).then(|| now + wait);
            return self.line_up(finished.id, now);
        } else {
            (Step::Lose, unknown(before, failed, &open.task))
        };
        advance(&mut open.task, step, now, None, Some(end), effects);
        self.close(finished.id, effects);
    }
}

/// The end of a task of which even the lookup did not tell what happened.
fn unknown(before: Option<Box<FailedAttempt>>, failed: FailedAttempt, task: &Task) -> End {
    let Outcome::Error(lookup) = failed.end.outcome else { return told_lost(failed.end, task) };
    let nothing = || failed_end(failed.end.at, ErrorBody::new(Code::UnknownOutcome, ""));
    let mut end = told_lost(before.map_or_else(nothing, |before| before.end), task);
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

    /// A task whose one attempt ended like this, and whose lookup is under way.
    fn in_doubt(
        bench: &mut Bench,
        definition: &Arc<Definition>,
        why: FailureKind,
        again: Retry,
    ) -> protocol::task::TaskId {
        let id = bench.start(EffectClass::Verifiable, definition);
        let turn = bench.fail(id, why, again, Possible);
        assert_eq!((turn.performed, bench.state(id), bench.stored(id).attempt), (vec![id], State::Running, 2));
        id
    }

    #[test]
    fn what_is_found_succeeds_and_what_surely_is_not_there_runs_again() {
        let mut bench = Bench::new(limits(1));
        let definition = verifiable();
        let found = in_doubt(&mut bench, &definition, FailureKind::Timeout, Retry::Later);
        assert_eq!(bench.succeed(found).published, [(found, State::Succeeded)]);

        let absent = in_doubt(&mut bench, &definition, FailureKind::Timeout, Retry::Later);
        let turn = bench.fail(absent, FailureKind::Failure, Retry::Never, Surely);
        assert_eq!((turn.performed, bench.state(absent)), (vec![], State::Queued), "after a pause");
        bench.pass(Duration::from_mins(1));
        assert_eq!(bench.handle(Event::Tick).performed, [absent]);
        bench.succeed(absent);
        assert_eq!((bench.state(absent), bench.stored(absent).attempt), (State::Succeeded, 3));
    }

    #[test]
    fn what_cannot_be_found_out_ends_as_unknown() {
        let mut bench = Bench::new(limits(1));
        let unsure = in_doubt(&mut bench, &verifiable(), FailureKind::Timeout, Retry::Later);
        bench.fail(unsure, FailureKind::Failure, Retry::Never, Possible);
        assert_eq!(bench.state(unsure), State::Unknown);
        assert_eq!(
            (error_of(&bench.stored(unsure)).code, &error_of(&bench.stored(unsure)).details["lookup"]),
            (Code::UnknownOutcome, &json!("no"))
        );

        // A lookup that failed for now is tried again, so often and no oftener.
        let later = in_doubt(&mut bench, &verifiable(), FailureKind::Timeout, Retry::Later);
        while bench.state(later) == State::Running {
            assert_eq!(bench.fail(later, FailureKind::Failure, Retry::Later, Possible).performed, []);
            bench.pass(Duration::from_mins(10));
            bench.handle(Event::Tick);
        }
        assert_eq!((bench.state(later), bench.stored(later).attempt), (State::Unknown, 2 * MAX_LOST_ATTEMPTS));
    }

    #[test]
    fn a_failure_that_a_repetition_cannot_mend_is_not_repeated() {
        let mut bench = Bench::new(limits(1));
        let id = in_doubt(&mut bench, &verifiable(), FailureKind::Failure, Retry::Never);
        bench.fail(id, FailureKind::Failure, Retry::Never, Surely);
        let task = bench.stored(id);
        assert_eq!((task.state, error_of(&task).code), (State::Failed, Code::ApiError));
        assert_eq!(error_of(&task).hint.as_deref(), Some("it was looked up: it did not take effect"));
    }

    #[test]
    fn what_was_lost_with_its_executor_is_looked_up_and_so_is_a_lost_lookup() {
        let mut bench = Bench::new(limits(1));
        let definition = verifiable();
        let id = bench.start(EffectClass::Verifiable, &definition);
        for attempt in 2..=2 * MAX_LOST_ATTEMPTS {
            assert_eq!(bench.crash(Some(&definition)).performed, [id]);
            assert_eq!((bench.state(id), bench.stored(id).attempt), (State::Running, attempt));
        }
        bench.crash(Some(&definition));
        assert_eq!(bench.state(id), State::Unknown, "what takes its executor down each time ends");

        let id = bench.start(EffectClass::Verifiable, &definition);
        bench.crash(None);
        assert_eq!(bench.state(id), State::Unknown, "without its definition nothing can be looked up");
    }

    #[test]
    fn an_executor_that_stops_leaves_the_lookup_to_the_next_one() {
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
            assert_eq!(bench.handle(Event::Interrupt).interrupted, [], "nothing runs any more");
            assert_eq!(bench.crash(Some(&definition)).performed, [id]);
            assert_eq!(bench.succeed(id).published, [(id, State::Succeeded)]);
        }
    }

    #[test]
    fn a_cancelled_task_says_what_the_lookup_found() {
        let mut bench = Bench::new(limits(1));
        for (happened, expected) in [(true, State::Succeeded), (false, State::Cancelled)] {
            let id = in_doubt(&mut bench, &verifiable(), FailureKind::Timeout, Retry::Later);
            assert_eq!(bench.cancel(id, 1).interrupted, [], "a lookup goes on");
            if happened {
                bench.succeed(id);
            } else {
                bench.fail(id, FailureKind::Failure, Retry::Never, Surely);
            }
            assert_eq!(bench.state(id), expected);
        }
    }
}
