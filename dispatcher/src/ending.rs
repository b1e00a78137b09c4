//! How a failed attempt ends: the one place that decides between another attempt, a definite end and `unknown`.
//!
//! It depends on the effect class, on what is known about the attempt's effect, and on why it ended. A task that cannot
//! be repeated and of which no one said what became of it is `unknown`: a caller that reads `failed` would run it again.

use ground::task::effect::EffectClass;
use ground::task::failure::{Retry, SideEffect};
use ground::task::{End, Outcome, Task};
use protocol::code::Code;
use protocol::task::Step;

use super::OpenTask;
use super::recovery::{resolve_hint, unknown_outcome};
use crate::report::{FailedAttempt, FailureKind};

/// What decides how a task goes on after an attempt that failed.
#[derive(Debug, Clone, Copy)]
pub(super) struct AttemptEnding {
    pub(super) effect: EffectClass,
    /// What it is to run it as another task: what a key makes safe to repeat is not, since another task has another key.
    pub(super) beyond_task: EffectClass,
    pub(super) side_effect: SideEffect,
    pub(super) kind: FailureKind,
    pub(super) retry: Retry,
    /// Its caller cancelled it.
    pub(super) is_cancelling: bool,
    /// A server still works on it, and can be asked.
    pub(super) has_job: bool,
    pub(super) has_retries_left: bool,
}

impl OpenTask {
    /// What decides how the task goes on after this attempt.
    pub(super) fn ending(&self, failed: &FailedAttempt) -> AttemptEnding {
        let retries = self.definition.retries.map_or(0, |retries| retries.times);
        AttemptEnding {
            effect: self.effect_of_attempt(),
            beyond_task: self.effect_beyond_task(),
            side_effect: failed.side_effect,
            kind: failed.kind,
            retry: failed.retry,
            is_cancelling: self.cancelling,
            has_job: self.task.notes.job.is_some(),
            has_retries_left: self.task.counted_attempts() <= retries,
        }
    }

    /// What it is to run it once more. All attempts share the tasks of its steps, but a caller that runs it once more has
    /// them run once more.
    fn effect_of_attempt(&self) -> EffectClass {
        let is_shared = self.definition.run.shares_its_tasks() && self.task.effect == EffectClass::Idempotent;
        if is_shared { self.definition.annotations.effect_class() } else { self.task.effect }
    }

    /// What it is to run it as another task, which has another key.
    fn effect_beyond_task(&self) -> EffectClass {
        match self.effect_of_attempt() {
            EffectClass::Idempotent if self.definition.run.has_key_of_task() => EffectClass::Once,
            effect => effect,
        }
    }
}

impl AttemptEnding {
    pub(super) fn step(self) -> Step {
        let is_repeatable = self.effect.repeatable() || self.side_effect == SideEffect::None;
        match self.kind {
            // Asking for its job again changes nothing.
            FailureKind::Shutdown if self.has_job && !self.is_cancelling => Step::Retry,
            FailureKind::Shutdown if !is_repeatable => Step::Lose,
            // The limit of lookups is reached.
            _ if !is_repeatable && self.effect == EffectClass::Verifiable => Step::Lose,
            FailureKind::Shutdown if self.is_cancelling => Step::Cancel,
            FailureKind::Shutdown => Step::Retry,
            // Its caller ended it and does not take it for done; the error says that it may be.
            FailureKind::Cancelled => Step::Cancel,
            FailureKind::Failure | FailureKind::Timeout
                if is_repeatable && !self.is_cancelling && self.retry != Retry::Never && self.has_retries_left =>
            {
                Step::Retry
            }
            FailureKind::Failure | FailureKind::Timeout
                if !(is_repeatable && self.beyond_task.repeatable()) && self.side_effect == SideEffect::Possible =>
            {
                Step::Lose
            }
            FailureKind::Timeout => Step::TimeOut,
            FailureKind::Failure => Step::Fail,
        }
    }
}

/// Turns the end of an attempt into the end of a task with an unknown outcome: replaces code and hint of the error,
/// says why the outcome is unknown, and keeps the details.
pub(super) fn into_unknown(mut end: End, kind: FailureKind, task: &Task) -> End {
    let Outcome::Error(error) = &mut end.outcome else { return end };
    if kind == FailureKind::Shutdown || error.message.is_empty() {
        let unknown = unknown_outcome(task);
        (error.code, error.message, error.hint) = (unknown.code, unknown.message, unknown.hint);
        return end;
    }
    if error.code != Code::UnknownOutcome {
        error.details.insert("cause".to_owned(), error.code.as_str().into());
    }
    error.code = Code::UnknownOutcome;
    error.message = format!("`{}` may or may not have taken effect: {}", task.tool, error.message);
    error.hint = Some(resolve_hint(task));
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every combination of effect class, knowledge and cause, with the step that follows when no attempt is left.
    #[test]
    fn what_may_have_happened_is_unknown() {
        use EffectClass::{Idempotent, Once, Read, Verifiable};
        use FailureKind::{Cancelled, Failure, Shutdown, Timeout};
        use SideEffect::{Answered, None, Possible};
        for effect in [Read, Idempotent, Verifiable, Once] {
            for side_effect in [None, Answered, Possible] {
                for kind in [Failure, Timeout, Cancelled, Shutdown] {
                    let ending = AttemptEnding {
                        effect,
                        beyond_task: effect,
                        side_effect,
                        kind,
                        retry: Retry::Later,
                        is_cancelling: false,
                        has_job: false,
                        has_retries_left: false,
                    };
                    let expected = match (effect, side_effect, kind) {
                        (Verifiable, Answered | Possible, _) | (Once, Answered | Possible, Shutdown) => Step::Lose,
                        (Once, Possible, Failure | Timeout) => Step::Lose,
                        (_, _, Shutdown) => Step::Retry,
                        (_, _, Cancelled) => Step::Cancel,
                        (_, _, Timeout) => Step::TimeOut,
                        (_, _, Failure) => Step::Fail,
                    };
                    assert_eq!(ending.step(), expected, "{effect:?} {side_effect:?} {kind:?}");
                    let again = AttemptEnding { has_retries_left: true, ..ending }.step();
                    let is_safe = effect.repeatable() || side_effect == None;
                    let is_again = is_safe && kind != Cancelled;
                    assert_eq!(again == Step::Retry, is_again, "{effect:?} {side_effect:?} {kind:?}");
                    let keyed = AttemptEnding { beyond_task: Once, ..ending }.step();
                    let is_lost = side_effect == Possible && matches!(kind, Failure | Timeout);
                    assert_eq!(
                        keyed,
                        if is_lost { Step::Lose } else { expected },
                        "{effect:?} {side_effect:?} {kind:?}"
                    );
                    let keyed_again = AttemptEnding { beyond_task: Once, has_retries_left: true, ..ending }.step();
                    assert_eq!(keyed_again, again, "its own attempts have its key");
                    let cancelling = AttemptEnding { is_cancelling: true, ..ending }.step();
                    let stays_unknown = expected == Step::Lose;
                    assert_eq!(cancelling == Step::Lose, stays_unknown, "{effect:?} {side_effect:?} {kind:?}");
                }
            }
        }
    }
}
