//! The scope `decide`: that an API key may decide in the approver's place, given and taken back on the page.
//!
//! It belongs to one key, by its hash: another key under the same name has it not. This module only holds data and judges
//! it: the dispatcher keeps the scopes, `config/api_keys.rs` says which keys there are.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use crate::task::api_key::ApiKeyRef;
use crate::task::approver_key::ApproverKeys;
use crate::task::touch::{Statement, TouchProof};

/// That an API key may decide.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecideScope {
    pub key: ApiKeyRef,
    /// How often it was given to this key, with this time: a touch for an earlier time gives nothing.
    pub gift: u32,
    pub given_at: Timestamp,
    /// The session of the page that gave it.
    pub given_by: String,
    /// When the key expired, as it was shown: a later end in the file of keys does not count.
    pub expires_at: Option<Timestamp>,
    pub taken_back_at: Option<Timestamp>,
    /// How many decisions it has made.
    #[serde(default)]
    pub decisions: u32,
    pub last_decision: Option<Timestamp>,
    /// The touch that gave it, if the approver has keys.
    pub proof: Option<Box<TouchProof>>,
}

/// Whether a scope holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScopeStatus {
    Live,
    Expired,
    TakenBack,
    /// The approver's keys do not stand behind it.
    Unproved,
}

/// What a scope is judged by.
#[derive(Debug, Clone, Copy)]
pub struct ScopeJudge<'a> {
    /// The id of the executor's record.
    pub instance: &'a str,
    pub keys: &'a ApproverKeys,
    /// Whether the approver has keys, so that only a touch gives the scope.
    pub is_touch_demanded: bool,
    pub now: Timestamp,
}

impl DecideScope {
    pub fn status(&self, judge: ScopeJudge<'_>) -> ScopeStatus {
        if self.taken_back_at.is_some() {
            ScopeStatus::TakenBack
        } else if self.expires_at.is_some_and(|at| at <= judge.now) {
            ScopeStatus::Expired
        } else if !self.is_believed(judge) {
            ScopeStatus::Unproved
        } else {
            ScopeStatus::Live
        }
    }

    /// What is signed to give it.
    pub fn statement(&self) -> Statement {
        Statement::GiveScope { key: self.key.clone(), gift: self.gift, expires_at: self.expires_at }
    }

    /// Whether the keys stand behind it: with a key of the approver, a program that can write the record gives no scope.
    fn is_believed(&self, judge: ScopeJudge<'_>) -> bool {
        if judge.keys.reset_at.is_some_and(|reset| self.given_at <= reset) {
            return false;
        }
        let Some(proof) = &self.proof else { return !judge.is_touch_demanded };
        let Some(key) = judge.keys.find(&proof.assertion.credential) else { return false };
        proof.instance == judge.instance && proof.statement == self.statement() && proof.check(&key.public_key).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;
    use crate::base::webauthn::soft_key::{Ceremony, SoftKey};
    use crate::base::webauthn::{Assertion, Base64Url, PublicKey};
    use crate::task::approver_key::{ApproverKey, EnrolledBy};
    use crate::task::touch::relying_party_id;

    const INSTANCE: &str = "0123456789abcdef";

    fn scope() -> DecideScope {
        DecideScope {
            key: ApiKeyRef { name: "phone".to_owned(), hash: "ab".repeat(32) },
            gift: 1,
            given_at: Timestamp::UNIX_EPOCH,
            given_by: "s".to_owned(),
            expires_at: None,
            taken_back_at: None,
            decisions: 0,
            last_decision: None,
            proof: None,
        }
    }

    fn enrolled(soft: &SoftKey) -> ApproverKey {
        ApproverKey {
            name: "laptop".to_owned(),
            credential: Base64Url(soft.credential.clone()),
            public_key: PublicKey::parse(&soft.cose()).expect("a key"),
            counter: 0,
            enrolled_at: Timestamp::UNIX_EPOCH,
            enrolled_by: EnrolledBy::FirstRun,
        }
    }

    fn proof(scope: &DecideScope, soft: &SoftKey) -> Box<TouchProof> {
        let challenge = scope.statement().challenge(INSTANCE);
        let party = relying_party_id(INSTANCE);
        let signed = soft.sign(&Ceremony::get(&party, &format!("http://q.{party}:4711"), challenge.as_bytes()));
        let assertion = Assertion {
            credential: Base64Url(soft.credential.clone()),
            client_data: Base64Url(signed.client_data),
            authenticator_data: Base64Url(signed.authenticator_data),
            signature: Base64Url(signed.signature),
        };
        let (public_key, key) = (enrolled(soft).public_key, "laptop".to_owned());
        Box::new(TouchProof { instance: INSTANCE.to_owned(), statement: scope.statement(), key, public_key, assertion })
    }

    #[test]
    fn a_scope_ends_when_it_expires_or_is_taken_back() {
        let keys = ApproverKeys::default();
        let judge = |now| ScopeJudge { instance: INSTANCE, keys: &keys, is_touch_demanded: false, now };
        let later = Timestamp::UNIX_EPOCH + SignedDuration::from_hours(1);
        assert_eq!(scope().status(judge(later)), ScopeStatus::Live);
        let until = DecideScope { expires_at: Some(later), ..scope() };
        assert_eq!(until.status(judge(Timestamp::UNIX_EPOCH)), ScopeStatus::Live);
        assert_eq!(until.status(judge(later)), ScopeStatus::Expired);
        assert_eq!(DecideScope { taken_back_at: Some(later), ..until }.status(judge(later)), ScopeStatus::TakenBack);
    }

    #[test]
    fn with_a_key_of_the_approver_only_its_signature_over_this_very_key_gives_the_scope() {
        let soft = SoftKey::es256("a");
        let mut keys = ApproverKeys { keys: vec![enrolled(&soft)], reset_at: None };
        let status = |scope: &DecideScope, keys: &ApproverKeys| {
            scope.status(ScopeJudge { instance: INSTANCE, keys, is_touch_demanded: true, now: Timestamp::UNIX_EPOCH })
        };
        assert_eq!(status(&scope(), &keys), ScopeStatus::Unproved, "a row that a program wrote");
        let proved = DecideScope { proof: Some(proof(&scope(), &soft)), ..scope() };
        assert_eq!(status(&proved, &keys), ScopeStatus::Live);
        for other in [
            DecideScope { key: ApiKeyRef { hash: "cd".repeat(32), ..scope().key }, ..proved.clone() },
            DecideScope { key: ApiKeyRef { name: "other".to_owned(), ..scope().key }, ..proved.clone() },
            DecideScope { expires_at: Some(Timestamp::MAX), ..proved.clone() },
            DecideScope { gift: 2, ..proved.clone() },
            DecideScope { proof: Some(proof(&scope(), &SoftKey::es256("b"))), ..scope() },
        ] {
            assert_eq!(status(&other, &keys), ScopeStatus::Unproved, "{other:?}");
        }
        let mut forged = proved.clone();
        forged.key.hash = "cd".repeat(32);
        let statement = forged.statement();
        forged.proof.as_mut().expect("a proof").statement = statement;
        assert_eq!(status(&forged, &keys), ScopeStatus::Unproved, "the signature is over another key");
        keys.reset_at = Some(Timestamp::UNIX_EPOCH);
        assert_eq!(status(&proved, &keys), ScopeStatus::Unproved, "root removed all keys since");
        keys = ApproverKeys::default();
        assert_eq!(status(&proved, &keys), ScopeStatus::Unproved, "the key that gave it is revoked");
    }
}
