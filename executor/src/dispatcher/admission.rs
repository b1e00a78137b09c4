//! Admission: a new task is taken, or its caller learns why not.

use std::sync::Arc;

use jiff::Timestamp;
use protocol::code::Code;
use protocol::error::ErrorBody;
use protocol::mailbox::request::Answer;
use protocol::task::{State, Step};

use super::{Action, Admission, Dispatcher, Effects, OpenTask, advance};
use crate::catalog::definition::Definition;
use crate::store::Change;
use crate::store::switched_off::SwitchedOffTool;
use crate::task::Task;
use crate::task::confirmation::ReplacedValues;

impl Dispatcher {
    pub(super) fn admit(&mut self, admission: Admission, now: Timestamp, effects: &mut Effects) {
        let Admission { mut task, definition, earlier } = admission;
        let id = task.id;
        if let Some(answer) = self.refuse(&task, &definition, earlier.as_ref(), now) {
            let is_breach = matches!(&answer, Answer::Refused(error) if error.code == Code::RateLimited);
            if is_breach && definition.rate_limit.is_some_and(|limit| limit.auto_disable) {
                let Task { tool, caller, .. } = task;
                let off = SwitchedOffTool { tool, uid: caller.uid, session: caller.session, since: now };
                effects.actions.push(Action::SwitchOff(Box::new(off)));
            }
            effects.actions.push(Action::Answer(id, Box::new(answer)));
            return;
        }
        if let Some(limit) = definition.rate_limit {
            self.windows.count(&task.caller, &task.tool, limit, now);
        }
        let grant = task.confirmation.as_ref().and_then(|_| self.asks.grant_for(&task, now));
        if let Some(grant) = grant {
            self.use_grant(grant, &mut task, now, effects);
        }
        effects.changes.push(Change::Accept(Box::new(task.clone())));
        if task.confirmation.as_ref().is_some_and(|asked| asked.decision.is_none()) {
            advance(&mut task, Step::Ask, now, None, None, effects);
            self.asks.count(&task, now);
            self.asks.join(&task, self.limits.asks.wait, now);
            if task.confirmation.as_ref().is_some_and(|asked| asked.preview == Some(ReplacedValues::Pending)) {
                let (task, definition) = (Box::new(task.clone()), Arc::clone(&definition));
                effects.actions.push(Action::Preview { task, definition });
            }
            self.enter(OpenTask::new(task, definition));
        } else {
            advance(&mut task, Step::Enqueue, now, None, None, effects);
            self.asks.approve(&task);
            self.enter(OpenTask::new(task, definition));
            self.line_up(id, now);
            self.start_what_can(now, effects);
        }
        // One that ended or started was published with that.
        if let Some(open) = self.open.get(&id)
            && open.task.state != State::Running
        {
            effects.actions.push(Action::Publish(Box::new(open.task.clone())));
        }
    }

    /// Why a task is not taken, if it is not.
    fn refuse(
        &mut self,
        task: &Task,
        definition: &Definition,
        earlier: Option<&Task>,
        now: Timestamp,
    ) -> Option<Answer> {
        let open = task.idempotency_key.as_ref().and_then(|key| self.keys.get(&(task.caller.uid, key.clone())));
        let same = open.and_then(|id| self.open.get(id)).map(|open| &open.task).or(earlier);
        if let Some(same) = same {
            let is_same = same.tool == task.tool && same.asked_input() == &task.input;
            return Some(if is_same { Answer::SameAs(same.id) } else { mismatch(same) });
        }
        if let Some(limit) = definition.rate_limit
            && let Some(error) = self.windows.refuse(&task.caller, &task.tool, limit, now)
        {
            return Some(Answer::Refused(error));
        }
        if self.draining {
            return Some(Answer::Refused(
                ErrorBody::new(Code::NoExecutor, "the executor is stopping").hint("try again in a moment"),
            ));
        }
        if let Some(error) = self.load.refuse(task, self.limits) {
            return Some(Answer::Refused(error));
        }
        if task.confirmation.is_none() || self.asks.grant_for(task, now).is_some() {
            return None;
        }
        match self.asks.same(task) {
            // Asked once, however often it is asked for; but who has a key of their own wants their own.
            Some(same) if task.idempotency_key.is_none() => Some(Answer::SameAs(same)),
            _ => self.asks.refuse(task, self.limits.asks, now).map(Answer::Refused),
        }
    }
}

fn mismatch(same: &Task) -> Answer {
    let message = format!("the idempotency key was used for `{}` with another input", same.tool);
    Answer::Refused(
        ErrorBody::new(Code::IdempotencyMismatch, message)
            .hint("take another key for another call")
            .detail("id", same.id.to_string()),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::{Bench, definition, limits};
    use crate::task::Task;
    use crate::task::effect::EffectClass;

    #[test]
    fn one_call_too_many_switches_off_what_is_to_be_switched_off() {
        for auto_disable in [true, false] {
            let mut bench = Bench::new(limits(9));
            let limited = definition(json!({"rate_limit": {"calls": 1, "per": "1m", "auto_disable": auto_disable}}));
            let call = |bench: &mut Bench| {
                bench.admit(&Task::sample("t", EffectClass::Once, bench.now), &limited).switched_off
            };
            assert_eq!(call(&mut bench), []);
            assert_eq!(call(&mut bench).len(), usize::from(auto_disable));
        }
    }
}
