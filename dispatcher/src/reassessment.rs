//! Reassessment: open tasks under rules that changed after they were accepted.
//!
//! Every task that has not started is judged again when the rules change, and a running one before its next attempt.
//! So a task starts only if the present rules let it.

use std::sync::Arc;

use definition::Definition;
use ground::task::Task;
use ground::task::confirmation::{Confirmation, DecidedBy, Decision};
use jiff::Timestamp;
use protocol::error::ErrorBody;
use protocol::task::{State, Step, TaskId};
use store::{Change, ConfirmationUpdate};

use super::{Action, Dispatcher, DispatcherLimits, Effects, StepDetails, advance_with};

/// What follows from a changed configuration or from changed definitions.
#[derive(Debug)]
pub struct RulesChange {
    pub limits: DispatcherLimits,
    /// The tasks whose definition changed since a human was asked about them.
    pub drifted: Vec<TaskId>,
    /// What the present rules say about each open task.
    pub reassessed: Vec<(TaskId, Reassessment)>,
}

/// What the present rules say about a task that was accepted before.
#[derive(Debug, Default)]
pub enum Reassessment {
    /// It goes on.
    #[default]
    Keep,
    /// A human must approve it first, or approve it as strongly as this says.
    Ask(Box<Confirmation>),
    /// It must not start.
    Refuse(Box<ErrorBody>),
}

impl Dispatcher {
    /// Returns the open tasks, each with the definition that it was accepted with.
    pub fn open_tasks(&self) -> impl Iterator<Item = (&Task, &Arc<Definition>)> {
        self.open.values().map(|open| (&open.task, &open.definition))
    }

    /// Returns an open task with the definition that it was accepted with.
    pub fn open_task(&self, id: TaskId) -> Option<(&Task, &Arc<Definition>)> {
        self.open.get(&id).map(|open| (&open.task, &open.definition))
    }

    pub(super) fn apply_rules(&mut self, change: RulesChange, now: Timestamp, effects: &mut Effects) {
        self.limits = change.limits;
        for (id, reassessed) in change.reassessed {
            self.reassess(id, reassessed, now, effects);
        }
        // Last: a rule that refuses says more than a definition that changed.
        self.end_drifted(&change.drifted, now, effects);
    }

    /// Applies a reassessment to a task that has not started; a running one keeps it for its next attempt.
    pub(super) fn reassess(&mut self, id: TaskId, reassessed: Reassessment, now: Timestamp, effects: &mut Effects) {
        let Some(open) = self.open.get_mut(&id) else { return };
        if open.task.state == State::Running {
            open.reassessed = reassessed;
            return;
        }
        match reassessed {
            Reassessment::Keep => {}
            Reassessment::Refuse(error) => self.end_unstarted(id, Step::Deny, *error, now, effects),
            Reassessment::Ask(confirmation) => self.ask_now(id, confirmation, now, effects),
        }
    }

    /// Applies what changed rules said about a task while it was running. Returns whether it may start again.
    pub(super) fn may_start_by_rules(&mut self, id: TaskId, now: Timestamp, effects: &mut Effects) -> bool {
        let Some(open) = self.open.get_mut(&id) else { return false };
        if open.task.state != State::Queued {
            // A lookup only reads, and the task must not end while its outcome is unknown.
            return true;
        }
        let reassessed = std::mem::take(&mut open.reassessed);
        let may_start = matches!(reassessed, Reassessment::Keep);
        self.reassess(id, reassessed, now, effects);
        may_start
    }

    /// Has a human asked about a task, unless a decision that holds or a question that is as strong has settled that.
    fn ask_now(&mut self, id: TaskId, confirmation: Box<Confirmation>, now: Timestamp, effects: &mut Effects) {
        match self.open.get(&id).map(|open| open.task.confirmation.as_deref()) {
            None => {}
            Some(Some(asked)) if !is_outranked(asked, &confirmation) => {}
            Some(Some(asked)) if asked.decision.is_none() => self.strengthen(id, confirmation, effects),
            Some(_) => self.ask_anew(id, confirmation, now, effects),
        }
    }

    /// Demands more of the human who is asked about a task, or will be, than when the question was asked.
    fn strengthen(&mut self, id: TaskId, confirmation: Box<Confirmation>, effects: &mut Effects) {
        let Some(open) = self.open.get_mut(&id) else { return };
        let Some(before) = open.task.confirmation.replace(confirmation.clone()) else { return };
        effects.changes.push(Change::ReplaceQuestion { id, expected: before.digest, confirmation });
        effects.actions.push(Action::Publish(Box::new(open.task.clone())));
        // A lookup under way is of the question that was replaced.
        effects.actions.extend(open.preview());
    }

    /// Has a human asked about a queued task, or ends it if that would be too much to ask. A decision that was made about
    /// it is void, and with it an edit.
    fn ask_anew(&mut self, id: TaskId, confirmation: Box<Confirmation>, now: Timestamp, effects: &mut Effects) {
        self.unqueue(id);
        let Some(open) = self.open.get_mut(&id) else { return };
        self.confirmations.remove(&open.task);
        let input = (open.task.asked_input() != &open.task.input).then(|| open.task.asked_input().clone());
        let mut asked = Task { confirmation: Some(confirmation.clone()), ..open.task.clone() };
        asked.input = input.clone().unwrap_or(asked.input);
        if let Some(error) = self.confirmations.refuse(&asked, self.limits.confirmations, now) {
            return self.end_unstarted(id, Step::Deny, error, now, effects);
        }
        self.quotas.remove(&open.task);
        let expected = open.task.confirmation.as_ref().map(|before| before.digest);
        (open.task, open.held_until) = (asked, None);
        self.quotas.add(&open.task);
        let update = ConfirmationUpdate { expected, confirmation: *confirmation, input };
        let not_before = open.task.not_before;
        let details = StepDetails { not_before, end: None, confirmation: Some(Box::new(update)) };
        advance_with(&mut open.task, Step::Ask, now, details, effects);
        self.confirmations.count(&open.task, now);
        self.confirmations.add(&open.task, self.limits.confirmations.wait, now);
        effects.actions.push(Action::Publish(Box::new(open.task.clone())));
        effects.actions.extend(open.preview());
    }
}

/// Whether the decision that was made on `asked`, or the one that it asks for, does not do for what is demanded by now.
fn is_outranked(asked: &Confirmation, demanded: &Confirmation) -> bool {
    let is_by_grant = |decision: &Decision| matches!(decision.by, DecidedBy::Grant(_));
    // What a human decided as strongly stays decided; a grant is outranked by a rule that came after it.
    asked.decision.as_ref().is_some_and(is_by_grant) || !asked.meets(demanded.needs)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use ground::task::confirmation::Assurance;
    use ground::task::effect::EffectClass;
    use ground::task::failure::{Retry, SideEffect};
    use ground::task::grant::Grant;
    use protocol::code::Code;
    use serde_json::json;

    use super::super::HumanCommand;
    use super::super::tests::{Bench, Turn, command, definition, error_of, limits, recovery_info, unapproved};
    use super::super::{DecideRequest, DecisionError, Event, FailureKind, HumanVerdict, RecoveryInfo};
    use super::*;
    use store::Store as _;

    fn refusal() -> Reassessment {
        Reassessment::Refuse(Box::new(ErrorBody::new(Code::RefusedByPolicy, "a new rule")))
    }

    /// What a new rule that asks a human says about a task.
    fn question(bench: &Bench, id: TaskId) -> Reassessment {
        let (task, stored) = (unapproved(bench.now, json!({})), bench.stored(id));
        let mut asked = task.confirmation.expect("a confirmation");
        asked.digest = asked.digest_of("", &stored, &stored.input);
        Reassessment::Ask(asked)
    }

    fn change(bench: &mut Bench, reassessed: Vec<(TaskId, Reassessment)>) -> Turn {
        let change = RulesChange { limits: limits(1), drifted: Vec::new(), reassessed };
        bench.handle(Event::RulesChanged(Box::new(change)))
    }

    fn approve(bench: &mut Bench, id: TaskId) -> Turn {
        let digest = bench.stored(id).confirmation.expect("a confirmation").digest;
        let by = DecidedBy::Page("page".to_owned());
        let (tasks, verdict) = (vec![(id, digest)], HumanVerdict::Approve);
        let request = DecideRequest { tasks, verdict, by, note: None, grant: None, touch: None };
        bench.handle(command(HumanCommand::Decide(request)))
    }

    #[test]
    fn a_rule_that_refuses_ends_what_waits_what_is_approved_and_what_is_queued() {
        let mut bench = Bench::new(limits(1));
        let plain = definition(json!({}));
        let running = bench.start(EffectClass::Once, &plain);
        let waiting = unapproved(bench.now, json!({"n": 1}));
        let approved = unapproved(bench.now, json!({"n": 2}));
        let queued = Task::sample("t", EffectClass::Once, bench.now);
        let later = bench.now + jiff::SignedDuration::from_hours(1);
        let scheduled = Task { run_at: Some(later), ..Task::sample("t", EffectClass::Once, bench.now) };
        let all = [&waiting, &approved, &queued, &scheduled];
        for task in all {
            bench.admit(task, &plain);
        }
        approve(&mut bench, approved.id);
        let reassessed = all.iter().map(|task| (task.id, refusal())).chain([(running, refusal())]).collect();
        assert_eq!(change(&mut bench, reassessed).performed, []);
        for task in all {
            assert_eq!(error_of(&bench.stored(task.id)).code, Code::RefusedByPolicy);
            assert_eq!(bench.state(task.id), State::Denied);
        }
        let late = approve(&mut bench, waiting.id).replies;
        assert_eq!(late, [Err(DecisionError::NotPending(waiting.id))]);
        assert_eq!(bench.dispatcher.next_deadline(), None, "nothing is left behind");
        bench.succeed(running);
        assert_eq!(bench.state(running), State::Succeeded, "what runs may finish");
    }

    #[test]
    fn a_rule_that_asks_puts_a_queued_task_to_the_human() {
        let mut bench = Bench::new(limits(1));
        let plain = definition(json!({}));
        let running = bench.start(EffectClass::Once, &plain);
        let queued = Task::sample("t", EffectClass::Once, bench.now);
        bench.admit(&queued, &plain);
        let asked = question(&bench, queued.id);
        let turn = change(&mut bench, vec![(queued.id, asked)]);
        assert_eq!(turn.published, [(queued.id, State::AwaitingConfirmation)]);
        assert_eq!(bench.succeed(running).performed, []);
        bench.crash(Some(&plain));
        assert_eq!(bench.state(queued.id), State::AwaitingConfirmation, "the record has the question");
        assert_eq!(approve(&mut bench, queued.id).performed, [queued.id]);
    }

    #[test]
    fn a_rule_that_asks_puts_what_a_grant_approved_to_the_human() {
        let mut bench = Bench::new(limits(1));
        let plain = definition(json!({}));
        let running = bench.start(EffectClass::Once, &plain);
        let granted = unapproved(bench.now, json!({}));
        let grant = Grant::sample(&granted, bench.now);
        bench.store.commit(&[Change::Grant { grant: Box::new(grant.clone()), expected_uses: None }]).expect("kept");
        bench.dispatcher.restore_grants(vec![grant]);
        bench.admit(&granted, &plain);
        assert_eq!(bench.state(granted.id), State::Queued);
        let mut asked = granted.confirmation.clone().expect("a confirmation");
        asked.asked_by = vec![ground::task::confirmation::Digest::of(&[b"new"])];
        change(&mut bench, vec![(granted.id, Reassessment::Ask(asked))]);
        assert_eq!(bench.state(granted.id), State::AwaitingConfirmation);
        assert_eq!(bench.succeed(running).performed, []);
        bench.crash(Some(&plain));
        assert_eq!(bench.state(granted.id), State::AwaitingConfirmation, "the record has the question");
        assert_eq!(approve(&mut bench, granted.id).performed, [granted.id]);
        bench.succeed(granted.id);
        assert_eq!(bench.state(granted.id), State::Succeeded);
    }

    /// What a rule that demands a touch says about `task`, which was asked about before.
    fn touch_demanded(bench: &Bench, id: TaskId) -> Reassessment {
        let stored = bench.stored(id);
        let task = Task { input: stored.asked_input().clone(), ..stored };
        let asked = task.confirmation.as_deref().expect("a confirmation").clone();
        let demanded = Confirmation { needs: Some(Assurance::Touch), decision: None, ..asked };
        Reassessment::Ask(Box::new(demanded.bound_to("", &task)))
    }

    fn needs(bench: &Bench, id: TaskId) -> Option<Assurance> {
        bench.stored(id).confirmation.expect("a confirmation").needs
    }

    #[test]
    fn a_rule_that_demands_more_renews_a_question_that_waits_or_will_and_none_lowers_it() {
        let question = definition(json!({"run": {"ask_user": {"question": "q"}}}));
        for (plain, is_later) in [(definition(json!({})), false), (question, true)] {
            let mut bench = Bench::new(limits(1));
            let later = is_later.then(|| bench.now + jiff::SignedDuration::from_mins(30));
            let task = Task { run_at: later, not_before: later, ..unapproved(bench.now, json!({})) };
            bench.admit(&task, &plain);
            let before = bench.stored(task.id);
            let (weaker, stronger) = (
                Reassessment::Ask(before.confirmation.clone().expect("a confirmation")),
                touch_demanded(&bench, task.id),
            );
            let turn = change(&mut bench, vec![(task.id, stronger)]);
            assert_eq!(turn.published, [(task.id, before.state)], "{is_later}");
            assert_eq!(needs(&bench, task.id), Some(Assurance::Touch), "{is_later}");
            let digest = before.confirmation.as_ref().expect("a confirmation").digest;
            assert_ne!(bench.stored(task.id).confirmation.expect("a confirmation").digest, digest);
            assert_eq!(change(&mut bench, vec![(task.id, weaker)]).published, [], "{is_later}");
            bench.crash(Some(&plain));
            assert_eq!(needs(&bench, task.id), Some(Assurance::Touch), "{is_later}: the record has it");
            bench.now += jiff::SignedDuration::from_mins(if is_later { 30 } else { 1 });
            bench.handle(Event::Tick);
            let late = approve(&mut bench, task.id);
            assert!(matches!(late.replies[..], [Err(DecisionError::NeedsTouch(_))]), "{is_later}: {late:?}");
        }
    }

    #[test]
    fn a_question_that_an_executor_finds_demands_what_the_rules_do_by_then() {
        let mut bench = Bench::new(limits(1));
        let (plain, task) = (definition(json!({})), unapproved(bench.now, json!({})));
        bench.admit(&task, &plain);
        let info = RecoveryInfo { reassessed: touch_demanded(&bench, task.id), ..recovery_info(Some(&plain)) };
        let (info, open) = (Cell::new(Some(info)), bench.store.open_tasks().expect("read"));
        bench.dispatcher = Dispatcher::new(limits(1));
        let effects = bench.dispatcher.recover(open, bench.now, |_| info.take().expect("one task"));
        bench.carry_out(effects);
        assert_eq!(
            (bench.state(task.id), needs(&bench, task.id)),
            (State::AwaitingConfirmation, Some(Assurance::Touch))
        );
    }

    #[test]
    fn a_rule_that_demands_more_voids_a_weaker_decision_until_the_task_has_started() {
        let plain = definition(json!({"hold": "1h"}));
        for by in [DecidedBy::Page("page".to_owned()), DecidedBy::Grant(TaskId::new())] {
            let mut bench = Bench::new(limits(1));
            let task = unapproved(bench.now, json!({"n": 1}));
            bench.admit(&task, &plain);
            let digest = task.confirmation.as_ref().expect("a confirmation").digest;
            let input = json!({"n": 2}).as_object().expect("an object").clone();
            let asked = task.confirmation.as_ref().expect("a confirmation");
            let edited = asked.digest_of("", &task, &input);
            let verdict = HumanVerdict::Edit { input, files: Vec::new(), digest: edited, reason: None };
            let tasks = vec![(task.id, digest)];
            let request = DecideRequest { tasks, verdict, by, note: None, grant: None, touch: None };
            bench.handle(command(HumanCommand::Decide(request)));
            assert_eq!(bench.state(task.id), State::Queued, "it is held");
            let stronger = touch_demanded(&bench, task.id);
            let turn = change(&mut bench, vec![(task.id, stronger)]);
            assert_eq!(turn.published, [(task.id, State::AwaitingConfirmation)]);
            for _ in 0..2 {
                let stored = bench.stored(task.id);
                assert_eq!((stored.input, stored.attempt), (task.input.clone(), 0), "the edit is void as well");
                assert_eq!(needs(&bench, task.id), Some(Assurance::Touch));
                let late = approve(&mut bench, task.id);
                assert!(matches!(late.replies[..], [Err(DecisionError::NeedsTouch(_))]), "{late:?}");
                bench.crash(Some(&plain));
            }
        }
    }

    #[test]
    fn a_human_is_not_asked_more_often_because_the_rules_changed() {
        let mut bench = Bench::new(limits(1));
        let plain = definition(json!({}));
        bench.start(EffectClass::Once, &plain);
        let queued: Vec<_> = (0..12).map(|_| Task::sample("t", EffectClass::Once, bench.now)).collect();
        for task in &queued {
            bench.admit(task, &plain);
        }
        let reassessed = queued.iter().map(|task| (task.id, question(&bench, task.id))).collect();
        change(&mut bench, reassessed);
        let states: Vec<_> = queued.iter().map(|task| bench.state(task.id)).collect();
        assert_eq!(states.iter().filter(|state| **state == State::AwaitingConfirmation).count(), 10);
        assert_eq!(error_of(&bench.stored(queued[11].id)).code, Code::Throttled);
    }

    #[test]
    fn a_running_task_obeys_a_changed_rule_before_its_next_attempt() {
        for asks in [false, true] {
            let mut bench = Bench::new(limits(1));
            let retried = definition(json!({"retries": {"times": 3, "backoff": "1ms"}}));
            let id = bench.start(EffectClass::Once, &retried);
            let reassessed = if asks { question(&bench, id) } else { refusal() };
            change(&mut bench, vec![(id, reassessed)]);
            bench.fail(id, FailureKind::Failure, Retry::Later, SideEffect::None);
            bench.now += jiff::SignedDuration::from_secs(1);
            bench.handle(Event::Tick);
            if asks {
                assert_eq!(bench.state(id), State::AwaitingConfirmation);
                assert_eq!(approve(&mut bench, id).performed, [id]);
            } else {
                assert_eq!(error_of(&bench.stored(id)).code, Code::RefusedByPolicy);
            }
        }
    }
}
