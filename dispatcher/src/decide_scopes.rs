//! Which API keys may decide, in the dispatcher: gives and takes back the scope, and judges each decision that a key makes.
//!
//! The page asks for both on behalf of a human. A key decides less than the page: it remembers and edits nothing, what
//! needs a touch it cannot approve, and what it asked for itself it can only deny.

use std::collections::{BTreeMap, BTreeSet};

use ground::base::webauthn::Assertion;
use ground::task::Task;
use ground::task::api_key::ApiKeyRef;
use ground::task::confirmation::DecidedBy;
use ground::task::decide_scope::{DecideScope, ScopeStatus};
use jiff::Timestamp;
use protocol::code::Code;
use protocol::error::ErrorBody;
use protocol::task::TaskId;
use store::Change;

use super::{DecideRequest, DecisionError, Dispatcher, Effects, HumanVerdict};

/// The scopes, by the hash of their key.
pub(super) type DecideScopes = BTreeMap<String, DecideScope>;

/// What a human says on the page about an API key.
#[derive(Debug)]
pub enum ScopeChange {
    /// It may decide, until it expires.
    Give { key: ApiKeyRef, expires_at: Option<Timestamp>, session: String, touch: Option<Assertion> },
    /// The one with this hash may no longer decide.
    TakeBack { hash: String },
}

impl Dispatcher {
    /// Restores the stored scopes.
    pub fn restore_decide_scopes(&mut self, scopes: Vec<DecideScope>) {
        self.confirmations.decide_scopes = scopes.into_iter().map(|scope| (scope.key.hash.clone(), scope)).collect();
    }

    /// Only these API keys decide, and only what they approved starts: others were revoked.
    pub fn set_api_keys(&mut self, keys: Vec<ApiKeyRef>) {
        self.confirmations.api_keys = keys;
    }

    /// Only tasks of these clients of API keys start: the keys of others were revoked or have expired.
    pub fn set_key_clients(&mut self, clients: BTreeSet<String>) {
        self.key_clients = Some(clients);
    }

    /// Whether it matters which API keys there are: a scope was given, or there were tasks of their clients.
    pub fn needs_api_keys(&self) -> bool {
        self.has_tasks_of_keys || !self.confirmations.decide_scopes.is_empty()
    }

    /// Whether the task is of a client whose key was revoked or has expired.
    pub(super) fn is_of_ended_key(&self, task: &Task) -> bool {
        let (Some(key), Some(clients)) = (task.caller.api_key(), &self.key_clients) else { return false };
        !clients.contains(key)
    }

    pub(super) fn change_scope(
        &mut self,
        change: ScopeChange,
        now: Timestamp,
        effects: &mut Effects,
    ) -> Result<(), DecisionError> {
        match change {
            ScopeChange::Give { key, expires_at, session: given_by, touch } => {
                let before = self.confirmations.decide_scopes.get(&key.hash);
                let scope = DecideScope {
                    key,
                    gift: before.map_or(0, |before| before.gift).saturating_add(1),
                    given_at: now,
                    given_by,
                    expires_at,
                    taken_back_at: None,
                    decisions: before.map_or(0, |before| before.decisions),
                    last_decision: before.and_then(|before| before.last_decision),
                    proof: None,
                };
                self.give_scope(scope, touch.as_ref(), effects)
            }
            ScopeChange::TakeBack { hash } => self.take_scope(&hash, now, effects),
        }
    }

    /// Lets an API key decide. If the approver has keys, this needs a touch.
    fn give_scope(
        &mut self,
        scope: DecideScope,
        touch: Option<&Assertion>,
        effects: &mut Effects,
    ) -> Result<(), DecisionError> {
        let is_signed = self.demands_touch() || touch.is_some();
        let proof = is_signed.then(|| self.check_touch(scope.statement(), touch, effects)).transpose()?;
        self.save_scope(DecideScope { proof: proof.map(Box::new), ..scope }, effects);
        Ok(())
    }

    /// Takes the scope back. That needs no touch: it allows nothing.
    fn take_scope(&mut self, hash: &str, now: Timestamp, effects: &mut Effects) -> Result<(), DecisionError> {
        let Some(scope) = self.confirmations.decide_scopes.get(hash) else {
            let error = ErrorBody::new(Code::NotFound, "this API key may not decide").hint("reload the page");
            return Err(error.into());
        };
        let taken_back_at = scope.taken_back_at.or(Some(now));
        self.save_scope(DecideScope { taken_back_at, ..scope.clone() }, effects);
        Ok(())
    }

    /// Why the decision is not made, if an API key makes it and may not.
    pub(super) fn refusal_of_key(&self, request: &DecideRequest, now: Timestamp) -> Option<DecisionError> {
        let DecidedBy::ApiKey(key) = &request.by else { return None };
        let is_more = request.grant.is_some() || matches!(request.verdict, HumanVerdict::Edit { .. });
        if is_more || !self.may_decide(key, now) {
            return Some(DecisionError::NoScope);
        }
        let is_own = |id: &TaskId| self.open.get(id).is_some_and(|open| key.is_of(&open.task.caller));
        let asked_itself = !request.verdict.declines() && request.tasks.iter().any(|(id, _)| is_own(id));
        asked_itself.then_some(DecisionError::OwnQuestion)
    }

    /// Whether what a key approved at that time may start: it has had its scope since, and still decides.
    pub(super) fn still_decides(&self, key: &ApiKeyRef, decided_at: Timestamp, now: Timestamp) -> bool {
        let scope = self.confirmations.decide_scopes.get(&key.hash);
        scope.is_some_and(|scope| scope.given_at <= decided_at) && self.may_decide(key, now)
    }

    /// Whether a key decides now: it was neither revoked nor has it expired, and its scope holds.
    fn may_decide(&self, key: &ApiKeyRef, now: Timestamp) -> bool {
        let scope = self.confirmations.decide_scopes.get(&key.hash).filter(|scope| scope.key == *key);
        let is_live = scope.is_some_and(|scope| scope.status(self.scope_judge(now)) == ScopeStatus::Live);
        is_live && self.confirmations.api_keys.contains(key)
    }

    /// Remembers that an API key has decided, in the commit of its decision.
    pub(super) fn count_decision(&mut self, by: &DecidedBy, now: Timestamp, effects: &mut Effects) {
        let DecidedBy::ApiKey(key) = by else { return };
        let Some(scope) = self.confirmations.decide_scopes.get(&key.hash) else { return };
        let decisions = scope.decisions.saturating_add(1);
        self.save_scope(DecideScope { decisions, last_decision: Some(now), ..scope.clone() }, effects);
    }

    fn save_scope(&mut self, scope: DecideScope, effects: &mut Effects) {
        effects.changes.push(Change::DecideScope(Box::new(scope.clone())));
        self.confirmations.decide_scopes.insert(scope.key.hash.clone(), scope);
    }
}

#[cfg(test)]
mod tests;
