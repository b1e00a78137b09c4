//! Reassessment: open tasks under rules that changed after they were accepted.
//!
//! Every task that has not started is judged again when the rules change, and a running one before its next attempt.
//! So a task starts only if the present rules let it.

use std::sync::Arc;

use jiff::Timestamp;
use protocol::error::ErrorBody;
use protocol::task::{State, Step, TaskId};

use super::{Action, Dispatcher, DispatcherLimits, Effects, StepDetails, advance_with};
use crate::catalog::definition::Definition;
use crate::store::ConfirmationUpdate;
use crate::task::Task;
use crate::task::confirmation::{Confirmation, DecidedBy, ReplacedValues};

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
    /// A human must approve it first.
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

    /// Has a human asked about a queued task, or ends it if that would be too much to ask.
    fn ask_now(&mut self, id: TaskId, confirmation: Box<Confirmation>, now: Timestamp, effects: &mut Effects) {
        // What a human decided stays decided; a grant is outranked by a rule that came after it.
        let is_decided = |asked: &Confirmation| {
            !asked.decision.as_ref().is_some_and(|decision| matches!(decision.by, DecidedBy::Grant(_)))
        };
        if self.open.get(&id).is_none_or(|open| open.task.confirmation.as_deref().is_some_and(is_decided)) {
            return;
        }
        self.unqueue(id);
        let Some(open) = self.open.get_mut(&id) else { return };
        self.confirmations.remove(&open.task);
        let before = open.task.confirmation.replace(confirmation.clone());
        if let Some(error) = self.confirmations.refuse(&open.task, self.limits.confirmations, now) {
            open.task.confirmation = before;
            return self.end_unstarted(id, Step::Deny, error, now, effects);
        }
        let is_previewed = confirmation.preview == Some(ReplacedValues::Pending);
        let update = ConfirmationUpdate {
            expected: before.map(|before| before.digest),
            confirmation: *confirmation,
            input: None,
        };
        let not_before = open.task.not_before;
        let details = StepDetails { not_before, end: None, confirmation: Some(Box::new(update)) };
        advance_with(&mut open.task, Step::Ask, now, details, effects);
        let (task, definition) = (open.task.clone(), Arc::clone(&open.definition));
        self.confirmations.count(&task, now);
        self.confirmations.add(&task, self.limits.confirmations.wait, now);
        effects.actions.push(Action::Publish(Box::new(task.clone())));
        if is_previewed {
            effects.actions.push(Action::Preview { task: Box::new(task), definition });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use protocol::code::Code;
    use serde_json::json;

    use super::super::tests::{Bench, Turn, definition, error_of, limits, unconfirmed};
    use super::super::{DecideRequest, DecisionAction, DecisionError, Event, FailureKind};
    use super::*;
    use crate::store::{Change, Store as _};
    use crate::task::confirmation::DecidedBy;
    use crate::task::effect::EffectClass;
    use crate::task::failure::{Retry, SideEffect};
    use crate::task::grant::{Grant, GrantScope};

    fn refusal() -> Reassessment {
        Reassessment::Refuse(Box::new(ErrorBody::new(Code::RefusedByPolicy, "a new rule")))
    }

    /// What a new rule that asks a human says about a task.
    fn question(bench: &Bench, id: TaskId) -> Reassessment {
        let (task, stored) = (unconfirmed(bench.now, json!({})), bench.stored(id));
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
        let (ticket, by) = (TaskId::new(), DecidedBy::Page("page".to_owned()));
        let (tasks, action) = (vec![(id, digest)], DecisionAction::Approve);
        let request = DecideRequest { ticket, tasks, action, by, note: None, grant: None, touch: None };
        bench.handle(Event::Decide(Box::new(request)))
    }

    #[test]
    fn a_rule_that_refuses_ends_what_waits_what_is_approved_and_what_is_queued() {
        let mut bench = Bench::new(limits(1));
        let plain = definition(json!({}));
        let running = bench.start(EffectClass::Once, &plain);
        let waiting = unconfirmed(bench.now, json!({"n": 1}));
        let approved = unconfirmed(bench.now, json!({"n": 2}));
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
        let granted = unconfirmed(bench.now, json!({}));
        let grant = Grant {
            id: TaskId::new(),
            tool: granted.tool.clone(),
            definition_hash: granted.definition_hash.clone(),
            scope: GrantScope { uid: granted.caller.uid, client: None, session: None, folder: None },
            files: None,
            fields: BTreeMap::new(),
            rules: BTreeSet::new(),
            made_at: bench.now,
            made_from: granted.id,
            made_by: "page".to_owned(),
            expires_at: bench.now + jiff::SignedDuration::from_hours(1),
            most_uses: None,
            uses: 0,
            last_use: None,
            revoked_at: None,
            proof: None,
        };
        bench.store.commit(&[Change::Grant { grant: Box::new(grant.clone()), expected_uses: None }]).expect("kept");
        bench.dispatcher.restore_grants(vec![grant]);
        bench.admit(&granted, &plain);
        assert_eq!(bench.state(granted.id), State::Queued);
        let mut asked = granted.confirmation.clone().expect("a confirmation");
        asked.asked_by = vec![crate::task::confirmation::Digest::of(&[b"new"])];
        change(&mut bench, vec![(granted.id, Reassessment::Ask(asked))]);
        assert_eq!(bench.state(granted.id), State::AwaitingConfirmation);
        assert_eq!(bench.succeed(running).performed, []);
        bench.crash(Some(&plain));
        assert_eq!(bench.state(granted.id), State::AwaitingConfirmation, "the record has the question");
        assert_eq!(approve(&mut bench, granted.id).performed, [granted.id]);
        bench.succeed(granted.id);
        assert_eq!(bench.state(granted.id), State::Succeeded);
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
