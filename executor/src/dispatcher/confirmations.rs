//! Asks: the tasks that wait for a human, what the human says, and what of it is remembered.
//!
//! A human is a scarce thing: so many questions may wait and so many may come in an hour, the same
//! question is asked once, and what was just denied is not asked again at once. Of two answers the
//! first counts.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use protocol::code::Code;
use protocol::error::ErrorBody;
use protocol::task::{State, Step, TaskId};
use serde_json::{Map, Value};

use super::fair_queue::{QueueKey, queue_key};
use super::{Action, Dispatcher, Effects, StepDetails, failed_end, move_on};
use crate::store::{Change, ConfirmationUpdate};
use crate::task::Task;
use crate::task::confirmation::{
    Confirmation, DecidedBy, Decision, Digest, ReplacedValues, Verdict, denied, drifted, expired,
};
use crate::task::grant::{Grant, GrantId};

mod grants;
#[cfg(test)]
mod tests;

/// Over so long the questions of one user's callers are counted.
pub const CONFIRMATION_WINDOW: SignedDuration = SignedDuration::from_hours(1);

/// How many questions a human may be asked.
#[derive(Debug, Clone, Copy)]
pub struct ConfirmationLimits {
    /// How many may wait at once.
    pub waiting: usize,
    /// How many of these one session may have.
    pub waiting_per_session: usize,
    /// How many one user's callers may ask in an hour; 0 is no limit.
    pub per_hour: usize,
    /// How long what was denied is not asked again; the same call is denied without asking.
    pub cool_down: Duration,
    /// How long one may wait, whatever the clock said when it was asked.
    pub wait: Duration,
}

/// What somebody on the page decided.
#[derive(Debug)]
pub struct DecideRequest {
    /// By which whoever asked for this gets its answer.
    pub ticket: Ticket,
    /// All of these, or none: each with the digest of what was shown.
    pub tasks: Vec<(TaskId, Digest)>,
    pub action: DecisionAction,
    /// The session of the page.
    pub session: String,
    /// To be remembered with it: made from the one task of this decision.
    pub grant: Option<Box<Grant>>,
}

/// A name like a task's, for something that was asked for.
pub type Ticket = TaskId;

#[derive(Debug, Clone)]
pub enum DecisionAction {
    Approve,
    Deny {
        reason: Option<String>,
    },
    /// Yes, with this input, to which this digest belongs.
    Edit {
        input: Map<String, Value>,
        digest: Digest,
        reason: Option<String>,
    },
    /// What a question was answered.
    Answer(Value),
}

/// What became of a decision.
pub type DecisionResult = Result<Vec<(TaskId, State)>, DecisionError>;

/// Why nothing was decided.
#[derive(Debug, Clone, PartialEq)]
pub enum DecisionError {
    /// It does not wait for a decision: it was decided, or is over, or never was.
    NotPending(TaskId),
    /// It waits for one about something else than what was shown.
    Stale(TaskId),
    /// It was no decision, and this stands in the way.
    Refused(Box<ErrorBody>),
}

/// The questions that wait, and what is remembered of earlier ones.
#[derive(Debug, Default)]
pub(super) struct PendingConfirmations {
    /// Ids sort by time: the first waits longest.
    waiting: BTreeMap<TaskId, PendingConfirmation>,
    /// Those that were let through and have not started.
    approved: BTreeSet<TaskId>,
    per_party: HashMap<QueueKey, usize>,
    expiring: BTreeSet<(Timestamp, TaskId)>,
    /// The waiting task by what it asks for.
    same: HashMap<Digest, TaskId>,
    /// Until when what was denied is not asked again.
    denied: HashMap<Digest, Timestamp>,
    /// When questions came, by user.
    asked: HashMap<u32, VecDeque<Timestamp>>,
    /// How many there ever were.
    questions: u64,
    grants: BTreeMap<GrantId, Grant>,
}

#[derive(Debug)]
struct PendingConfirmation {
    until: Timestamp,
    call: Digest,
}

impl PendingConfirmations {
    pub(super) fn next_deadline(&self) -> Option<Timestamp> {
        self.expiring.first().map(|(at, _)| *at)
    }

    /// `task` waits from now on, until its question expires.
    pub(super) fn join(&mut self, task: &Task, wait: Duration, now: Timestamp) {
        let Some(confirmation) = &task.confirmation else { return };
        let latest = after(task.run_at.map_or(now, |at| at.max(now)), wait);
        let waiting = PendingConfirmation { until: confirmation.expires_at.min(latest), call: call(task) };
        self.questions += 1;
        *self.per_party.entry(queue_key(&task.caller)).or_default() += 1;
        self.expiring.insert((waiting.until, task.id));
        self.same.insert(waiting.call, task.id);
        self.waiting.insert(task.id, waiting);
    }

    /// `task` was let through, and waits for its turn.
    pub(super) fn approve(&mut self, task: &Task) {
        if task.confirmation.is_some() {
            self.approved.insert(task.id);
        }
    }

    /// Counts a question that comes now.
    pub(super) fn count(&mut self, task: &Task, now: Timestamp) {
        self.asked.entry(task.caller.uid).or_default().push_back(now);
    }

    /// Takes a task out that no longer waits. Without effect if it does not.
    pub(super) fn leave(&mut self, task: &Task) {
        self.approved.remove(&task.id);
        let Some(waiting) = self.waiting.remove(&task.id) else { return };
        self.expiring.remove(&(waiting.until, task.id));
        self.same.remove(&waiting.call);
        let queue_key = queue_key(&task.caller);
        if let Some(count) = self.per_party.get_mut(&queue_key) {
            *count -= 1;
            if *count == 0 {
                self.per_party.remove(&queue_key);
            }
        }
    }

    /// The task that waits for the answer to the same question.
    pub(super) fn same(&self, task: &Task) -> Option<TaskId> {
        task.confirmation.as_ref()?;
        self.same.get(&call(task)).copied()
    }

    /// The grant that gives the yes to `task`, if one does.
    pub(super) fn grant_for(&self, task: &Task, now: Timestamp) -> Option<GrantId> {
        self.grants.values().find(|grant| grant.covers(task, now)).map(|grant| grant.id)
    }

    /// Why a human is not asked about `task`, if they are not.
    pub(super) fn refuse(&mut self, task: &Task, limits: ConfirmationLimits, now: Timestamp) -> Option<ErrorBody> {
        self.denied.retain(|_, until| *until > now);
        if let Some(until) = self.denied.get(&call(task)) {
            let message = "a human said no to exactly this a short while ago, and is not asked again".to_owned();
            return Some(ErrorBody { message, ..denied(None) }.detail("until", until.to_string()));
        }
        let own = self.per_party.get(&queue_key(&task.caller)).copied().unwrap_or(0);
        let full = if own >= limits.waiting_per_session {
            Some((own, " of this session"))
        } else if self.waiting.len() >= limits.waiting {
            Some((self.waiting.len(), ""))
        } else {
            None
        };
        if let Some((count, whose)) = full {
            let message = format!("{count} tasks{whose} wait for a human already, and no more may");
            return Some(
                ErrorBody::new(Code::Throttled, message)
                    .hint("wait for the answers to these: agent-magic-tool tasks --state awaiting_confirmation"),
            );
        }
        let asked = self.asked.entry(task.caller.uid).or_default();
        while asked.front().is_some_and(|at| now.duration_since(*at) >= CONFIRMATION_WINDOW) {
            asked.pop_front();
        }
        let oldest = asked.front().filter(|_| limits.per_hour > 0 && asked.len() >= limits.per_hour)?;
        let message = format!("a human was asked {} times within an hour, and no more may come", asked.len());
        Some(
            ErrorBody::new(Code::Throttled, message)
                .hint("tell the user what you were about to do, and go on with what needs no yes")
                .detail("again_at", (*oldest + CONFIRMATION_WINDOW).to_string()),
        )
    }
}

/// What a task asks for, whoever is asked.
fn call(task: &Task) -> Digest {
    Digest::of(&[
        &task.caller.uid.to_be_bytes(),
        task.caller.session.as_deref().unwrap_or_default().as_bytes(),
        task.tool.as_str().as_bytes(),
        task.definition_hash.as_bytes(),
        &serde_json::to_vec(task.asked_input()).expect("JSON can be written"),
    ])
}

impl Dispatcher {
    /// How many tasks wait for a human.
    pub fn confirmations_pending(&self) -> usize {
        self.asks.waiting.len()
    }

    /// How many ever began to wait, under this executor.
    pub fn confirmations_asked(&self) -> u64 {
        self.asks.questions
    }

    /// How many of these no longer do.
    pub fn confirmations_answered(&self) -> u64 {
        self.asks.questions - self.asks.waiting.len() as u64
    }

    /// The place of a task among those that wait for a human, 1 for the first.
    pub fn queue_position(&self, id: TaskId) -> Option<usize> {
        self.asks.waiting.contains_key(&id).then(|| self.asks.waiting.range(..=id).count())
    }

    /// The tasks that wait for a human or were let through by one, and have not started.
    pub fn confirmable(&self) -> impl Iterator<Item = &Task> {
        let ids = self.asks.waiting.keys().chain(&self.asks.approved);
        ids.filter_map(|id| self.open.get(id)).map(|open| &open.task)
    }

    /// Whether one that was let through may start at the next turn.
    pub fn has_approved(&self) -> bool {
        !self.asks.approved.is_empty()
    }

    /// Gives the yes that is remembered in `id` to a new task.
    pub(super) fn use_grant(&mut self, id: GrantId, task: &mut Task, now: Timestamp, effects: &mut Effects) {
        let Some(grant) = self.asks.grants.get_mut(&id) else { return };
        let before = grant.uses;
        grant.uses += 1;
        grant.last_use = Some(now);
        effects.changes.push(Change::Grant { grant: Box::new(grant.clone()), expected_uses: Some(before) });
        if let Some(confirmation) = &mut task.confirmation {
            confirmation.decision = Some(Decision::new(now, Verdict::Approved, DecidedBy::Grant(id)));
        }
    }

    pub(super) fn decide(&mut self, request: DecideRequest, now: Timestamp, effects: &mut Effects) {
        let DecideRequest { ticket, tasks, action, session, grant } = request;
        if let Some(why) = self.undecidable(&tasks, &action) {
            effects.actions.push(Action::Reply(ticket, Err(why)));
            return;
        }
        if let Some(grant) = grant {
            effects.changes.push(Change::Grant { grant: grant.clone(), expected_uses: None });
            self.asks.grants.insert(grant.id, *grant);
        }
        let decided =
            tasks.into_iter().map(|(id, _)| (id, self.decide_one(id, &action, &session, now, effects))).collect();
        effects.actions.push(Action::Reply(ticket, Ok(decided)));
    }

    /// What is asked about a task that still waits is from now on this.
    pub(super) fn set_preview(
        &mut self,
        id: TaskId,
        expected: Digest,
        confirmation: Box<Confirmation>,
        effects: &mut Effects,
    ) {
        let Some(open) = self.open.get_mut(&id).filter(|_| self.asks.waiting.contains_key(&id)) else { return };
        if open.task.confirmation.as_ref().map(|asked| asked.digest) != Some(expected) {
            return;
        }
        open.task.confirmation = Some(confirmation.clone());
        effects.changes.push(Change::SetPreview { id, expected, confirmation });
        effects.actions.push(Action::Publish(Box::new(open.task.clone())));
    }

    fn undecidable(&self, tasks: &[(TaskId, Digest)], action: &DecisionAction) -> Option<DecisionError> {
        let approves = !matches!(action, DecisionAction::Deny { .. });
        tasks.iter().find_map(|(id, digest)| {
            let waits = self.open.get(id).filter(|_| self.asks.waiting.contains_key(id));
            match waits.and_then(|open| open.task.confirmation.as_ref()) {
                None => Some(DecisionError::NotPending(*id)),
                Some(asked) if asked.digest != *digest => Some(DecisionError::Stale(*id)),
                // Nobody has seen all that they agree to.
                Some(asked) if approves && asked.preview == Some(ReplacedValues::Pending) => {
                    Some(DecisionError::Stale(*id))
                }
                Some(_) => None,
            }
        })
    }

    /// Carries one answer out; the state that the task is in then.
    fn decide_one(
        &mut self,
        id: TaskId,
        action: &DecisionAction,
        session: &str,
        now: Timestamp,
        effects: &mut Effects,
    ) -> State {
        let open = self.open.get_mut(&id).expect("it was found a moment ago");
        self.asks.leave(&open.task);
        self.load.remove(&open.task);
        let mut confirmation = open.task.confirmation.take().expect("it waits for an answer");
        let expected = confirmation.digest;
        let mut decision = Decision::new(now, Verdict::Approved, DecidedBy::Page(session.to_owned()));
        let (mut step, mut end, mut input) = (Step::Enqueue, None, None);
        match action {
            DecisionAction::Approve => {}
            DecisionAction::Deny { reason } => {
                decision.verdict = Verdict::Denied;
                decision.reason.clone_from(reason);
                self.asks.denied.insert(call(&open.task), after(now, self.limits.asks.cool_down));
                (step, end) = (Step::Deny, Some(failed_end(now, denied(reason.as_deref()))));
            }
            DecisionAction::Edit { input: edited, digest, reason } => {
                decision.verdict = Verdict::Edited;
                decision.reason.clone_from(reason);
                decision.asked_input = Some(std::mem::replace(&mut open.task.input, edited.clone()));
                confirmation.digest = *digest;
                input = Some(edited.clone());
            }
            DecisionAction::Answer(answer) => decision.answer = Some(answer.clone()),
        }
        confirmation.decision = Some(decision);
        let update = ConfirmationUpdate { expected, confirmation: (*confirmation).clone(), input };
        open.task.confirmation = Some(confirmation);
        let not_before = open.task.not_before;
        move_on(
            &mut open.task,
            step,
            now,
            StepDetails { not_before, end, confirmation: Some(Box::new(update)) },
            effects,
        );
        let task = open.task.clone();
        self.load.add(&task);
        if task.state.is_final() {
            self.close(id, effects);
        } else {
            effects.actions.push(Action::Publish(Box::new(task.clone())));
            self.asks.approve(&task);
            self.line_up(id, now);
        }
        task.state
    }

    /// Takes a grant back; what it let through and has not started does not start.
    pub(super) fn revoke(&mut self, ticket: Ticket, id: GrantId, now: Timestamp, effects: &mut Effects) {
        let told = match self.asks.grants.get_mut(&id) {
            Some(grant) => {
                if grant.revoked_at.is_none() {
                    grant.revoked_at = Some(now);
                    effects
                        .changes
                        .push(Change::Grant { grant: Box::new(grant.clone()), expected_uses: Some(grant.uses) });
                }
                Ok(Vec::new())
            }
            None => Err(DecisionError::NotPending(id)),
        };
        effects.actions.push(Action::Reply(ticket, told));
    }

    /// Ends the questions that nobody answered in time.
    pub(super) fn expire(&mut self, now: Timestamp, effects: &mut Effects) {
        while let Some((at, id)) = self.asks.expiring.first().copied()
            && at <= now
        {
            self.end_unstarted(id, Step::Expire, now, expired, effects);
        }
    }

    /// Ends tasks whose definition is no longer the one that a human was shown.
    pub(super) fn end_drifted(&mut self, ids: &[TaskId], now: Timestamp, effects: &mut Effects) {
        for id in ids {
            self.end_unstarted(*id, Step::Fail, now, |_| drifted(), effects);
        }
    }

    /// Whether a task whose turn it is may start; if it was approved and may not any more, it ends.
    pub(super) fn may_start(&mut self, id: TaskId, now: Timestamp, effects: &mut Effects) -> bool {
        let Some(task) = self.open.get(&id).map(|open| &open.task) else { return false };
        if !self.asks.approved.contains(&id) {
            return true;
        }
        let Some(confirmation) = &task.confirmation else { return true };
        let revoked = |by: &DecidedBy| match by {
            DecidedBy::Grant(id) => self.asks.grants.get(id).is_none_or(|grant| grant.revoked_at.is_some()),
            DecidedBy::Page(_) => false,
        };
        if confirmation.decision.as_ref().is_none_or(|decision| revoked(&decision.by)) {
            let why = denied(Some("the grant that let it through was revoked before it started"));
            self.end_unstarted(id, Step::Deny, now, |_| why, effects);
            false
        } else if confirmation.expires_at <= now {
            self.end_unstarted(id, Step::Expire, now, expired, effects);
            false
        } else {
            self.asks.approved.remove(&id);
            true
        }
    }

    fn end_unstarted(
        &mut self,
        id: TaskId,
        step: Step,
        now: Timestamp,
        why: impl FnOnce(&Confirmation) -> ErrorBody,
        effects: &mut Effects,
    ) {
        let Some(open) = self.open.get_mut(&id) else { return };
        let Some(error) = open.task.confirmation.as_deref().map(why) else { return };
        self.lines.leave(&open.task.caller, &open.kind(), id);
        if let Some(at) = open.task.not_before {
            self.delayed.remove(&(at, id));
        }
        let end = Some(failed_end(now, error));
        move_on(&mut open.task, step, now, StepDetails { end, ..StepDetails::default() }, effects);
        self.close(id, effects);
    }
}

fn after(at: Timestamp, span: Duration) -> Timestamp {
    at.checked_add(span).unwrap_or(Timestamp::MAX)
}
