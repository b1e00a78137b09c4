//! Admission: accepts a new task, or refuses it with a reason.

use definition::Definition;
use ground::task::Task;
use jiff::Timestamp;
use protocol::code::Code;
use protocol::error::ErrorBody;
use protocol::mailbox::request::Answer;
use protocol::task::{State, Step};
use store::Change;
use store::switched_off::{self, SwitchedOffTool};

use super::{Action, Admission, AppliedRateLimit, Dispatcher, Effects, OpenTask, advance};

impl Dispatcher {
    pub(super) fn admit(&mut self, admission: Admission, now: Timestamp, effects: &mut Effects) {
        let Admission { mut task, definition, rate_limits, earlier } = admission;
        let id = task.id;
        if let Some(mut answer) = self.refuse((&task, &definition), &rate_limits, earlier.as_ref(), now) {
            if let Answer::Refused(error) = &mut answer
                && error.code == Code::RateLimited
                && self.exceeds_auto_disable(&task, &rate_limits, now)
            {
                let hint = switched_off::hint(&task.tool, task.caller.session.as_deref());
                error.message.push_str("; it is now switched off for this session");
                error.hint = Some(hint);
                error.details.clear();
                let Task { tool, caller, .. } = task;
                let off = SwitchedOffTool { tool, uid: caller.uid, session: caller.session, since: now };
                effects.actions.push(Action::SwitchOff(Box::new(off)));
            }
            effects.actions.push(Action::Answer(id, Box::new(answer)));
            return;
        }
        for limit in &rate_limits {
            self.rate_limits.count(&task.caller, limit, now);
        }
        let grant = self.believed_grant(&task, &definition, now);
        if let Some(grant) = grant {
            self.use_grant(grant, &mut task, now, effects);
        }
        effects.changes.push(Change::Accept(Box::new(task.clone())));
        let is_asked_later = self.is_asked_later(&task, &definition, now);
        if task.confirmation.as_ref().is_some_and(|asked| asked.decision.is_none()) && !is_asked_later {
            advance(&mut task, Step::Ask, now, None, None, effects);
            self.confirmations.count(&task, now);
            self.confirmations.add(&task, self.limits.confirmations.wait, now);
            let open = OpenTask::new(task, definition);
            effects.actions.extend(open.preview());
            self.insert(open);
        } else {
            advance(&mut task, Step::Enqueue, now, None, None, effects);
            self.confirmations.approve(&task);
            self.insert(OpenTask::new(task, definition));
            self.queue_or_delay(id, now);
            self.start_ready(now, effects);
        }
        // A task that started or ended was already published.
        if let Some(open) = self.open.get(&id)
            && open.task.state != State::Running
        {
            effects.actions.push(Action::Publish(Box::new(open.task.clone())));
        }
    }

    /// Whether the call exceeds a limit that then switches the subtool off.
    fn exceeds_auto_disable(&mut self, task: &Task, limits: &[AppliedRateLimit], now: Timestamp) -> bool {
        let mut disabling = limits.iter().filter(|applied| applied.limit.auto_disable);
        disabling.any(|applied| self.rate_limits.refuse(&task.caller, applied, now).is_some())
    }

    /// Returns the answer to a request that does not become a new task.
    fn refuse(
        &mut self,
        (task, definition): (&Task, &Definition),
        limits: &[AppliedRateLimit],
        earlier: Option<&Task>,
        now: Timestamp,
    ) -> Option<Answer> {
        let open =
            task.idempotency_key.as_ref().and_then(|key| self.idempotency_keys.get(&(task.caller.uid, key.clone())));
        let earlier = open.and_then(|id| self.open.get(id)).map(|open| &open.task).or(earlier);
        if let Some(earlier) = earlier {
            // The same relative path in another folder is another file.
            let is_same = earlier.tool == task.tool
                && earlier.asked_input() == &task.input
                && earlier.notes.all_pages == task.notes.all_pages
                && earlier.caller.folder == task.caller.folder;
            return Some(if is_same { Answer::SameAs(earlier.id) } else { mismatch(earlier) });
        }
        if let Some(error) = self.refuse_part(task) {
            return Some(Answer::Refused(error));
        }
        if let Some(error) = limits.iter().find_map(|limit| self.rate_limits.refuse(&task.caller, limit, now)) {
            return Some(Answer::Refused(error));
        }
        if self.draining {
            return Some(Answer::Refused(
                ErrorBody::new(Code::NoExecutor, "the executor is stopping").hint("try again in a moment"),
            ));
        }
        if let Some(error) = self.quotas.refuse(task, self.limits) {
            return Some(Answer::Refused(error));
        }
        if task.confirmation.is_none() || self.believed_grant(task, definition, now).is_some() {
            return None;
        }
        if self.is_asked_later(task, definition, now) {
            return self.find_same_later(task).filter(|_| task.idempotency_key.is_none()).map(Answer::SameAs);
        }
        match self.confirmations.find_same(task) {
            // Identical calls share one task; a request with its own idempotency key gets its own task.
            Some(same) if task.idempotency_key.is_none() => Some(Answer::SameAs(same)),
            _ => self.confirmations.refuse(task, self.limits.confirmations, now).map(Answer::Refused),
        }
    }
}

fn mismatch(earlier: &Task) -> Answer {
    let message =
        format!("the idempotency key was already used for `{}` with another input or in another folder", earlier.tool);
    Answer::Refused(
        ErrorBody::new(Code::IdempotencyMismatch, message)
            .hint("use another key for another call")
            .detail("id", earlier.id.to_string()),
    )
}

#[cfg(test)]
mod tests {
    use ground::task::Task;
    use ground::task::effect::EffectClass;
    use serde_json::json;

    use super::super::tests::{Bench, definition, limits};

    #[test]
    fn exceeding_the_rate_limit_switches_off_a_subtool_with_auto_disable() {
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
