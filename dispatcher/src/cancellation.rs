//! Cancellation: stops open tasks on behalf of their caller.

use ground::task::Task;
use ground::task::effect::EffectClass;
use ground::task::part_of::PartOf;
use jiff::Timestamp;
use protocol::caller::Caller;
use protocol::code::Code;
use protocol::error::ErrorBody;
use protocol::excerpt;
use protocol::mailbox::request::Answer;
use protocol::task::{State, Step, TaskId};

use super::{Action, Dispatcher, Effects, FailureKind, LookupPhase, OpenTask, advance, failed_end};

/// How much of a caller's reason is told.
const MAX_REASON_CHARS: usize = 200;

impl Dispatcher {
    /// Returns the open tasks of one session of a user, oldest first.
    pub fn open_in_session(&self, uid: u32, session: &str) -> Vec<TaskId> {
        let is_in_session = |caller: &Caller| caller.uid == uid && caller.session.as_deref() == Some(session);
        let mut ids: Vec<_> =
            self.open.values().filter(|open| is_in_session(&open.task.caller)).map(|open| open.task.id).collect();
        ids.sort_unstable();
        ids
    }

    /// Cancels an open task that the caller may touch. Returns its new state.
    pub(super) fn cancel(
        &mut self,
        id: TaskId,
        (caller, reason): (&Caller, Option<&str>),
        now: Timestamp,
        effects: &mut Effects,
    ) -> Result<State, ErrorBody> {
        if self.open.get(&id).is_some_and(|open| caller.may_touch(&open.task.caller)) {
            return Ok(self.stop(id, reason, now, effects));
        }
        Err(ErrorBody::new(Code::UnknownTask, format!("no open task `{id}`"))
            .hint("to list the tasks: agent-magic-tool tasks"))
    }

    /// Cancels an open task and its parts, or starts to if it is running. Returns its new state.
    fn stop(&mut self, id: TaskId, reason: Option<&str>, now: Timestamp, effects: &mut Effects) -> State {
        let is_whole = self.open.get(&id).is_some_and(|open| open.definition.run.shares_its_tasks());
        let state = self.stop_alone(id, reason, now, effects);
        if is_whole {
            let is_part =
                |open: &&OpenTask| !open.cancelling && PartOf::of(&open.task).is_some_and(|whole| whole.id == id);
            let parts: Vec<_> = self.open.values().filter(is_part).map(|open| open.task.id).collect();
            for part in parts {
                self.stop(part, reason, now, effects);
            }
        }
        state
    }

    /// Why `task` is not accepted: it is a part of a task that has ended, or is about to.
    pub(super) fn refuse_part(&self, task: &Task) -> Option<ErrorBody> {
        let whole = PartOf::of(task)?;
        let is_wanted = self.open.get(&whole.id).is_some_and(|open| !open.cancelling);
        (!is_wanted).then(|| {
            ErrorBody::new(Code::Cancelled, format!("the task `{}` that calls it has ended", whole.id))
                .hint("nothing was done")
        })
    }

    fn stop_alone(&mut self, id: TaskId, reason: Option<&str>, now: Timestamp, effects: &mut Effects) -> State {
        let open = self.open.get_mut(&id).expect("the callers check that the task is open");
        if open.task.state == State::Running {
            open.cancelling = true;
            // A lookup continues: its result says whether there is anything left to cancel.
            if matches!(open.phase, LookupPhase::Work) {
                effects.actions.push(Action::Interrupt(id, FailureKind::Cancelled));
            }
        } else {
            self.queue.remove(&open.task.caller, &open.kind(), id);
            let mut error = match (open.task.attempt, open.task.effect) {
                (0, _) => ErrorBody::new(Code::Cancelled, "cancelled before it started").hint("nothing was done"),
                (_, EffectClass::Idempotent) => ErrorBody::new(Code::Cancelled, "cancelled before it was retried")
                    .hint("an earlier attempt may have taken effect"),
                (_, EffectClass::Read | EffectClass::Verifiable | EffectClass::Once) => {
                    ErrorBody::new(Code::Cancelled, "cancelled before it was retried").hint("nothing was changed")
                }
            };
            if let Some(reason) = reason {
                error.message = format!("{}: {}", error.message, excerpt::line(reason, MAX_REASON_CHARS));
            }
            advance(&mut open.task, Step::Cancel, now, None, Some(failed_end(now, error)), effects);
        }
        let state = open.task.state;
        if state.is_final() {
            self.remove(id, effects);
        }
        state
    }

    /// Cancels all open tasks of a session.
    pub(super) fn abandon(
        &mut self,
        request: TaskId,
        caller: &Caller,
        session: &str,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        let mut ids = self.open_in_session(caller.uid, session);
        ids.retain(|id| self.open.get(id).is_some_and(|open| caller.may_touch(&open.task.caller)));
        for id in &ids {
            // Unless it was a part of one that was stopped before.
            if self.open.contains_key(id) {
                self.stop(*id, None, now, effects);
            }
        }
        effects.actions.push(Action::Answer(request, Box::new(Answer::Abandoned(ids))));
    }
}

#[cfg(test)]
mod tests {
    use ground::task::effect::EffectClass;
    use ground::task::{Task, part_of};
    use protocol::caller::Caller;
    use protocol::code::Code;
    use protocol::mailbox::request::Answer;
    use serde_json::json;

    use super::super::tests::{Bench, definition, limits};
    use super::super::{Effects, Event};
    use protocol::task::{State, TaskId};

    #[test]
    fn abandoning_a_session_cancels_a_script_with_its_calls() {
        let mut bench = Bench::new(limits(1));
        let caller = Caller { uid: 1, session: Some("s".to_owned()), ..Caller::default() };
        let mut script = Task::sample("run_script", EffectClass::Idempotent, bench.now);
        script.caller = caller.clone();
        bench.admit(&script, &definition(json!({"run": {"script": {"source": "return 1"}}})));
        let calls = [1, 2, 3].map(|number| {
            let mut call = Task::sample("t", EffectClass::Once, bench.now);
            call.idempotency_key = Some(part_of::key_of_call(&script.id.to_string(), number));
            call.caller = Caller { depth: 1, ..caller.clone() };
            bench.admit(&call, &definition(json!({})));
            call
        });
        let mut effects = Effects::default();
        let event = Event::Abandon { request: TaskId::new(), caller: Box::new(caller), session: "s".to_owned() };
        bench.dispatcher.handle(event, bench.now, &mut effects);
        let open = bench.dispatcher.open_in_session(1, "s");
        assert!(open.contains(&script.id) && open.iter().all(|id| bench.state(*id) == State::Running), "{open:?}");
        // A call that comes later is refused.
        let mut late = calls[0].clone();
        (late.id, late.idempotency_key) = (TaskId::new(), Some(part_of::key_of_call(&script.id.to_string(), 4)));
        let refused = bench.admit(&late, &definition(json!({})));
        assert!(matches!(&refused.answers[..], [Answer::Refused(error)] if error.code == Code::Cancelled));
    }

    #[test]
    fn abandoning_a_session_cancels_its_open_tasks_and_no_others() {
        let mut bench = Bench::new(limits(1));
        let plain = definition(json!({}));
        let of = |uid, session: &str| {
            let mut task = Task::sample("t", EffectClass::Once, bench.now);
            task.caller = Caller { uid, session: Some(session.to_owned()), ..Caller::default() };
            task
        };
        let (running, queued, other_session, other_user) = (of(1, "s"), of(1, "s"), of(1, "x"), of(2, "s"));
        for task in [&running, &queued, &other_session, &other_user] {
            bench.admit(task, &plain);
        }
        assert_eq!(bench.dispatcher.open_in_session(1, "s"), [running.id, queued.id]);
        let mut effects = Effects::default();
        let event = Event::Abandon {
            request: TaskId::new(),
            caller: Box::new(Caller { uid: 1, ..Caller::default() }),
            session: "s".to_owned(),
        };
        bench.dispatcher.handle(event, bench.now, &mut effects);
        assert_eq!(bench.dispatcher.open_in_session(1, "s"), [running.id], "it stays open until it reports");
        let interrupted = effects
            .actions
            .iter()
            .filter(|action| matches!(action, super::Action::Interrupt(id, _) if *id == running.id));
        assert_eq!(interrupted.count(), 1);
        assert_eq!(bench.dispatcher.counts()[&State::Queued], 2);
    }
}
