//! Scheduled questions: one that is asked at a time is put to the human then, not when it was scheduled.
//!
//! An approval is another thing: the human who schedules a task is there now, and may be away when it starts.

use definition::Definition;
use definition::run::Run;
use ground::task::Task;
use ground::task::confirmation::Confirmation;
use jiff::Timestamp;
use protocol::task::{State, Step, TaskId};
use store::ConfirmationUpdate;

use crate::{Action, Dispatcher, Effects, StepDetails, advance_with};

impl Dispatcher {
    /// Whether a new task is a question that is asked later.
    pub(crate) fn is_asked_later(&self, task: &Task, definition: &Definition, now: Timestamp) -> bool {
        let start = task.scheduled().map(|at| at.saturating_add(self.ahead).unwrap_or(Timestamp::MAX));
        is_undecided(task) && matches!(definition.run, Run::AskUser(_)) && start.is_some_and(|at| at > now)
    }

    /// Returns the same question at about the same time, if it is scheduled.
    pub(crate) fn find_same_later(&self, task: &Task) -> Option<TaskId> {
        let is_same = |other: &&Task| {
            let distance = other.run_at.zip(task.run_at).map(|(one, other)| one.duration_since(other).abs());
            super::shared_call(other) == super::shared_call(task)
                && distance.is_some_and(|distance| distance <= super::MAX_START_DIFFERENCE)
        };
        let mut later = self.confirmations.later.iter().filter_map(|id| self.open.get(id)).map(|open| &open.task);
        later.find(is_same).map(|task| task.id)
    }

    /// Puts a scheduled question to the human if its time has come. Returns whether `id` is one that waited for that.
    pub(crate) fn ask_scheduled(&mut self, id: TaskId, now: Timestamp, effects: &mut Effects) -> bool {
        if !self.confirmations.later.contains(&id) {
            return false;
        }
        self.unqueue(id);
        let Some(open) = self.open.get_mut(&id) else { return true };
        self.confirmations.remove(&open.task);
        if let Some(error) = self.confirmations.refuse(&open.task, self.limits.confirmations, now) {
            self.end_unstarted(id, Step::Deny, error, now, effects);
            return true;
        }
        let Some(before) = open.task.confirmation.clone() else { return true };
        let asked = Confirmation { asked_at: now, asked_moment: None, ..(*before).clone() };
        open.task.confirmation = Some(Box::new(asked.clone()));
        let update = ConfirmationUpdate { expected: Some(before.digest), confirmation: asked, input: None };
        let details = StepDetails { confirmation: Some(Box::new(update)), ..StepDetails::default() };
        advance_with(&mut open.task, Step::Ask, now, details, effects);
        let task = open.task.clone();
        self.confirmations.count(&task, now);
        self.confirmations.add(&task, self.limits.confirmations.wait, now);
        effects.actions.push(Action::Publish(Box::new(task)));
        true
    }
}

/// Whether a human must be asked about `task` and was not.
pub(crate) fn is_undecided(task: &Task) -> bool {
    task.confirmation.as_ref().is_some_and(|asked| asked.decision.is_none())
        && matches!(task.state, State::Accepted | State::Queued)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use ground::task::Task;
    use ground::task::confirmation::DecidedBy;
    use serde_json::json;

    use super::super::{DecideRequest, HumanVerdict};
    use crate::Event;
    use crate::HumanCommand;
    use crate::tests::{Bench, command, definition, limits, unapproved};
    use definition::Definition;
    use protocol::mailbox::request::Answer;
    use protocol::task::{State, TaskId};

    fn question() -> Arc<Definition> {
        definition(json!({"run": {"ask_user": {"question": "Ready?"}}}))
    }

    fn in_an_hour(bench: &Bench) -> Task {
        let at = bench.now + jiff::SignedDuration::from_hours(1);
        let mut task = Task { run_at: Some(at), ..unapproved(bench.now, json!({"n": 1})) };
        task.confirmation.as_mut().expect("a confirmation").expires_at = at + jiff::SignedDuration::from_hours(1);
        task
    }

    /// While all slots are busy, over a crash, and after a clock that was set back: never before its time, and then at once.
    #[test]
    fn a_scheduled_question_is_asked_at_its_time() {
        for (is_busy, crashes) in [(false, false), (true, false), (false, true)] {
            let mut bench = Bench::new(limits(1));
            if is_busy {
                bench.start(ground::task::effect::EffectClass::Once, &definition(json!({})));
            }
            let task = in_an_hour(&bench);
            bench.admit(&task, &question());
            assert_eq!((bench.state(task.id), bench.dispatcher.confirmations_pending()), (State::Queued, 0));
            if crashes {
                bench.crash(Some(&question()));
            }
            bench.pass(Duration::from_mins(59));
            bench.handle(Event::Tick);
            assert_eq!(bench.state(task.id), State::Queued);
            bench.pass(Duration::from_mins(1));
            assert_eq!(bench.handle(Event::Tick).published, [(task.id, State::AwaitingConfirmation)]);
            let asked = bench.stored(task.id).confirmation.expect("a confirmation");
            assert_eq!(asked.asked_at, bench.now);
            let request = DecideRequest {
                tasks: vec![(task.id, asked.digest)],
                verdict: HumanVerdict::Answer(json!({"answer": "yes"})),
                by: DecidedBy::Page("page".to_owned()),
                note: None,
                grant: None,
                touch: None,
            };
            let turn = bench.handle(command(HumanCommand::Decide(request)));
            assert_eq!(turn.performed.contains(&task.id), !is_busy, "the answer goes on at once");
        }
    }

    #[test]
    fn a_question_that_is_due_while_no_executor_runs_is_asked_by_the_next_one() {
        let mut bench = Bench::new(limits(1));
        let task = in_an_hour(&bench);
        bench.admit(&task, &question());
        bench.pass(Duration::from_mins(90));
        bench.crash(Some(&question()));
        assert_eq!(bench.state(task.id), State::AwaitingConfirmation);
    }

    #[test]
    fn the_same_question_at_about_the_same_time_is_one() {
        let mut bench = Bench::new(limits(1));
        let task = in_an_hour(&bench);
        bench.admit(&task, &question());
        let again = Task { id: TaskId::new(), ..in_an_hour(&bench) };
        assert_eq!(bench.admit(&again, &question()).answers, [Answer::SameAs(task.id)]);
        bench.cancel(task.id, task.caller.uid);
        bench.admit(&again, &question());
        assert_eq!(bench.state(again.id), State::Queued);
    }

    /// A human who schedules something to be done approves it now.
    #[test]
    fn a_scheduled_task_that_needs_approval_is_asked_about_at_once() {
        let mut bench = Bench::new(limits(1));
        let task = in_an_hour(&bench);
        bench.admit(&task, &definition(json!({})));
        assert_eq!(bench.state(task.id), State::AwaitingConfirmation);
    }
}
