//! Recovery: continues or ends the tasks that an earlier executor left open when it stopped or was killed.

use std::sync::Arc;

use definition::Definition;
use ground::task::Task;
use ground::task::confirmation::drifted;
use ground::task::effect::EffectClass;
use ground::task::question_key::QuestionAsker;
use jiff::Timestamp;
use protocol::code::Code;
use protocol::error::ErrorBody;
use protocol::task::{State, Step};
use serde_json::{Map, Value};

use super::lookup::{LookupPhase, can_look_up};
use super::notes::begin_again;
use super::{Action, Dispatcher, Effects, OpenTask, Reassessment, advance, failed_end};

/// How often a task whose attempts never report is started, in addition to its declared retries: a task that crashes
/// the executor each time must not do so forever.
pub(super) const MAX_LOST_ATTEMPTS: u32 = 2;
/// The same of a task that only runs others. It goes on where it was.
const MAX_LOST_ATTEMPTS_OF_WHOLE: u32 = 100;
/// How often a task is started whose attempts are lost before they send anything: far more often than an executor ends
/// while it waits for a human.
pub(super) const MAX_UNSENT_ATTEMPTS: u32 = 100;

impl Dispatcher {
    /// Takes over the tasks that an earlier executor left open. Call it once, before any event.
    ///
    /// One that had ended by its result file and cannot be repeated ends as unknown.
    /// A task that was running is started again if it is repeatable, or if it had sent nothing yet. Otherwise a lookup finds out whether it took
    /// effect; without a lookup it ends as unknown.
    pub fn recover(&mut self, tasks: Vec<Task>, now: Timestamp, info: impl Fn(&Task) -> RecoveryInfo) -> Effects {
        let mut effects = Effects::default();
        let ids: Vec<_> = tasks.iter().map(|task| task.id).collect();
        for mut task in tasks {
            let RecoveryInfo { definition, reassessed, sent, had_ended } = info(&task);
            let is_unsent = task.notes.is_unsent && task.notes.unsent_attempts < MAX_UNSENT_ATTEMPTS;
            let (mut is_lookup_due, is_suspect) = (false, task.state == State::Running && !is_unsent);
            if task.state == State::Accepted {
                let needs_decision = task.confirmation.as_ref().is_some_and(|asked| asked.decision.is_none());
                let is_later = definition.as_ref().is_some_and(|known| self.is_asked_later(&task, known, now));
                let step = if needs_decision && !is_later { Step::Ask } else { Step::Enqueue };
                advance(&mut task, step, now, None, None, &mut effects);
            }
            if task.state == State::Running && is_unsent {
                begin_again(&mut task, now, &mut effects);
            }
            if task.state == State::Running {
                let has_attempts_left = task.counted_attempts() < max_attempts(&task, definition.as_deref());
                let has_job = task.notes.job.is_some() && definition.is_some();
                is_lookup_due = has_attempts_left && !has_job && can_look_up(&task, definition.as_deref());
                if has_attempts_left && (task.effect.repeatable() || has_job) {
                    advance(&mut task, Step::Retry, now, None, None, &mut effects);
                } else if task.effect == EffectClass::Read {
                    let error = ErrorBody { details: sent, ..crashed(&task) };
                    advance(&mut task, Step::Fail, now, None, Some(failed_end(now, error)), &mut effects);
                } else if !is_lookup_due {
                    let mut error = ErrorBody { details: sent, ..unknown_outcome(&task) };
                    if let Some(job) = &task.notes.job {
                        error = error.detail("job", job.as_str());
                    }
                    advance(&mut task, Step::Lose, now, None, Some(failed_end(now, error)), &mut effects);
                }
            }
            let has_not_started = matches!(task.state, State::Queued | State::AwaitingConfirmation);
            if has_not_started && had_ended && !task.effect.repeatable() {
                let end = failed_end(now, ended_before(&task));
                advance(&mut task, Step::Lose, now, None, Some(end), &mut effects);
            } else if let Reassessment::Refuse(error) = &reassessed
                && has_not_started
            {
                advance(&mut task, Step::Deny, now, None, Some(failed_end(now, (**error).clone())), &mut effects);
            } else if has_not_started && definition.is_none() {
                let error = if task.confirmation.is_some() {
                    drifted()
                } else {
                    let error = ErrorBody::new(
                        Code::BadDefinition,
                        "its definition was changed or removed after it was accepted",
                    );
                    error.hint(if task.attempt == 0 {
                        "if it is still wanted, run it again"
                    } else {
                        "it had begun: before you run it again, look at what it did, such as its calls: agent-magic-tool tasks --state=succeeded"
                    })
                };
                advance(&mut task, Step::Fail, now, None, Some(failed_end(now, error)), &mut effects);
            }
            if task.state.is_final() {
                effects.actions.push(Action::Publish(Box::new(task)));
                continue;
            }
            let (id, is_due) = (task.id, task.state == State::Queued || is_lookup_due);
            match task.state {
                State::AwaitingConfirmation => self.confirmations.add(&task, self.limits.confirmations.wait, now),
                State::Queued if task.attempt == 0 => self.confirmations.approve(&task),
                _ => {}
            }
            // A lookup needs the definition as well.
            let definition = definition.expect("a task whose definition is missing has ended by now");
            let mut open = OpenTask::new(task, definition);
            // Applied when its turn comes, unless a human is or will be asked.
            open.reassessed = reassessed;
            open.is_suspect = is_suspect;
            if is_lookup_due {
                open.phase = LookupPhase::Due(None);
            }
            effects.actions.extend(open.preview());
            let is_undecided = open.task.confirmation.as_ref().is_some_and(|asked| asked.decision.is_none());
            let asks = if is_undecided { std::mem::take(&mut open.reassessed) } else { Reassessment::Keep };
            self.insert(open);
            // Before anyone can answer a question, it demands what the present rules do.
            self.reassess(id, asks, now, &mut effects);
            if is_due {
                self.queue_or_delay(id, now);
            }
        }
        self.end_orphaned_questions(now, &mut effects);
        self.start_ready(now, &mut effects);
        // Started tasks were already published.
        let waiting = ids.iter().filter_map(|id| self.open.get(id)).filter(|open| open.task.state != State::Running);
        effects.actions.extend(waiting.map(|open| Action::Publish(Box::new(open.task.clone()))));
        effects
    }

    /// Ends the questions to the human whose answers would reach no one: the attempts that asked them were of the earlier
    /// executor, or their tasks have ended.
    fn end_orphaned_questions(&mut self, now: Timestamp, effects: &mut Effects) {
        let is_orphaned = |open: &&OpenTask| {
            let key = open.task.idempotency_key.as_deref().filter(|_| open.task.state == State::AwaitingConfirmation);
            match key.and_then(|key| QuestionAsker::of(key, &open.task.caller)) {
                Some(QuestionAsker::Attempt(_)) => true,
                Some(QuestionAsker::Task(id)) => !self.open.contains_key(&id),
                None => false,
            }
        };
        let orphaned: Vec<_> = self.open.values().filter(is_orphaned).map(|open| open.task.id).collect();
        for id in orphaned {
            if let Some(open) = self.open.get_mut(&id) {
                let message = "the call that asked this ended together with the executor that made it";
                let error = ErrorBody::new(Code::Cancelled, message).hint("an answer would reach no one");
                advance(&mut open.task, Step::Cancel, now, None, Some(failed_end(now, error)), effects);
                self.remove(id, effects);
            }
        }
    }
}

/// What the dispatcher needs to recover a task.
#[derive(Debug, Default)]
pub struct RecoveryInfo {
    /// Its definition, unless that changed since the task was accepted.
    pub definition: Option<Arc<Definition>>,
    /// What the present rules say about it.
    pub reassessed: Reassessment,
    /// Whether its result file says that it had ended, although the record does not: the record is of an earlier time.
    pub had_ended: bool,
    /// What its lost attempt sent and when, for the details of the error if the outcome is unknown.
    pub sent: Map<String, Value>,
}

/// Returns the limit of attempts and lookups of a task whose attempts are lost.
pub(super) fn max_attempts(task: &Task, definition: Option<&Definition>) -> u32 {
    // What it runs are tasks of their own, which have their own limits.
    if definition.is_some_and(|definition| definition.run.shares_its_tasks()) {
        return MAX_LOST_ATTEMPTS_OF_WHOLE;
    }
    let retries = definition.and_then(|definition| definition.retries);
    let max = retries.map_or(0, |retries| retries.times) + MAX_LOST_ATTEMPTS;
    // Each attempt may be followed by a lookup, which counts as an attempt.
    if task.effect == EffectClass::Verifiable { 2 * max } else { max }
}

/// Returns the error of a task that changes nothing and is not started once more.
fn crashed(task: &Task) -> ErrorBody {
    let times = task.counted_attempts();
    let message = format!("the executor ended each of the {times} times that `{}` was running", task.tool);
    ErrorBody::new(Code::ExecutorCrashed, message).hint(
        "it probably crashes the executor: run it again with another input, and tell the user to look at the \
         executor's log",
    )
}

/// Returns the error of a task of which it is unknown whether it took effect.
pub(super) fn unknown_outcome(task: &Task) -> ErrorBody {
    let times = if task.attempt > 1 { format!(" (attempt {})", task.attempt) } else { String::new() };
    let message =
        format!("the executor ended while `{}` was running{times}: it may or may not have taken effect", task.tool);
    ErrorBody::new(Code::UnknownOutcome, message).hint(resolve_hint(task))
}

/// Returns the error of a task that had ended by its result file. That file could have been written by others, so it is
/// not believed, but the task is not run once more either.
fn ended_before(task: &Task) -> ErrorBody {
    let message = format!(
        "the result file of `{}` was final, but the executor's record is older and has it open, as after a restored \
         backup: it may or may not have taken effect",
        task.tool
    );
    ErrorBody::new(Code::UnknownOutcome, message).hint(resolve_hint(task))
}

/// Says how to go on with a task of which it is unknown whether it took effect.
pub(super) fn resolve_hint(task: &Task) -> String {
    format!(
        "check whether it happened before you run it again; it is not retried automatically; record what you find with: \
         agent-magic-tool resolve {} --happened (or --did-not)",
        task.id
    )
}
