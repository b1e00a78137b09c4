//! Confirmation: what a human was asked about one task, and the decision.
//!
//! An approval is bound to a [`Digest`] over exactly what the human was shown. Every decision carries that digest,
//! and a decision with another digest is stale. This module only holds data: the dispatcher keeps the waiting
//! tasks, and the page shows them.

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
use serde_with_macros::skip_serializing_none;
use sha2::{Digest as _, Sha256};

use crate::task::Task;
use crate::task::api_key::ApiKeyRef;
use crate::task::effect::EffectClass;
use crate::task::fingerprint::Fingerprint;
use crate::task::touch::TouchProof;

/// Identifies the layout of the digested data; change it whenever the layout changes.
const LAYOUT: &str = "agent-magic-tool/confirmation/1";

/// The longest reason an agent may give for a call; longer ones are cut.
pub const MAX_REASON_CHARS: usize = 280;

/// SHA-256 over everything that an approval is bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

#[derive(Debug, thiserror::Error)]
#[error("a digest must have 64 hexadecimal digits")]
pub struct InvalidDigest;

impl Digest {
    /// Hashes `parts`, each prefixed with its length, so that different lists never hash the same bytes.
    pub fn of(parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Self(hash.finalize().into())
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
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
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).map_err(|_| InvalidDigest)?;
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

/// Why a task waits for a human who is to answer a question rather than to approve it.
pub const QUESTION: &str = "it asks the user a question";

/// What a human is asked about one task.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Confirmation {
    /// The rule that requires the confirmation, in words.
    pub why: String,
    /// The agent's own reason for the call; unverified.
    pub reason: Option<String>,
    pub asked_at: Timestamp,
    /// `asked_at` on the monotonic clock: setting back the wall clock must not extend the confirmation.
    pub asked_moment: Option<MonotonicTime>,
    /// A later approval is rejected, and a task that has not started by then never starts.
    pub expires_at: Timestamp,
    /// Unique per confirmation: an approval of one task is not valid for an identical one.
    pub nonce: String,
    /// Digest of the task with its current input; an edit changes it.
    pub digest: Digest,
    /// How strong an approval must be, if the definition or a rule says so.
    pub needs: Option<Assurance>,
    /// The rules of the configuration that ask a human about it. A grant that was made before one of them does not
    /// approve it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asked_by: Vec<Digest>,
    /// The files that the task would execute.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<Fingerprint>,
    /// The current values that would be replaced, if the subtool defines how to look them up.
    pub preview: Option<ReplacedValues>,
    /// What its dry run showed, if the subtool defines one. It is looked up together with `preview`.
    pub would_change: Option<WouldChange>,
    pub decision: Option<Decision>,
}

/// What a dry run of a task showed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WouldChange {
    /// The data, in which long lists and texts may be cut.
    Shown { data: Value, is_cut: bool },
    /// The dry run failed for this reason.
    Unknown(String),
    /// The caller could not have made the dry run without a human, for this reason.
    NotPermitted(String),
}

/// The current values that a task would replace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplacedValues {
    /// The lookup has not finished; the page does not show the task before that.
    Pending,
    /// The values, by field of the input.
    Fields(Map<String, Value>),
    /// The lookup failed for this reason.
    Unknown(String),
    /// The caller could not have run the lookup without a human, for this reason.
    NotPermitted(String),
    /// What a change in a database does, as it was tried.
    Change(TriedChange),
    /// The change was tried and can only fail, so a human is not asked.
    Impossible(ErrorBody),
}

/// What is looked up before a human is asked.
#[derive(Debug, Clone, PartialEq)]
pub struct LookedUp {
    pub replaced: ReplacedValues,
    pub would_change: Option<WouldChange>,
}

/// A change in a database that was tried and rolled back.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TriedChange {
    pub rows_affected: u64,
    /// How many rows that are there it overwrites or removes to make room for its own, if it may.
    pub replaced: Option<u64>,
    /// The rows as they are before and after it, if they can be told.
    pub before: Option<Vec<Value>>,
    pub after: Option<Vec<Value>>,
    /// Columns of the rows to which the statement gives no value: the database sets them, each time anew.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub set_by_database: Vec<String>,
    /// What it sets off in other tables, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sets_off: Vec<String>,
    /// The rows of other tables that foreign keys change with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cascades: Vec<TriedCascade>,
    /// Of all rows before and after it, and of what it sets off: the change is made only if they are still these.
    pub digest: String,
}

/// The rows of one table that foreign keys change with a change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TriedCascade {
    pub table: String,
    pub deleted: u64,
    pub updated: u64,
    /// There are more rows than were looked at.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_part: bool,
    /// The first of the rows as they are before it.
    pub before: Vec<Value>,
    /// Those of them that are there after it.
    pub after: Vec<Value>,
}

/// A decision on one task.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decision {
    pub at: Timestamp,
    pub verdict: Verdict,
    pub by: DecidedBy,
    /// The human's reason, for the agent.
    pub reason: Option<String>,
    /// The input that the agent asked for, if the human edited it.
    pub asked_input: Option<Map<String, Value>>,
    /// The human's answer, if the task asked a question.
    pub answer: Option<Value>,
    /// Until when the task does not start, so that the human can still stop it.
    pub held_until: Option<Timestamp>,
    /// What a key of the human signed, if the decision was made with a touch.
    pub proof: Option<Box<TouchProof>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Approved,
    /// Approved with a changed input.
    Edited,
    Denied,
}

/// Who decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecidedBy {
    /// A human on the page, in the session with this name.
    Page(String),
    /// A remembered approval.
    Grant(crate::task::grant::GrantId),
    /// A client of `serve`, with an API key that may decide.
    ApiKey(ApiKeyRef),
}

/// How strongly an approval must prove that a human gave it, weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Assurance {
    /// A logged-in session of the page.
    Page,
    /// Like `page`, with secrets encrypted under a key of the human.
    Sealed,
    /// A touch of a security key that signs what was shown.
    Touch,
    /// The executor runs as a different Unix user than the agent.
    OtherUser,
    /// A second device shows the task and signs the approval.
    SecondDevice,
}

/// The parts of a confirmation that do not come from the task.
#[derive(Debug, Clone)]
pub struct ConfirmationRequest {
    pub why: String,
    pub reason: Option<String>,
    pub needs: Option<Assurance>,
    /// The rules that ask, by their content.
    pub asked_by: Vec<Digest>,
    /// The id of this executor's store: an approval given for another store is not valid here.
    pub instance: String,
    pub wait: Duration,
    pub files: Vec<Fingerprint>,
    /// Whether the current values, or what would change, are looked up before the human is asked.
    pub has_preview: bool,
}

impl Decision {
    pub fn new(at: Timestamp, verdict: Verdict, by: DecidedBy) -> Self {
        Self { at, verdict, by, reason: None, asked_input: None, answer: None, held_until: None, proof: None }
    }
}

impl Confirmation {
    /// Whether the human is to answer a question rather than to approve the task.
    pub fn is_question(&self) -> bool {
        self.why == QUESTION
    }

    /// Creates the confirmation of `task` with its current input.
    pub fn ask(task: &Task, request: ConfirmationRequest, nonce: String, now: Timestamp) -> Self {
        let ConfirmationRequest { why, reason, needs, asked_by, instance, wait, files, has_preview } = request;
        let expires_at = now.checked_add(wait).unwrap_or(Timestamp::MAX);
        let confirmation = Self {
            why,
            reason: reason.map(|reason| reason.chars().take(MAX_REASON_CHARS).collect()),
            asked_at: now,
            asked_moment: None,
            expires_at,
            nonce,
            digest: Digest([0; 32]),
            needs,
            asked_by,
            files,
            preview: has_preview.then_some(ReplacedValues::Pending),
            would_change: None,
            decision: None,
        };
        confirmation.bound_to(&instance, task)
    }

    /// Returns the digest that an approval of `task` with this input is bound to.
    pub fn digest_of(&self, instance: &str, task: &Task, input: &Map<String, Value>) -> Digest {
        let text = |replaced: &ReplacedValues| serde_json::to_vec(replaced).expect("JSON values serialize");
        let effect = match task.effect {
            EffectClass::Read => "read",
            EffectClass::Idempotent => "idempotent",
            EffectClass::Verifiable => "verifiable",
            EffectClass::Once => "once",
        };
        let folder = task.caller.folder.as_ref().map(|folder| folder.as_os_str().as_encoded_bytes());
        // Only where it is demanded, so that older records keep their digests.
        let needs = self.needs.map(|needs| serde_json::to_vec(&needs).expect("a name is plain JSON"));
        let would_change =
            self.would_change.as_ref().map(|shown| serde_json::to_vec(shown).expect("JSON values serialize"));
        let (input, files) = (
            serde_json::to_vec(input).expect("JSON values serialize"),
            serde_json::to_vec(&self.files).expect("fingerprints are plain JSON"),
        );
        let (id, preview) = (task.id.to_string(), self.preview.as_ref().map(text).unwrap_or_default());
        let (uid, expires_at) = (task.caller.uid.to_be_bytes(), self.expires_at.as_microsecond().to_be_bytes());
        // An absent value must differ from an empty one.
        let (has_folder, has_session) = ([u8::from(folder.is_some())], [u8::from(task.caller.session.is_some())]);
        let mut parts: Vec<&[u8]> = vec![
            LAYOUT.as_bytes(),
            instance.as_bytes(),
            id.as_bytes(),
            task.tool.as_str().as_bytes(),
            task.definition_hash.as_bytes(),
            &input,
            &uid,
            &has_folder,
            folder.unwrap_or_default(),
            &has_session,
            task.caller.session.as_deref().unwrap_or_default().as_bytes(),
            effect.as_bytes(),
            &files,
            &preview,
            &expires_at,
            self.nonce.as_bytes(),
        ];
        parts.extend(needs.as_deref());
        parts.extend(would_change.as_deref());
        Digest::of(&parts)
    }

    /// Returns this confirmation with the results of the lookups, and a new digest.
    #[must_use]
    pub fn with_preview(&self, instance: &str, task: &Task, found: LookedUp) -> Self {
        let LookedUp { replaced, would_change } = found;
        Self { preview: Some(replaced), would_change, ..self.clone() }.bound_to(instance, task)
    }

    /// Returns this confirmation with the digest of what it says by now.
    #[must_use]
    pub fn bound_to(mut self, instance: &str, task: &Task) -> Self {
        self.digest = self.digest_of(instance, task, &task.input);
        self
    }

    /// Whether the decision that was made, or else any that may be made, is at least as strong as `needs`.
    pub fn meets(&self, needs: Option<Assurance>) -> bool {
        // Whatever is more than a session of the page takes a touch.
        let has_touch = self.decision.as_ref().is_some_and(|decision| decision.proof.is_some());
        has_touch || needs <= self.needs.max(Some(Assurance::Page))
    }

    /// Whether a human or a grant approved the task.
    pub fn is_approved(&self) -> bool {
        self.decision.as_ref().is_some_and(|decision| decision.verdict != Verdict::Denied)
    }
}

/// Returns 256 random bits as 64 hexadecimal digits.
pub fn nonce() -> String {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).expect("the system has a source of randomness");
    digest::hex(&bytes)
}

/// The error of a task that a human denied.
pub fn denied(reason: Option<&str>) -> ErrorBody {
    let message =
        reason.map_or_else(|| "a human denied it".to_owned(), |reason| format!("a human denied it: {reason}"));
    ErrorBody::new(Code::Denied, message).hint(
        "do not run it again or work around it; acknowledge the refusal, and ask the user whether to skip it, to \
         change it, or to do it by hand",
    )
}

/// The error of a task that was approved and may not start, or not again, since what approved it no longer counts.
pub fn no_longer_approved(why: &str, task: &Task) -> ErrorBody {
    let tried = match (task.attempt, &task.notes.last_failure) {
        (0, _) => String::new(),
        (1, Some(failure)) => format!("; before that it was tried once: {}", failure.error.message),
        (attempts, Some(failure)) => format!("; before that it was tried {attempts} times: {}", failure.error.message),
        (_, None) => "; it was begun before that, and may have taken effect".to_owned(),
    };
    ErrorBody::new(Code::Denied, format!("its approval no longer counts: {why}{tried}"))
        .hint("tell the user; if it is still wanted, run it again, and a human is asked")
}

/// The error of a task that expired without a decision, or after an approval but before it could start.
pub fn expired(confirmation: &Confirmation) -> ErrorBody {
    let waited = confirmation.expires_at.duration_since(confirmation.asked_at);
    let waited =
        protocol::duration::PositiveDuration::from_millis(u64::try_from(waited.as_millis()).unwrap_or(u64::MAX));
    let message = if confirmation.is_approved() {
        format!("it was approved, but could not start within {waited} of the question")
    } else {
        format!("no human answered within {waited}")
    };
    ErrorBody::new(Code::Expired, message).hint(
        "this is not a refusal: tell the user that it needs their approval on the page that `agent-magic-tool executor \
         page` opens; you may run it once more",
    )
}

/// The error of a task whose definition is not the one that the human was shown.
pub fn drifted() -> ErrorBody {
    ErrorBody::new(Code::Drifted, "its definition was changed or removed after the human was asked; nothing was done")
        .hint("if it is still wanted, run it again: the human will be asked about the current definition")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::task::fingerprint::FileRole;

    #[test]
    fn every_change_of_the_task_or_the_confirmation_changes_the_digest() {
        let task = crate::task::sample::stored(None);
        let first = Confirmation::sample(&task);
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
            |confirmation: &mut Confirmation| confirmation.needs = Some(Assurance::Page),
            |confirmation: &mut Confirmation| confirmation.needs = Some(Assurance::Touch),
            |confirmation: &mut Confirmation| confirmation.preview = Some(ReplacedValues::Fields(Map::new())),
            |confirmation: &mut Confirmation| confirmation.would_change = Some(WouldChange::Unknown(String::new())),
            |confirmation: &mut Confirmation| {
                confirmation.would_change = Some(WouldChange::NotPermitted(String::new()));
            },
            |confirmation: &mut Confirmation| {
                confirmation.files.push(Fingerprint::of(std::path::Path::new("/none"), FileRole::Program, 0));
            },
        ] {
            let mut other = first.clone();
            change(&mut other);
            digests.push(other.digest_of("i", &task, &task.input));
        }
        let distinct: std::collections::HashSet<_> = digests.iter().collect();
        assert_eq!(distinct.len(), digests.len());
        assert_eq!(first.digest_of("i", &task, &task.input), first.digest, "unchanged data, unchanged digest");
    }

    #[test]
    fn every_part_of_a_fingerprint_is_in_the_digest() {
        let task = crate::task::sample::stored(None);
        let file = Fingerprint::of(std::path::Path::new("/none"), FileRole::Program, 0);
        let digest = |change: fn(&mut Fingerprint)| {
            let mut confirmation = Confirmation::sample(&task);
            confirmation.files.push(file.clone());
            change(&mut confirmation.files[0]);
            confirmation.digest_of("i", &task, &task.input)
        };
        let digests = [
            digest(|_| {}),
            digest(|file| file.path = "/other".into()),
            digest(|file| file.sha256.push('0')),
            digest(|file| file.role = FileRole::Script),
            digest(|file| file.owner = Some(7)),
            digest(|file| file.writable = None),
        ];
        assert_eq!(digests.iter().collect::<std::collections::HashSet<_>>().len(), digests.len());
    }

    #[test]
    fn a_digest_parses_from_its_own_text_only() {
        let digest = Digest::of(&[b"a"]);
        assert_eq!(digest.to_string().parse::<Digest>().expect("its own text"), digest);
        for wrong in ["", "00", &"g".repeat(64), &"é".repeat(32)] {
            assert!(wrong.parse::<Digest>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn nonces_are_unique_and_have_256_bits() {
        let (one, other) = (nonce(), nonce());
        assert_ne!(one, other);
        for nonce in [one, other] {
            assert!(nonce.len() == 64 && nonce.bytes().all(|byte| byte.is_ascii_hexdigit()), "{nonce}");
        }
    }

    proptest! {
        #[test]
        fn different_lists_of_parts_have_different_digests(
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
