//! Recovery: what becomes of the tasks that an executor left open when it ended or was killed.

use std::sync::Arc;

use jiff::Timestamp;

use super::{Action, Dispatcher, Effects, Open, advance, failed_end};
use crate::code::Code;
use crate::subtool::Definition;
use crate::task::{ErrorBody, State, Step, Task};

/// How often in all, beyond its declared retries, a task is started that never reported: what
/// takes its executor down each time must not do so for ever.
pub(super) const MOST_LOST: u32 = 3;

impl Dispatcher {
    /// Takes over the tasks that an executor before us left open; called once, before any event.
    ///
    /// `definition` gives the definition of a task if it is still the one it was accepted under.
    /// What was running is started again if that is harmless, else it ends as unknown.
    pub fn recover(
        &mut self,
        tasks: Vec<Task>,
        now: Timestamp,
        definition: impl Fn(&Task) -> Option<Arc<Definition>>,
    ) -> Effects {
        let mut effects = Effects::default();
        let ids: Vec<_> = tasks.iter().map(|task| task.id).collect();
        for mut task in tasks {
            let known = definition(&task);
            if task.state == State::Accepted {
                advance(&mut task, Step::Enqueue, now, None, None, &mut effects);
            }
            if task.state == State::Running {
                let retries = known.as_ref().and_then(|definition| definition.retries);
                let most = retries.map_or(0, |retries| retries.times) + MOST_LOST;
                if task.effect.repeatable() && task.attempt < most {
                    advance(&mut task, Step::Retry, now, None, None, &mut effects);
                } else {
                    let end = failed_end(now, lost(&task));
                    advance(&mut task, Step::Lose, now, None, Some(end), &mut effects);
                }
            }
            if task.state == State::Queued && known.is_none() {
                let error =
                    ErrorBody::new(Code::BadDefinition, "its definition changed or is gone since it was accepted")
                        .hint("run it again if it is still wanted");
                advance(&mut task, Step::Fail, now, None, Some(failed_end(now, error)), &mut effects);
            }
            if task.state.is_final() {
                effects.actions.push(Action::Publish(Box::new(task)));
                continue;
            }
            let (id, queued) = (task.id, task.state == State::Queued);
            let definition = known.unwrap_or_else(gone);
            self.enter(Open { task, definition, cancelling: false });
            if queued {
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

pub(super) fn lost(task: &Task) -> ErrorBody {
    let times = if task.attempt > 1 { format!(" (attempt {})", task.attempt) } else { String::new() };
    let message =
        format!("the executor ended while `{}` was running{times}: it may or may not have taken effect", task.tool);
    ErrorBody::new(Code::UnknownOutcome, message)
        .hint("look whether it happened before you run it again: it is not repeated by itself")
}

/// Stands in for a definition that is no longer there; a task with it never starts.
fn gone() -> Arc<Definition> {
    let definition = serde_json::json!({"description": "gone", "input": {}, "run": {"process": {"argv": ["false"]}}});
    Arc::new(serde_json::from_value(definition).expect("a complete definition"))
}
