//! The approver's keys in the dispatcher: which decisions need a touch, and whether one is valid.
//!
//! The check is made here, by the owner of what is decided: the page only passes on what a browser sent.

use std::collections::BTreeMap;

use definition::Definition;
use ground::base::webauthn::{Assertion, Base64Url, ExpectedOrigin, RelyingParty};
use ground::task::Task;
use ground::task::approver_key::ApproverKeys;
use ground::task::confirmation::{Assurance, Digest};
use ground::task::decide_scope::ScopeJudge;
use ground::task::grant::{Grant, GrantId};
use ground::task::touch::{self, Statement, TouchProof};

use super::{DecideRequest, DecisionError, Dispatcher, Effects, HumanVerdict};
use jiff::Timestamp;

use store::Change;

/// The keys, and for whom they sign.
#[derive(Debug, Default)]
pub(super) struct TouchVerifier {
    /// The id of this executor's record.
    instance: String,
    /// The origin of the page; empty while it is not served, so that no signature is valid.
    origin: String,
    keys: ApproverKeys,
    /// Whether what is grave needs a touch: a key is enrolled, or keys were lost.
    is_demanded: bool,
    /// The last counter of each key. A key that was enrolled once stays here.
    counters: BTreeMap<Base64Url, u32>,
}

/// What a browser needs to have a decision signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TouchRequest {
    pub challenge: Digest,
    /// The keys that may sign it.
    pub credentials: Vec<Base64Url>,
}

impl Dispatcher {
    /// Says which page the approver uses.
    pub fn set_page(&mut self, instance: String, origin: String) {
        (self.touch.instance, self.touch.origin) = (instance, origin);
    }

    /// Replaces the enrolled keys.
    pub fn set_approver_keys(&mut self, keys: ApproverKeys) {
        self.touch.keys = keys;
    }

    /// Has what destroys something or goes outward need a touch, or no longer.
    pub fn demand_touch(&mut self, is_demanded: bool) {
        self.touch.is_demanded = is_demanded;
    }

    /// The enrolled keys.
    pub fn approver_keys(&self) -> &ApproverKeys {
        &self.touch.keys
    }

    /// Restores the counters of all keys that were ever enrolled.
    pub fn restore_key_counters(&mut self, counters: impl IntoIterator<Item = (Base64Url, u32)>) {
        self.touch.counters = counters.into_iter().collect();
    }

    /// Whether any key was ever enrolled.
    pub fn knows_keys(&self) -> bool {
        !self.touch.counters.is_empty()
    }

    /// Remembers a new key, whether or not it is still enrolled later.
    pub fn add_key(&mut self, credential: &Base64Url, counter: u32, effects: &mut Effects) {
        self.touch.counters.insert(credential.clone(), counter);
        effects.changes.push(Change::KeyCounter { credential: credential.clone(), counter });
    }

    /// Checks that an enrolled key signed `statement` on the page as it is served now. Each signature counts once: the
    /// key's counter goes up, and what is decided changes with it.
    pub fn check_touch(
        &mut self,
        statement: Statement,
        touch: Option<&Assertion>,
        effects: &mut Effects,
    ) -> Result<TouchProof, DecisionError> {
        let verifier = &mut self.touch;
        let challenge = statement.challenge(&verifier.instance);
        let Some(assertion) = touch else {
            let credentials = verifier.keys.keys.iter().map(|key| key.credential.clone()).collect();
            return Err(DecisionError::NeedsTouch(Box::new(TouchRequest { challenge, credentials })));
        };
        let key = verifier.keys.find(&assertion.credential).ok_or(DecisionError::UnknownKey)?;
        let party = RelyingParty {
            id: touch::relying_party_id(&verifier.instance),
            origin: ExpectedOrigin::Exactly(verifier.origin.clone()),
        };
        let last = verifier.counters.get(&key.credential).copied().unwrap_or(key.counter).max(key.counter);
        let counter = assertion.verify(&party, challenge.as_bytes(), &key.credential, &key.public_key, Some(last));
        let counter = counter.map_err(DecisionError::BadTouch)?;
        let proof = TouchProof {
            instance: verifier.instance.clone(),
            statement,
            key: key.name.clone(),
            public_key: key.public_key.clone(),
            assertion: assertion.clone(),
        };
        verifier.counters.insert(assertion.credential.clone(), counter);
        effects.changes.push(Change::KeyCounter { credential: assertion.credential.clone(), counter });
        Ok(proof)
    }

    /// Checks the touch for a decision, if it needs one or came with one.
    pub(super) fn touch_for(
        &mut self,
        request: &DecideRequest,
        effects: &mut Effects,
    ) -> Result<Option<TouchProof>, DecisionError> {
        let is_denial = matches!(request.verdict, HumanVerdict::Deny { .. });
        let is_needed = !is_denial
            && request
                .tasks
                .iter()
                .filter_map(|(id, _)| self.open.get(id))
                .any(|open| self.needs_touch(&open.task, &open.definition));
        match statement(request) {
            Some(statement) if is_needed || request.touch.is_some() => {
                self.check_touch(statement, request.touch.as_ref(), effects).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Whether what is grave needs a touch.
    pub(super) fn demands_touch(&self) -> bool {
        self.touch.is_demanded
    }

    /// What the scope of an API key is judged by.
    pub(super) fn scope_judge(&self, now: Timestamp) -> ScopeJudge<'_> {
        let TouchVerifier { instance, keys, is_demanded, .. } = &self.touch;
        ScopeJudge { instance, keys, is_touch_demanded: *is_demanded, now }
    }

    /// Whether an approval of this task needs a touch: its definition or a rule demands it, or a key is enrolled and the
    /// task destroys something or goes outward.
    pub(super) fn needs_touch(&self, task: &Task, definition: &Definition) -> bool {
        let demanded = task.confirmation.as_ref().and_then(|confirmation| confirmation.needs);
        demanded.is_some_and(|needs| needs > Assurance::Page) || self.touch.is_demanded && definition.is_grave()
    }

    /// Returns a grant that approves `task` and that the keys stand behind.
    pub(super) fn believed_grant(&self, task: &Task, definition: &Definition, now: Timestamp) -> Option<GrantId> {
        task.confirmation.as_ref()?;
        let needs_touch = self.needs_touch(task, definition);
        self.confirmations.grant_for(task, now, |grant| self.is_believed(grant, needs_touch))
    }

    /// Whether a grant was made with a touch, and there is a key to end it with.
    pub(super) fn is_proved(&self, grant: &Grant) -> bool {
        grant.proof.is_some() && !self.touch.keys.is_empty()
    }

    /// Whether the keys still stand behind a grant, and whether it approves what needs a touch.
    pub(super) fn is_believed(&self, grant: &Grant, needs_touch: bool) -> bool {
        let keys = &self.touch.keys;
        match &grant.proof {
            _ if keys.reset_at.is_some_and(|reset| grant.made_at <= reset) => false,
            Some(proof) => keys.find(&proof.assertion.credential).is_some(),
            None => !needs_touch,
        }
    }
}

/// What is signed for a decision; `None` for a denial, which needs no touch.
fn statement(request: &DecideRequest) -> Option<Statement> {
    let first = request.tasks.first().copied();
    match (&request.verdict, &request.grant) {
        (HumanVerdict::Deny { .. }, _) => None,
        (HumanVerdict::Approve, None) => Some(Statement::Approve { tasks: request.tasks.clone() }),
        (HumanVerdict::Approve, Some(grant)) => {
            first.map(|(task, shown)| Statement::Remember { task, shown, grant: grant.content() })
        }
        (HumanVerdict::Edit { digest, .. }, _) => {
            first.map(|(task, shown)| Statement::Edit { task, shown, edited: *digest })
        }
        (HumanVerdict::Answer(answer), _) => {
            first.map(|(task, shown)| Statement::Answer { task, shown, answer: touch::digest_of_answer(answer) })
        }
    }
}

#[cfg(test)]
mod tests;
