//! A task: one accepted `run` request, until its end.

use std::path::PathBuf;

use jiff::Timestamp;
use protocol::caller::Caller;
use protocol::error::ErrorBody;
use protocol::resolution::Resolution;
use protocol::task::{State, TaskId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use confirmation::Confirmation;
use effect::EffectClass;
use name::SubtoolName;
use notes::TaskNotes;

pub mod api_key;
pub mod approver_key;
pub mod confirmation;
pub mod decide_scope;
pub mod effect;
pub mod failure;
pub mod feedback;
pub mod fingerprint;
mod folder;
pub mod grant;
pub mod name;
pub mod notes;
pub mod part_of;
pub mod places;
pub mod question_key;
pub mod resolution;
#[doc(hidden)]
pub mod sample;
pub mod touch;

/// One accepted `run` request, and what has happened to it.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    pub id: TaskId,
    pub tool: SubtoolName,
    /// As accepted, with defaults filled in. Only a human who confirms the task can change it, before it starts.
    pub input: Map<String, Value>,
    /// Hash of the definition under which it was accepted.
    pub definition_hash: String,
    pub effect: EffectClass,
    pub caller: Caller,
    pub idempotency_key: Option<String>,
    pub created_at: Timestamp,
    pub state: State,
    /// How many times it was started or looked up.
    pub attempt: u32,
    /// The earliest start of a queued task, for example after a backoff.
    pub not_before: Option<Timestamp>,
    /// The confirmation a human was asked for, with the decision once there is one.
    pub confirmation: Option<Box<Confirmation>>,
    pub end: Option<End>,
    /// For a task that ended as unknown: what happened, once a caller or a human said so.
    pub resolution: Option<Resolution>,
    /// The scheduled start that the caller asked for.
    pub run_at: Option<Timestamp>,
    /// What is known of its attempts so far.
    pub notes: TaskNotes,
}

impl Task {
    /// Whether a human approved it with a touch of a key.
    pub fn was_approved_with_touch(&self) -> bool {
        let decision = self.confirmation.as_ref().and_then(|confirmation| confirmation.decision.as_ref());
        decision.is_some_and(|decision| decision.proof.is_some())
    }

    /// A task that was just accepted: without a schedule, a confirmation or an idempotency key.
    pub fn accepted(
        id: TaskId,
        tool: SubtoolName,
        definition_hash: String,
        effect: EffectClass,
        input: Map<String, Value>,
        caller: Caller,
        created_at: Timestamp,
    ) -> Self {
        Self {
            id,
            tool,
            input,
            definition_hash,
            effect,
            caller,
            idempotency_key: None,
            created_at,
            state: State::Accepted,
            attempt: 0,
            not_before: None,
            confirmation: None,
            end: None,
            resolution: None,
            run_at: None,
            notes: TaskNotes::default(),
        }
    }

    /// Returns the number of attempts so far, without those that were lost before they sent anything.
    pub fn counted_attempts(&self) -> u32 {
        self.attempt.saturating_sub(self.notes.unsent_attempts)
    }

    /// Returns the scheduled start until the task has started for the first time.
    pub fn scheduled(&self) -> Option<Timestamp> {
        self.run_at.filter(|_| self.attempt == 0)
    }

    /// Returns until when the task does not start although it was approved; `None` once it has started.
    pub fn held_until(&self) -> Option<Timestamp> {
        let decision = self.confirmation.as_ref().and_then(|confirmation| confirmation.decision.as_ref())?;
        decision.held_until.filter(|_| self.attempt == 0 && !self.state.is_final())
    }

    /// Returns when a task that has not started does so at the earliest, if a time is set: by its caller, or by the hold
    /// after an approval.
    pub fn starts_at(&self) -> Option<Timestamp> {
        self.scheduled().filter(|_| !self.state.is_final()).max(self.held_until())
    }

    /// Returns when the task could first start: it was accepted, its scheduled time came, and a human had decided.
    pub fn ready_at(&self) -> Timestamp {
        let decision = self.confirmation.as_ref().and_then(|confirmation| confirmation.decision.as_ref());
        let decided_at = decision.map(|decision| decision.at);
        [self.run_at, decided_at].into_iter().flatten().fold(self.created_at, Timestamp::max)
    }

    /// Returns the input that the caller asked for, even if a human edited it.
    pub fn asked_input(&self) -> &Map<String, Value> {
        let decision = self.confirmation.as_ref().and_then(|confirmation| confirmation.decision.as_ref());
        decision.and_then(|decision| decision.asked_input.as_ref()).unwrap_or(&self.input)
    }
}

/// How a task ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    pub at: Timestamp,
    pub outcome: Outcome,
    /// The `_meta` object of the result file.
    #[serde(default)]
    pub meta: Map<String, Value>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Data(Value),
    /// Data that is not JSON, or too large to inline: a file in the executor's data folder.
    File {
        path: PathBuf,
        content_type: String,
        bytes: u64,
    },
    Error(ErrorBody),
}
