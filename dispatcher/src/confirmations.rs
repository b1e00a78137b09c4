//! Confirmations: the tasks that wait for a human, the decisions, and the grants.
//!
//! To protect the human's attention, the number of pending confirmations and of confirmations per hour is limited,
//! identical calls share one confirmation, and a denied call is not asked about again for a while. All of this counts
//! for a Unix user, which the kernel vouches for: a caller names its session and its folder itself, so a new name must
//! not get it another question. The first decision on a task is final.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::ops::SubAssign;
use std::path::PathBuf;
use std::time::Duration;

use ground::base::webauthn::Assertion;
use ground::task::Task;
use ground::task::api_key::ApiKeyRef;
use ground::task::confirmation::{
    Confirmation, DecidedBy, Decision, Digest, ReplacedValues, Verdict, denied, drifted, expired,
};
use ground::task::fingerprint::Fingerprint;
use ground::task::grant::{Grant, GrantId};
use ground::task::touch::Statement;
use jiff::{SignedDuration, Timestamp};
use protocol::code::Code;
use protocol::error::ErrorBody;
use protocol::task::{State, Step, TaskId};
use protocol::wording::counted;
use serde_json::{Map, Value};

use super::decide_scopes::DecideScopes;
use super::decision_error::{DecisionError, DecisionResult};
use super::fair_queue::{QueueKey, queue_key};
use super::{Action, Dispatcher, Effects, StepDetails, advance_with, failed_end};
use asked_times::AskedTimes;
pub use asked_times::CONFIRMATION_WINDOW;
use store::{Change, ConfirmationUpdate};

mod asked_times;
mod grants;
pub(super) mod later;
mod start;
#[cfg(test)]
mod tests;

/// Identical calls that are scheduled this close to each other share a confirmation: a caller that repeats `--in` names a
/// slightly later time.
const MAX_START_DIFFERENCE: SignedDuration = SignedDuration::from_mins(1);

/// How often a human may be asked.
#[derive(Debug, Clone, Copy)]
pub struct ConfirmationLimits {
    /// How many confirmations may be pending at once.
    pub waiting: usize,
    /// How many may be pending at once for one Unix user.
    pub waiting_per_user: usize,
    /// How many may be pending at once for one session.
    pub waiting_per_session: usize,
    /// How many a user's callers may ask for in an hour; 0 means no limit.
    pub per_hour: usize,
    /// How long the same call is denied without asking after a human denied it.
    pub cool_down: Duration,
    /// How long a confirmation may stay pending, even if the clock was wrong when it was asked for.
    pub wait: Duration,
}

/// A human's decision on one or more tasks.
#[derive(Debug)]
pub struct DecideRequest {
    /// The tasks, each with the digest of what the human was shown. The decision applies to all of them or to none.
    pub tasks: Vec<(TaskId, Digest)>,
    pub verdict: HumanVerdict,
    /// A session of the page, or an API key.
    pub by: DecidedBy,
    /// The human's words for the agent, with an approval.
    pub note: Option<String>,
    /// A grant to store with the decision, made from its only task.
    pub grant: Option<Box<Grant>>,
    /// What a key of the human signed.
    pub touch: Option<Assertion>,
}

/// What the human decided.
#[derive(Debug, Clone)]
pub enum HumanVerdict {
    Approve,
    Deny {
        reason: Option<String>,
    },
    /// Approve with this input, which gives this digest.
    Edit {
        input: Map<String, Value>,
        /// The files that it executes and reads with this input.
        files: Vec<Fingerprint>,
        digest: Digest,
        reason: Option<String>,
    },
    /// Answer the task's question.
    Answer(Value),
}

impl HumanVerdict {
    /// Whether it lets nothing happen: a denial, or a question that is not answered.
    pub(super) fn declines(&self) -> bool {
        match self {
            Self::Deny { .. } => true,
            Self::Answer(answer) => answer["action"] == "decline",
            Self::Approve | Self::Edit { .. } => false,
        }
    }
}

/// The pending confirmations, recent denials, the grants, and which API keys may decide.
#[derive(Debug, Default)]
pub(super) struct PendingConfirmations {
    /// Ids sort by time, so the first has waited longest.
    waiting: BTreeMap<TaskId, PendingConfirmation>,
    /// The approved tasks that have not started.
    approved: BTreeSet<TaskId>,
    /// The questions that are asked at a time that has not come.
    later: BTreeSet<TaskId>,
    per_user: HashMap<u32, usize>,
    per_session: HashMap<QueueKey, usize>,
    deadlines: BTreeSet<(Timestamp, TaskId)>,
    /// The pending tasks of each call, with their scheduled starts.
    by_call: HashMap<SharedCall, BTreeMap<TaskId, Option<Timestamp>>>,
    /// Until when each denied call is denied without asking.
    denied: HashMap<Digest, Timestamp>,
    asked: AskedTimes,
    /// How many confirmations have ever been pending.
    total_asked: u64,
    grants: BTreeMap<GrantId, Grant>,
    pub(super) decide_scopes: DecideScopes,
    /// The API keys that there are.
    pub(super) api_keys: Vec<ApiKeyRef>,
}

#[derive(Debug)]
struct PendingConfirmation {
    until: Timestamp,
    /// The key of [`PendingConfirmations::by_call`].
    call: SharedCall,
}

impl PendingConfirmations {
    pub(super) fn next_deadline(&self) -> Option<Timestamp> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Adds `task`, whose confirmation is pending until it expires.
    pub(super) fn add(&mut self, task: &Task, wait: Duration, now: Timestamp) {
        let Some(confirmation) = &task.confirmation else { return };
        let latest = after(task.run_at.map_or(now, |at| at.max(now)), wait);
        let waiting = PendingConfirmation { until: confirmation.expires_at.min(latest), call: shared_call(task) };
        self.total_asked += 1;
        *self.per_user.entry(task.caller.uid).or_default() += 1;
        *self.per_session.entry(queue_key(&task.caller)).or_default() += 1;
        self.deadlines.insert((waiting.until, task.id));
        self.by_call.entry(waiting.call.clone()).or_default().insert(task.id, task.run_at);
        self.waiting.insert(task.id, waiting);
    }

    /// Marks `task`, which is queued, as approved but not started if it needed confirmation, or as one that is asked
    /// about when its time comes.
    pub(super) fn approve(&mut self, task: &Task) {
        if later::is_undecided(task) {
            self.later.insert(task.id);
        } else if task.confirmation.is_some() {
            self.approved.insert(task.id);
        }
    }

    /// Counts a confirmation towards the hourly limit.
    pub(super) fn count(&mut self, task: &Task, now: Timestamp) {
        self.asked.add(&task.caller, now);
    }

    /// Removes a task that was decided, started or ended. Does nothing if it is not here.
    pub(super) fn remove(&mut self, task: &Task) {
        self.approved.remove(&task.id);
        self.later.remove(&task.id);
        let Some(waiting) = self.waiting.remove(&task.id) else { return };
        self.deadlines.remove(&(waiting.until, task.id));
        if let Entry::Occupied(mut same) = self.by_call.entry(waiting.call) {
            same.get_mut().remove(&task.id);
            if same.get().is_empty() {
                same.remove();
            }
        }
        count_down(&mut self.per_user, &task.caller.uid);
        count_down(&mut self.per_session, &queue_key(&task.caller));
    }

    /// Returns the pending task of the same call at about the same time.
    pub(super) fn find_same(&self, task: &Task) -> Option<TaskId> {
        task.confirmation.as_ref()?;
        let is_same_start = |at: Option<Timestamp>| match (at, task.run_at) {
            (None, None) => true,
            (Some(one), Some(other)) => one.duration_since(other).abs() <= MAX_START_DIFFERENCE,
            _ => false,
        };
        let same = self.by_call.get(&shared_call(task))?;
        same.iter().find(|(_, at)| is_same_start(**at)).map(|(id, _)| *id)
    }

    /// Returns a grant that approves `task` and that `is_believed`.
    pub(super) fn grant_for(
        &self,
        task: &Task,
        now: Timestamp,
        is_believed: impl Fn(&Grant) -> bool,
    ) -> Option<GrantId> {
        self.grants.values().find(|grant| grant.covers(task, now) && is_believed(grant)).map(|grant| grant.id)
    }

    /// Returns the refusal if a human may not be asked about `task` at this time.
    pub(super) fn refuse(&mut self, task: &Task, limits: ConfirmationLimits, now: Timestamp) -> Option<ErrorBody> {
        self.denied.retain(|_, until| *until > now);
        if let Some(until) = self.denied.get(&call_digest(task)) {
            let message = "a human denied the same call a short while ago and is not asked again".to_owned();
            return Some(ErrorBody { message, ..denied(None) }.detail("until", until.to_string()));
        }
        let own = self.per_session.get(&queue_key(&task.caller)).copied().unwrap_or(0);
        let of_user = self.per_user.get(&task.caller.uid).copied().unwrap_or(0);
        let full = if own >= limits.waiting_per_session {
            Some((own, task.caller.client().map_or(" of this session", |_| " of this client")))
        } else if of_user >= limits.waiting_per_user {
            Some((of_user, " of this user"))
        } else if self.waiting.len() >= limits.waiting {
            Some((self.waiting.len(), ""))
        } else {
            None
        };
        if let Some((count, whose)) = full {
            let waits = if count == 1 { "waits" } else { "wait" };
            let message = format!("{}{whose} already {waits} for a human, which is the limit", counted(count, "task"));
            return Some(
                ErrorBody::new(Code::Throttled, message)
                    .hint("wait until they are decided: agent-magic-tool tasks --state awaiting_confirmation"),
            );
        }
        self.asked.refuse(&task.caller, limits.per_hour, now)
    }
}

/// Decreases the count of `key` and removes it when nothing is left.
pub(super) fn count_down<K: Eq + Hash, N: SubAssign + From<u8> + PartialEq>(counts: &mut HashMap<K, N>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= N::from(1);
        if *count == N::from(0) {
            counts.remove(key);
        }
    }
}

/// What identical calls have in common that share one confirmation: in another folder a program does something else, and
/// a human who is asked for one caller with tasks of its own decides nothing for others.
type SharedCall = (Digest, Option<PathBuf>, Option<String>);

fn shared_call(task: &Task) -> SharedCall {
    (call_digest(task), task.caller.folder.clone(), task.caller.owner())
}

/// Returns a digest of what the caller asked for: user, subtool, definition and input. Not of the session or the
/// folder, which a caller could change to ask again after a denial.
fn call_digest(task: &Task) -> Digest {
    Digest::of(&[
        &task.caller.uid.to_be_bytes(),
        task.tool.as_str().as_bytes(),
        task.definition_hash.as_bytes(),
        &serde_json::to_vec(task.asked_input()).expect("a JSON object can be serialized"),
    ])
}

impl Dispatcher {
    /// Returns how many tasks wait for a human.
    pub fn confirmations_pending(&self) -> usize {
        self.confirmations.waiting.len()
    }

    /// Returns how many tasks have ever waited for a human under this executor.
    pub fn confirmations_asked(&self) -> u64 {
        self.confirmations.total_asked
    }

    /// Returns how many of [`Self::confirmations_asked`] are no longer pending.
    pub fn confirmations_answered(&self) -> u64 {
        self.confirmations.total_asked - self.confirmations.waiting.len() as u64
    }

    /// Returns the position of a task among those that wait for a human, counted from 1.
    pub fn queue_position(&self, id: TaskId) -> Option<usize> {
        self.confirmations.waiting.contains_key(&id).then(|| self.confirmations.waiting.range(..=id).count())
    }

    /// Returns the tasks that wait for a human or will, and those that were approved but have not started.
    pub fn approvable(&self) -> impl Iterator<Item = &Task> {
        let confirmations = &self.confirmations;
        let ids = confirmations.waiting.keys().chain(&confirmations.approved).chain(&confirmations.later);
        ids.filter_map(|id| self.open.get(id)).map(|open| &open.task)
    }

    /// Whether there is an approved task that has not started.
    pub fn has_approved(&self) -> bool {
        !self.confirmations.approved.is_empty()
    }

    /// Approves a new task with the grant `id`.
    pub(super) fn use_grant(&mut self, id: GrantId, task: &mut Task, now: Timestamp, effects: &mut Effects) {
        let Some(grant) = self.confirmations.grants.get_mut(&id) else { return };
        let before = grant.uses;
        grant.uses += 1;
        grant.last_use = Some(now);
        effects.changes.push(Change::Grant { grant: Box::new(grant.clone()), expected_uses: Some(before) });
        if let Some(confirmation) = &mut task.confirmation {
            confirmation.decision = Some(Decision::new(now, Verdict::Approved, DecidedBy::Grant(id)));
        }
    }

    pub(super) fn decide(&mut self, request: DecideRequest, now: Timestamp, effects: &mut Effects) -> DecisionResult {
        let refusal =
            self.refusal_of_key(&request, now).or_else(|| self.decision_error(&request.tasks, &request.verdict));
        refusal.map_or(Ok(()), Err)?;
        let proof = self.touch_for(&request, effects)?.map(Box::new);
        let DecideRequest { tasks, verdict, by, note, grant, .. } = request;
        if let Some(mut grant) = grant {
            grant.proof.clone_from(&proof);
            effects.changes.push(Change::Grant { grant: grant.clone(), expected_uses: None });
            self.confirmations.grants.insert(grant.id, *grant);
        }
        self.count_decision(&by, now, effects);
        let mut decision = Decision::new(now, Verdict::Approved, by);
        (decision.reason, decision.proof) = (note, proof);
        Ok(tasks
            .into_iter()
            .map(|(id, _)| (id, self.decide_one(id, &verdict, decision.clone(), now, effects)))
            .collect())
    }

    /// Replaces the confirmation of a task that still waits with one that contains its preview. A task that can only
    /// fail ends.
    pub(super) fn set_preview(
        &mut self,
        id: TaskId,
        expected: Digest,
        confirmation: Box<Confirmation>,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        let Some(open) = self.open.get_mut(&id).filter(|_| self.confirmations.waiting.contains_key(&id)) else {
            return;
        };
        if open.task.confirmation.as_ref().map(|current| current.digest) != Some(expected) {
            return;
        }
        if let Some(ReplacedValues::Impossible(error)) = &confirmation.preview {
            return self.end_unstarted(id, Step::Fail, error.clone(), now, effects);
        }
        open.task.confirmation = Some(confirmation.clone());
        effects.changes.push(Change::ReplaceQuestion { id, expected, confirmation });
        effects.actions.push(Action::Publish(Box::new(open.task.clone())));
    }

    fn decision_error(&self, tasks: &[(TaskId, Digest)], verdict: &HumanVerdict) -> Option<DecisionError> {
        let approves = !matches!(verdict, HumanVerdict::Deny { .. });
        let mut seen = BTreeSet::new();
        tasks.iter().find_map(|(id, digest)| {
            // The first decision on a task is final, also in one request.
            if !seen.insert(*id) {
                return Some(DecisionError::NotPending(*id));
            }
            let waiting = self.open.get(id).filter(|_| self.confirmations.waiting.contains_key(id));
            match waiting.and_then(|open| open.task.confirmation.as_ref()) {
                None => Some(DecisionError::NotPending(*id)),
                Some(current) if current.digest != *digest => Some(DecisionError::Stale(*id)),
                // The human cannot have seen the preview, which is not known yet.
                Some(current) if approves && current.preview == Some(ReplacedValues::Pending) => {
                    Some(DecisionError::Stale(*id))
                }
                Some(_) => None,
            }
        })
    }

    /// Applies `verdict` to one task; `decision` says who decides and how that is proved. Returns its new state.
    fn decide_one(
        &mut self,
        id: TaskId,
        verdict: &HumanVerdict,
        mut decision: Decision,
        now: Timestamp,
        effects: &mut Effects,
    ) -> State {
        let open = self.open.get_mut(&id).expect("`decision_error` checked that the task is open");
        self.confirmations.remove(&open.task);
        self.quotas.remove(&open.task);
        let mut confirmation =
            open.task.confirmation.take().expect("a task that waits for a decision has a confirmation");
        let expected = confirmation.digest;
        let (mut step, mut end, mut input) = (Step::Enqueue, None, None);
        match verdict {
            HumanVerdict::Approve => {}
            HumanVerdict::Deny { reason } => {
                decision.verdict = Verdict::Denied;
                decision.reason.clone_from(reason);
                self.confirmations
                    .denied
                    .insert(call_digest(&open.task), after(now, self.limits.confirmations.cool_down));
                (step, end) = (Step::Deny, Some(failed_end(now, denied(reason.as_deref()))));
            }
            HumanVerdict::Edit { input: edited, files, digest, reason } => {
                decision.verdict = Verdict::Edited;
                decision.reason.clone_from(reason);
                decision.asked_input = Some(std::mem::replace(&mut open.task.input, edited.clone()));
                confirmation.files.clone_from(files);
                confirmation.digest = *digest;
                input = Some(edited.clone());
            }
            HumanVerdict::Answer(answer) => decision.answer = Some(answer.clone()),
        }
        if matches!(verdict, HumanVerdict::Approve | HumanVerdict::Edit { .. }) {
            decision.held_until = open.definition.hold.map(|hold| after(now, hold.get()));
        }
        confirmation.decision = Some(decision);
        let update = ConfirmationUpdate { expected: Some(expected), confirmation: (*confirmation).clone(), input };
        open.task.confirmation = Some(confirmation);
        let not_before = open.task.not_before;
        advance_with(
            &mut open.task,
            step,
            now,
            StepDetails { not_before, end, confirmation: Some(Box::new(update)) },
            effects,
        );
        let task = open.task.clone();
        self.quotas.add(&task);
        if task.state.is_final() {
            self.remove(id, effects);
        } else {
            effects.actions.push(Action::Publish(Box::new(task.clone())));
            self.confirmations.approve(&task);
            self.queue_or_delay(id, now);
        }
        task.state
    }

    /// Revokes a grant. Tasks that it approved and that have not started are denied when their turn comes.
    pub(super) fn revoke(
        &mut self,
        id: GrantId,
        touch: Option<&Assertion>,
        now: Timestamp,
        effects: &mut Effects,
    ) -> DecisionResult {
        // What was allowed with a touch is taken back with one.
        let needs_touch = self.confirmations.grants.get(&id).is_some_and(|grant| self.is_proved(grant));
        if needs_touch {
            self.check_touch(Statement::RevokeGrant { grant: id }, touch, effects)?;
        }
        let grant = self.confirmations.grants.get_mut(&id).ok_or(DecisionError::NotPending(id))?;
        if grant.revoked_at.is_none() {
            grant.revoked_at = Some(now);
            effects.changes.push(Change::Grant { grant: Box::new(grant.clone()), expected_uses: Some(grant.uses) });
        }
        Ok(Vec::new())
    }

    /// Ends the tasks whose confirmation has expired.
    pub(super) fn expire(&mut self, now: Timestamp, effects: &mut Effects) {
        while let Some((at, id)) = self.confirmations.deadlines.first().copied()
            && at <= now
        {
            self.end_before_start(id, Step::Expire, now, expired, effects);
        }
    }

    /// Ends tasks whose definition changed after a human was asked about them.
    pub(super) fn end_drifted(&mut self, ids: &[TaskId], now: Timestamp, effects: &mut Effects) {
        for id in ids {
            self.end_before_start(*id, Step::Fail, now, |_| drifted(), effects);
        }
    }

    pub(super) fn end_before_start(
        &mut self,
        id: TaskId,
        step: Step,
        now: Timestamp,
        error: impl FnOnce(&Confirmation) -> ErrorBody,
        effects: &mut Effects,
    ) {
        let confirmation = self.open.get(&id).and_then(|open| open.task.confirmation.as_deref());
        let Some(error) = confirmation.map(error) else { return };
        self.end_unstarted(id, step, error, now, effects);
    }

    /// Ends a task that waits or is queued.
    pub(super) fn end_unstarted(
        &mut self,
        id: TaskId,
        step: Step,
        error: ErrorBody,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        self.unqueue(id);
        let Some(open) = self.open.get_mut(&id) else { return };
        let end = Some(failed_end(now, error));
        advance_with(&mut open.task, step, now, StepDetails { end, ..StepDetails::default() }, effects);
        self.remove(id, effects);
    }

    /// Takes a task out of the queue, or from among those that wait for a time.
    pub(super) fn unqueue(&mut self, id: TaskId) {
        let Some(open) = self.open.get_mut(&id) else { return };
        self.queue.remove(&open.task.caller, &open.kind(), id);
        if let Some(at) = open.delayed_to.take() {
            self.delayed.remove(&(at, id));
        }
    }
}

pub(super) fn after(at: Timestamp, span: Duration) -> Timestamp {
    at.checked_add(span).unwrap_or(Timestamp::MAX)
}
