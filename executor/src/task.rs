//! A task: one `run`, from its acceptance to its end.

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

pub mod confirmation;
pub mod effect;
pub mod failure;
pub mod fingerprint;
pub mod grant;
pub mod name;
pub mod resolution;

/// One `run`.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    pub id: TaskId,
    pub tool: SubtoolName,
    /// As accepted, with defaults; only a human who confirms it may change it, before it starts.
    pub input: Map<String, Value>,
    /// Of the definition that it was accepted under.
    pub definition_hash: String,
    pub effect: EffectClass,
    pub caller: Caller,
    pub idempotency_key: Option<String>,
    pub created_at: Timestamp,
    pub state: State,
    /// How often it was started, or looked up.
    pub attempt: u32,
    /// A queued task does not start before this.
    pub not_before: Option<Timestamp>,
    /// What a human is asked about it, and what they said.
    pub confirmation: Option<Box<Confirmation>>,
    pub end: Option<End>,
    /// What somebody said had happened, if it ended as unknown.
    pub resolution: Option<Resolution>,
    /// It does not start before the clock shows this; it was asked for ahead of its time.
    pub run_at: Option<Timestamp>,
}

impl Task {
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
        }
    }

    /// The schedule that its first start waits for, or waited for until just now.
    pub fn scheduled(&self) -> Option<Timestamp> {
        self.run_at.filter(|_| self.attempt == 0)
    }

    /// What its caller asked for, whatever a human made of it.
    pub fn asked_input(&self) -> &Map<String, Value> {
        let decision = self.confirmation.as_ref().and_then(|confirmation| confirmation.decision.as_ref());
        decision.and_then(|decision| decision.asked_input.as_ref()).unwrap_or(&self.input)
    }
}

#[cfg(test)]
impl Task {
    /// A task that was just accepted, for tests.
    pub(crate) fn sample(tool: &str, effect: EffectClass, created_at: Timestamp) -> Self {
        let (id, caller) = (TaskId::new(), Caller { uid: 1, ..Caller::default() });
        let name = tool.parse().expect("a valid subtool name");
        Self::accepted(id, name, tool.to_owned(), effect, Map::new(), caller, created_at)
    }
}

/// How a task ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    pub at: Timestamp,
    pub outcome: Outcome,
    /// For `_meta` of the result file.
    #[serde(default)]
    pub meta: Map<String, Value>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Data(Value),
    /// Data that is no JSON, or too large for it: a file in the executor's data folder.
    File {
        path: PathBuf,
        content_type: String,
        bytes: u64,
    },
    Error(ErrorBody),
}
