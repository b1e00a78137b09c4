//! Resolution: records what happened to a task that ended as unknown.
//!
//! Ended tasks are not in memory, so the event carries the stored task.

use ground::task::resolution::ResolutionClaim;
use ground::task::{Task, resolution};
use jiff::Timestamp;
use protocol::caller::Caller;
use protocol::code::Code;
use protocol::error::ErrorBody;
use protocol::mailbox::request::Answer;
use protocol::resolution::{Resolution, ResolvedBy};
use protocol::task::TaskId;
use store::Change;

use super::{Action, Dispatcher, Effects};

/// A caller's request to resolve a task.
#[derive(Debug)]
pub struct ResolveRequest {
    pub request: TaskId,
    pub id: TaskId,
    pub caller: Box<Caller>,
    /// The stored task; `None` if there is no such task.
    pub task: Option<Task>,
    pub happened: bool,
    pub note: Option<String>,
}

impl Dispatcher {
    pub(super) fn resolve_for_caller(&mut self, resolve: ResolveRequest, now: Timestamp, effects: &mut Effects) {
        let ResolveRequest { request, id, caller, task, happened, note } = resolve;
        let result = match task.filter(|task| caller.may_touch(&task.caller)) {
            Some(task) if task.was_approved_with_touch() => Err(needs_touch(id)),
            Some(task) => self.resolve(task, ResolutionClaim { happened, by: ResolvedBy::Caller, note }, now, effects),
            None => Err(ErrorBody::new(Code::UnknownTask, format!("no task `{id}`"))
                .hint("to list the tasks: agent-magic-tool tasks")),
        };
        let answer = result.map_or_else(Answer::Refused, |resolution| Answer::Resolved { id, resolution });
        effects.actions.push(Action::Answer(request, Box::new(answer)));
    }

    /// Records the resolution of a stored task and publishes it. A later equal one succeeds, and a different one is
    /// refused, unless a human overrules a caller.
    pub(super) fn resolve(
        &mut self,
        mut task: Task,
        claim: ResolutionClaim,
        now: Timestamp,
        effects: &mut Effects,
    ) -> Result<Resolution, ErrorBody> {
        let id = task.id;
        match self.resolutions.get(&id) {
            Some(recorded) if task.resolution.as_ref() == Some(recorded) => drop(self.resolutions.remove(&id)),
            // Resolved in the same turn, or while the disk was full, so it may not be in the store yet.
            Some(recorded) => task.resolution = Some(recorded.clone()),
            None => {}
        }
        let resolution = resolution::resolve(&task, claim, now)?;
        if task.resolution.as_ref() != Some(&resolution) {
            self.resolutions.insert(id, resolution.clone());
            effects.changes.push(Change::Resolve(id, Box::new(resolution.clone())));
        }
        task.resolution = Some(resolution.clone());
        // Also when it was resolved before: that executor may have been killed before it published the result.
        effects.actions.push(Action::Publish(Box::new(task)));
        Ok(resolution)
    }
}

fn needs_touch(id: TaskId) -> ErrorBody {
    let message = format!("task `{id}` was approved with a touch of a key, so only a human resolves it");
    ErrorBody::new(Code::HumansOnly, message).hint("tell the user to do so on the page: agent-magic-tool executor page")
}

#[cfg(test)]
mod tests {
    use ground::task::effect::EffectClass;
    use protocol::task::State;
    use serde_json::json;

    use super::super::Event;
    use super::super::tests::{Bench, definition, limits};
    use super::*;

    fn resolve(bench: &Bench, id: TaskId, uid: u32, happened: bool) -> Event {
        use store::Store as _;
        let task = bench.store.task(id).expect("read");
        let caller = Box::new(Caller { uid, ..Caller::default() });
        Event::Resolve(Box::new(ResolveRequest { request: TaskId::new(), id, caller, task, happened, note: None }))
    }

    fn codes(answers: &[Answer]) -> Vec<Result<bool, Code>> {
        let code = |answer: &Answer| match answer {
            Answer::Resolved { resolution, .. } => Ok(resolution.happened),
            Answer::Refused(error) => Err(error.code),
            other => panic!("{other:?}"),
        };
        answers.iter().map(code).collect()
    }

    #[test]
    fn of_two_concurrent_resolutions_the_first_is_recorded_and_the_other_refused() {
        let mut bench = Bench::new(limits(1));
        let id = bench.start(EffectClass::Once, &definition(json!({})));
        assert_eq!(codes(&bench.handle(resolve(&bench, id, 1, true)).answers), [Err(Code::NotUnknown)]);
        bench.crash(None);
        assert_eq!(bench.state(id), State::Unknown);
        assert_eq!(
            codes(&bench.handle(resolve(&bench, id, 2, true)).answers),
            [Err(Code::UnknownTask)],
            "another user's task"
        );

        // All three read the store before any of them was committed.
        let (first, second, same) =
            (resolve(&bench, id, 1, true), resolve(&bench, id, 1, false), resolve(&bench, id, 1, true));
        let mut effects = Effects::default();
        for event in [first, second, same] {
            bench.dispatcher.handle(event, bench.now, &mut effects);
        }
        let turn = bench.carry_out(effects);
        assert_eq!(codes(&turn.answers), [Ok(true), Err(Code::AlreadyResolved), Ok(true)]);
        assert_eq!(turn.published, [(id, State::Unknown); 2], "the state stays the same");
        assert!(bench.stored(id).resolution.expect("recorded").happened);
        assert_eq!(codes(&bench.handle(resolve(&bench, id, 1, false)).answers), [Err(Code::AlreadyResolved)]);
        assert!(bench.dispatcher.resolutions.is_empty(), "the store has it");
    }
}
