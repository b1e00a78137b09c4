//! Touch: what a key signs when a human decides, and the check of that from the record alone.
//!
//! A key signs the digest of a [`Statement`], which says what is decided and carries the digest of what was shown. The
//! statement, the signature and the public key are kept with the decision as a [`TouchProof`], so that the record can
//! be checked later, without the executor and without the page.

use jiff::Timestamp;
use protocol::task::TaskId;
use serde::{Deserialize, Serialize};

use crate::base::webauthn::{Assertion, Base64Url, ExpectedOrigin, PublicKey, RelyingParty, WebauthnError};
use crate::task::Task;
use crate::task::api_key::ApiKeyRef;
use crate::task::confirmation::{Decision, Digest, Verdict};
use crate::task::grant::{Grant, GrantId};

/// Identifies the layout of what is signed; change it whenever the layout changes.
const LAYOUT: &str = "agent-magic-tool/touch/1";

/// What a human decides with a touch. Its digest is the challenge that the key signs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Statement {
    /// Each of these tasks may run as it was shown.
    Approve { tasks: Vec<(TaskId, Digest)> },
    /// The task may run with another input, which gives the digest `edited`.
    Edit { task: TaskId, shown: Digest, edited: Digest },
    /// The task may run as it was shown, and so may later calls that the grant with this content covers.
    Remember { task: TaskId, shown: Digest, grant: Digest },
    /// The answer to the task's question.
    Answer { task: TaskId, shown: Digest, answer: Digest },
    /// The grant ends.
    RevokeGrant { grant: GrantId },
    /// The task, whose outcome is unknown, had its effect or had not.
    Resolve { task: TaskId, happened: bool, note: Option<String> },
    /// Another key may approve as well.
    EnrolKey { name: String, credential: Base64Url, public_key: PublicKey },
    /// A key may no longer approve.
    RevokeKey { credential: Base64Url },
    /// An API key may decide what needs no touch, until it expires; for the `gift`th time.
    GiveScope { key: ApiKeyRef, gift: u32, expires_at: Option<Timestamp> },
}

/// The host name that keys of this executor's record are bound to. It stays the same for good.
pub fn relying_party_id(instance: &str) -> String {
    format!("amt-{}.localhost", instance.get(..12).unwrap_or(instance))
}

impl Statement {
    /// The challenge that a key signs. `instance` is the id of the executor's record.
    pub fn challenge(&self, instance: &str) -> Digest {
        let statement = serde_json::to_vec(self).expect("a statement is plain JSON");
        Digest::of(&[LAYOUT.as_bytes(), instance.as_bytes(), &statement])
    }
}

/// That a key signed a statement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TouchProof {
    /// The id of the executor's record.
    pub instance: String,
    pub statement: Statement,
    /// The name of the key at that time.
    pub key: String,
    pub public_key: PublicKey,
    pub assertion: Assertion,
}

/// Why a decision in the record is not proved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unproved {
    #[error("no human decided it")]
    NotDecided,
    #[error("it was decided on the page without a touch of a key")]
    NoProof,
    #[error("the record of the task is not what the decision is bound to")]
    RecordChanged,
    #[error("the key signed another decision")]
    OtherDecision,
    #[error("the signature does not hold: {0}")]
    Signature(#[from] WebauthnError),
}

impl TouchProof {
    /// Checks that `public_key` signed the statement, on a page of this record.
    pub fn check(&self, public_key: &PublicKey) -> Result<(), WebauthnError> {
        let party = RelyingParty { id: relying_party_id(&self.instance), origin: ExpectedOrigin::BelowRelyingParty };
        let challenge = self.statement.challenge(&self.instance);
        let assertion = &self.assertion;
        assertion.verify(&party, challenge.as_bytes(), &assertion.credential, public_key, None).map(drop)
    }
}

/// The proof that a human approved `task` as it is recorded. `grant` is the one that approved it, if one did.
///
/// Whether the key is to be believed is for the caller to say, and that it signed: see [`TouchProof::check`].
pub fn proof_of<'a>(task: &'a Task, grant: Option<&'a Grant>) -> Result<&'a TouchProof, Unproved> {
    let confirmation = task.confirmation.as_deref().ok_or(Unproved::NotDecided)?;
    let decision = confirmation.decision.as_ref().ok_or(Unproved::NotDecided)?;
    if let Some(grant) = grant {
        let proof = grant.proof.as_deref().ok_or(Unproved::NoProof)?;
        let covers =
            matches!(&proof.statement, Statement::Remember { grant: content, .. } if *content == grant.content());
        return if covers && grant.matches(task) { Ok(proof) } else { Err(Unproved::OtherDecision) };
    }
    let proof = decision.proof.as_deref().ok_or(Unproved::NoProof)?;
    if confirmation.digest_of(&proof.instance, task, &task.input) != confirmation.digest {
        return Err(Unproved::RecordChanged);
    }
    if covers(&proof.statement, task.id, confirmation.digest, decision) {
        Ok(proof)
    } else {
        Err(Unproved::OtherDecision)
    }
}

/// Whether a statement is this decision on a task, whose digest is that of what runs.
fn covers(statement: &Statement, id: TaskId, digest: Digest, decision: &Decision) -> bool {
    let is_edited = decision.verdict == Verdict::Edited;
    let answer = decision.answer.as_ref().map(digest_of_answer);
    match statement {
        Statement::Approve { tasks } => !is_edited && answer.is_none() && tasks.contains(&(id, digest)),
        Statement::Edit { task, edited, .. } => is_edited && (*task, *edited) == (id, digest),
        Statement::Remember { task, shown, .. } => !is_edited && answer.is_none() && (*task, *shown) == (id, digest),
        Statement::Answer { task, shown, answer: signed } => (*task, *shown) == (id, digest) && answer == Some(*signed),
        _ => false,
    }
}

/// The digest of an answer to a question.
pub fn digest_of_answer(answer: &serde_json::Value) -> Digest {
    Digest::of(&[&serde_json::to_vec(answer).expect("JSON values serialize")])
}
