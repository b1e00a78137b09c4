//! Recovery: what becomes of the tasks that an executor left open when it ended or was killed.

use std::sync::Arc;

use jiff::Timestamp;
use protocol::code::Code;
use protocol::error::ErrorBody;
use protocol::task::{State, Step};
use serde_json::{Map, Value};

use super::lookup::{LookupPhase, can_look_up};
use super::{Action, Dispatcher, Effects, OpenTask, advance, failed_end};
use crate::catalog::definition::Definition;
use crate::task::Task;
use crate::task::confirmation::{ReplacedValues, drifted};
use crate::task::effect::EffectClass;

/// How often in all, beyond its declared retries, a task is started that never reported: what
/// takes its executor down each time must not do so for ever.
pub(super) const MAX_LOST_ATTEMPTS: u32 = 3;

impl Dispatcher {
    /// Takes over the tasks that an executor before us left open; called once, before any event.
    ///
    /// `known` gives what only others know of a task. What was running is started again if that is
    /// harmless; else it is looked up, and where it cannot be it ends as unknown.
    pub fn recover(&mut self, tasks: Vec<Task>, now: Timestamp, known: impl Fn(&Task) -> RecoveryInfo) -> Effects {
        let mut effects = Effects::default();
        let ids: Vec<_> = tasks.iter().map(|task| task.id).collect();
        for mut task in tasks {
            let RecoveryInfo { definition, sent } = known(&task);
            let mut is_lookup_due = false;
            if task.state == State::Accepted {
                let must_ask = task.confirmation.as_ref().is_some_and(|asked| asked.decision.is_none());
                let step = if must_ask { Step::Ask } else { Step::Enqueue };
                advance(&mut task, step, now, None, None, &mut effects);
            }
            if task.state == State::Running {
                let may_go_on = task.attempt < most_attempts(&task, definition.as_deref());
                is_lookup_due = may_go_on && can_look_up(&task, definition.as_deref());
                if may_go_on && task.effect.repeatable() {
                    advance(&mut task, Step::Retry, now, None, None, &mut effects);
                } else if !is_lookup_due {
                    let error = ErrorBody { details: sent, ..lost(&task) };
                    advance(&mut task, Step::Lose, now, None, Some(failed_end(now, error)), &mut effects);
                }
            }
            if matches!(task.state, State::Queued | State::AwaitingConfirmation) && definition.is_none() {
                let error = if task.confirmation.is_some() {
                    drifted()
                } else {
                    ErrorBody::new(Code::BadDefinition, "its definition changed or is gone since it was accepted")
                        .hint("run it again if it is still wanted")
                };
                advance(&mut task, Step::Fail, now, None, Some(failed_end(now, error)), &mut effects);
            }
            if task.state.is_final() {
                effects.actions.push(Action::Publish(Box::new(task)));
                continue;
            }
            let (id, is_due) = (task.id, task.state == State::Queued || is_lookup_due);
            match task.state {
                State::AwaitingConfirmation => self.asks.join(&task, self.limits.asks.wait, now),
                State::Queued if task.attempt == 0 => self.asks.approve(&task),
                _ => {}
            }
            let mut open = OpenTask::new(task, definition.unwrap_or_else(gone));
            if is_lookup_due {
                open.phase = LookupPhase::LookupDue(None);
            }
            let asked = open.task.confirmation.as_ref().filter(|_| open.task.state == State::AwaitingConfirmation);
            if asked.is_some_and(|asked| asked.preview == Some(ReplacedValues::Pending)) {
                let (task, definition) = (Box::new(open.task.clone()), Arc::clone(&open.definition));
                effects.actions.push(Action::Preview { task, definition });
            }
            self.enter(open);
            if is_due {
                self.line_up(id, now);
            }
        }
        self.start_what_can(now, &mut effects);
        // What started was published with it.
        let waiting = ids.iter().filter_map(|id| self.open.get(id)).filter(|open| open.task.state != State::Running);
        effects.actions.extend(waiting.map(|open| Action::Publish(Box::new(open.task.clone()))));
        effects
    }
}

/// What others than the dispatcher know of a task that was left open.
#[derive(Debug, Default)]
pub struct RecoveryInfo {
    /// Its definition, if that is still the one it was accepted under.
    pub definition: Option<Arc<Definition>>,
    /// What its lost attempt sent and when, for whoever has to find out whether it took effect.
    pub sent: Map<String, Value>,
}

/// How often in all a task may be started and looked up, if its attempts are lost.
pub(super) fn most_attempts(task: &Task, definition: Option<&Definition>) -> u32 {
    let retries = definition.and_then(|definition| definition.retries);
    let most = retries.map_or(0, |retries| retries.times) + MAX_LOST_ATTEMPTS;
    // Each attempt may have its lookup.
    if task.effect == EffectClass::Verifiable { 2 * most } else { most }
}

pub(super) fn lost(task: &Task) -> ErrorBody {
    let times = if task.attempt > 1 { format!(" (attempt {})", task.attempt) } else { String::new() };
    let message =
        format!("the executor ended while `{}` was running{times}: it may or may not have taken effect", task.tool);
    ErrorBody::new(Code::UnknownOutcome, message).hint(format!(
        "look whether it happened before you run it again: it is not repeated by itself; when you know, say so: \
             agent-magic-tool resolve {} --happened (or --did-not)",
        task.id
    ))
}

/// Stands in for a definition that is no longer there; a task with it never starts.
fn gone() -> Arc<Definition> {
    let definition = serde_json::json!({"description": "gone", "input": {}, "run": {"process": {"argv": ["false"]}}});
    Arc::new(serde_json::from_value(definition).expect("a complete definition"))
}
