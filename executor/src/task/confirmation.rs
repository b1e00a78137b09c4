//! Confirmation: what a human was asked about one task, and what they said.
//!
//! The human's yes is bound to a [`Digest`] over exactly what they were shown. Whoever decides sends it
//! back, and a decision about anything else is stale. Nothing here asks anybody: the dispatcher keeps
//! the tasks that wait, and the page shows them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::Timestamp;
use protocol::clock::MonotonicTime;
use protocol::code::Code;
use protocol::digest;
use protocol::error::ErrorBody;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::task::Task;
use crate::task::effect::EffectClass;
use crate::task::fingerprint::Fingerprint;

/// The layout of what a digest is taken over; another layout is another word.
const LAYOUT: &str = "agent-magic-tool/confirmation/1";

/// How much an agent may say in its own favour.
pub const MAX_REASON_CHARS: usize = 280;

/// SHA-256 over everything that a yes is bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest([u8; 32]);

#[derive(Debug, thiserror::Error)]
#[error("a digest has 64 hexadecimal digits")]
pub struct InvalidDigest;

impl Digest {
    /// Each part with its length before it, so that no two lists of parts have the same bytes.
    pub fn of(parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Self(hash.finalize().into())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&digest::hex(&self.0))
    }
}

impl FromStr for Digest {
    type Err = InvalidDigest;

    fn from_str(text: &str) -> Result<Self, InvalidDigest> {
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(InvalidDigest);
        }
        let mut bytes = [0; 32];
        for (place, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * place..2 * place + 2], 16).map_err(|_| InvalidDigest)?;
        }
        Ok(Self(bytes))
    }
}

impl Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// What a human is asked about one task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Confirmation {
    /// The rule that asks, in words.
    pub why: String,
    /// What the agent says for itself; nobody checked it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub asked_at: Timestamp,
    /// The same by a clock that nobody sets: the time of day may be set back to have more of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_moment: Option<MonotonicTime>,
    /// A yes later than this is none, and a task that has not started by then does not.
    pub expires_at: Timestamp,
    /// Another one for each question: a yes to one is no yes to its twin.
    pub nonce: String,
    /// Of the task as it is now; an edited one has another.
    pub digest: Digest,
    /// The files that would be executed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<Fingerprint>,
    /// What would be replaced, where the subtool says how to look it up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview: Option<ReplacedValues>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
}

/// What is there that would be replaced.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplacedValues {
    /// It is being looked up; nobody is shown the question before that is done.
    Pending,
    /// By field of the input.
    Fields(Map<String, Value>),
    /// It could not be looked up, because of this.
    Unknown(String),
}

/// What was said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decision {
    pub at: Timestamp,
    pub verdict: Verdict,
    pub by: DecidedBy,
    /// In the human's words, for the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What the agent had asked for, where the human changed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_input: Option<Map<String, Value>>,
    /// To a question: what the human answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Value>,
    /// Room for a proof that a human was there: a signature over the digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Approved,
    /// Approved, with another input than was asked for.
    Edited,
    Denied,
}

/// Who decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecidedBy {
    /// Somebody who was logged in to the page, in the session of this name.
    Page(String),
    /// A yes that was remembered.
    Grant(crate::task::grant::GrantId),
}

/// How sure it must be that it was a human who said yes, weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Assurance {
    /// Somebody with a session of the page.
    Page,
    /// As `page`, where secrets are sealed under a key of the human's.
    Sealed,
    /// A touch of a key that signs what was shown.
    Touch,
    /// The executor runs as another user than the agent.
    OtherUser,
    /// A second device shows it, and signs it.
    SecondDevice,
}

/// What this executor can give.
pub const ASSURANCE: Assurance = Assurance::Page;

/// What a question is made of, beside the task.
#[derive(Debug, Clone)]
pub struct ConfirmationRequest {
    pub why: String,
    pub reason: Option<String>,
    /// Of this executor's record: a yes given to another one is none here.
    pub instance: String,
    pub wait: Duration,
    pub files: Vec<Fingerprint>,
    /// Whether it is looked up what would be replaced.
    pub has_preview: bool,
}

impl Decision {
    pub fn new(at: Timestamp, verdict: Verdict, by: DecidedBy) -> Self {
        Self { at, verdict, by, reason: None, asked_input: None, answer: None, proof: None }
    }
}

impl Confirmation {
    /// Asks about `task`, as it is.
    pub fn ask(task: &Task, asking: ConfirmationRequest, nonce: String, now: Timestamp) -> Self {
        let ConfirmationRequest { why, reason, instance, wait, files, has_preview } = asking;
        let expires_at = now.checked_add(wait).unwrap_or(Timestamp::MAX);
        let mut confirmation = Self {
            why,
            reason: reason.map(|reason| reason.chars().take(MAX_REASON_CHARS).collect()),
            asked_at: now,
            asked_moment: None,
            expires_at,
            nonce,
            digest: Digest([0; 32]),
            files,
            preview: has_preview.then_some(ReplacedValues::Pending),
            decision: None,
        };
        confirmation.digest = confirmation.digest_of(&instance, task, &task.input);
        confirmation
    }

    /// What a yes to `task` with this input is bound to.
    pub fn digest_of(&self, instance: &str, task: &Task, input: &Map<String, Value>) -> Digest {
        let text = |replaced: &ReplacedValues| serde_json::to_vec(replaced).expect("JSON can be written");
        let effect = match task.effect {
            EffectClass::Read => "read",
            EffectClass::Idempotent => "idempotent",
            EffectClass::Verifiable => "verifiable",
            EffectClass::Once => "once",
        };
        let folder = task.caller.folder.as_ref().map(|folder| folder.as_os_str().as_encoded_bytes());
        Digest::of(&[
            LAYOUT.as_bytes(),
            instance.as_bytes(),
            task.id.to_string().as_bytes(),
            task.tool.as_str().as_bytes(),
            task.definition_hash.as_bytes(),
            &serde_json::to_vec(input).expect("JSON can be written"),
            &task.caller.uid.to_be_bytes(),
            // What is absent is not the same as what is empty.
            &[u8::from(folder.is_some())],
            folder.unwrap_or_default(),
            &[u8::from(task.caller.session.is_some())],
            task.caller.session.as_deref().unwrap_or_default().as_bytes(),
            effect.as_bytes(),
            &serde_json::to_vec(&self.files).expect("fingerprints are plain JSON"),
            &self.preview.as_ref().map(text).unwrap_or_default(),
            &self.expires_at.as_microsecond().to_be_bytes(),
            self.nonce.as_bytes(),
        ])
    }

    /// The same question, once it is known what would be replaced.
    #[must_use]
    pub fn with_preview(&self, instance: &str, task: &Task, preview: ReplacedValues) -> Self {
        let mut shown = Self { preview: Some(preview), ..self.clone() };
        shown.digest = shown.digest_of(instance, task, &task.input);
        shown
    }

    /// Whether a human said yes, or a grant did.
    pub fn is_approved(&self) -> bool {
        self.decision.as_ref().is_some_and(|decision| decision.verdict != Verdict::Denied)
    }
}

/// A text that nobody can guess, of 64 hexadecimal digits.
pub fn nonce() -> String {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).expect("the system has a source of randomness");
    digest::hex(&bytes)
}

/// How a task ends that a human said no to.
pub(crate) fn denied(reason: Option<&str>) -> ErrorBody {
    let message = reason.map_or_else(
        || "a human was asked, and said no".to_owned(),
        |reason| format!("a human was asked, and said no: {reason}"),
    );
    ErrorBody::new(Code::Denied, message).hint(
        "do not run it again, nor another way around it; acknowledge the refusal, and ask the user whether to leave it \
         out, to change it, or to let them do it by hand",
    )
}

/// How a task ends that nobody decided about.
pub(crate) fn expired(confirmation: &Confirmation) -> ErrorBody {
    let waited = confirmation.expires_at.duration_since(confirmation.asked_at);
    let waited =
        protocol::duration::PositiveDuration::from_millis(u64::try_from(waited.as_millis()).unwrap_or(u64::MAX));
    let message = if confirmation.is_approved() {
        format!("it was approved, and could not start within {waited} of being asked")
    } else {
        format!("nobody answered within {waited}")
    };
    ErrorBody::new(Code::Expired, message).hint(
        "this is not a refusal: tell the user that it needs their yes on the page that `agent-magic-tool executor page` \
         opens; you may ask once more",
    )
}

/// How a task ends whose definition is no longer the one that was shown.
pub(crate) fn drifted() -> ErrorBody {
    ErrorBody::new(Code::Drifted, "its definition changed or is gone since a human was asked: nothing was done")
        .hint("run it again if it is still wanted: the human will be asked about it as it is now")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn asked(task: &Task) -> Confirmation {
        let asking = ConfirmationRequest {
            why: "w".to_owned(),
            reason: None,
            instance: "i".to_owned(),
            wait: Duration::from_hours(1),
            files: Vec::new(),
            has_preview: false,
        };
        Confirmation::ask(task, asking, "n".to_owned(), task.created_at)
    }

    #[test]
    fn whatever_is_changed_a_yes_is_bound_to_another_digest() {
        let task = crate::store::contract::task(None);
        let first = asked(&task);
        let Value::Object(other_number) = serde_json::json!({"q": "年度报告", "n": 9_007_199_254_740_992_i64})
        else {
            unreachable!()
        };
        let mut others = vec![
            Task { id: protocol::task::TaskId::new(), ..task.clone() },
            Task { tool: "other".parse().expect("a name"), ..task.clone() },
            Task { definition_hash: "abd".to_owned(), ..task.clone() },
            Task { effect: EffectClass::Read, ..task.clone() },
            Task { input: other_number, ..task.clone() },
        ];
        for change in [
            |caller: &mut protocol::caller::Caller| caller.uid += 1,
            |caller: &mut protocol::caller::Caller| caller.session = None,
            |caller: &mut protocol::caller::Caller| caller.session = Some(String::new()),
            |caller: &mut protocol::caller::Caller| caller.folder = None,
        ] {
            let mut other = task.clone();
            change(&mut other.caller);
            others.push(other);
        }
        let mut digests: Vec<_> = others.iter().map(|task| first.digest_of("i", task, &task.input)).collect();
        digests.push(first.digest);
        digests.push(first.digest_of("j", &task, &task.input));
        for change in [
            |confirmation: &mut Confirmation| confirmation.nonce.push('x'),
            |confirmation: &mut Confirmation| confirmation.expires_at += jiff::SignedDuration::from_micros(1),
            |confirmation: &mut Confirmation| confirmation.preview = Some(ReplacedValues::Fields(Map::new())),
            |confirmation: &mut Confirmation| {
                confirmation.files.push(Fingerprint { path: "/bin/x".into(), sha256: String::new() });
            },
        ] {
            let mut other = first.clone();
            change(&mut other);
            digests.push(other.digest_of("i", &task, &task.input));
        }
        let distinct: std::collections::HashSet<_> = digests.iter().collect();
        assert_eq!(distinct.len(), digests.len());
        assert_eq!(first.digest_of("i", &task, &task.input), first.digest, "and the same stays the same");
    }

    #[test]
    fn a_digest_has_one_text() {
        let digest = Digest::of(&[b"a"]);
        assert_eq!(digest.to_string().parse::<Digest>().expect("its own text"), digest);
        for wrong in ["", "00", &"g".repeat(64), &"é".repeat(32)] {
            assert!(wrong.parse::<Digest>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn nonces_differ_and_are_too_long_to_be_guessed() {
        let (one, other) = (nonce(), nonce());
        assert_ne!(one, other);
        for nonce in [one, other] {
            assert!(nonce.len() == 64 && nonce.bytes().all(|byte| byte.is_ascii_hexdigit()), "{nonce}");
        }
    }

    proptest! {
        #[test]
        fn parts_cannot_be_shifted_into_one_another(
            one in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..12), 0..6),
            other in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..12), 0..6),
        ) {
            let digest = |parts: &[Vec<u8>]| Digest::of(&parts.iter().map(Vec::as_slice).collect::<Vec<_>>());
            prop_assert_eq!(one == other, digest(&one) == digest(&other));
            let joined: Vec<u8> = one.concat();
            prop_assert!(one.len() == 1 || digest(&one) != digest(&[joined]));
        }
    }
}
