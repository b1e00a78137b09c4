//! The id and the states of a task, as callers and the executor know them.
//!
//! [`State::after`] is the whole life cycle; no other code decides which state follows which.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The id of a task: a UUID of version 7, so that ids sort by creation time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskId(Uuid);

#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a valid task id; an id has 32 hexadecimal digits")]
pub struct InvalidId(String);

impl TaskId {
    /// The length of an id.
    pub const CHARS: usize = 32;

    #[expect(clippy::new_without_default, reason = "each call returns a new id")]
    pub fn new() -> Self {
        Self(Uuid::now_v7())
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.simple().fmt(f)
    }
}

impl FromStr for TaskId {
    type Err = InvalidId;

    /// Accepts only the spelling that `Display` writes, since ids are also file names.
    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let is_canonical =
            text.len() == Self::CHARS && text.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f'));
        match Uuid::try_parse(text) {
            Ok(uuid) if is_canonical => Ok(Self(uuid)),
            _ => Err(InvalidId(text.to_owned())),
        }
    }
}

impl Serialize for TaskId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TaskId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The state of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Recorded durably; not yet decided whether it needs confirmation.
    Accepted,
    AwaitingConfirmation,
    /// Waits for a free slot, for its start time, or for the pause before its next attempt.
    Queued,
    /// An attempt is in progress. This state is recorded before anything is sent.
    Running,
    Succeeded,
    Failed,
    Denied,
    Expired,
    Cancelled,
    TimedOut,
    /// The task started, and it is not known whether it took effect.
    Unknown,
}

/// A step in the life cycle of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// The task needs confirmation.
    Ask,
    /// The task needs no confirmation, or a human approved it.
    Enqueue,
    Start,
    /// The attempt was lost; a lookup determines whether it took effect.
    Verify,
    /// The attempt failed and may be repeated.
    Retry,
    Succeed,
    Fail,
    Deny,
    Expire,
    Cancel,
    TimeOut,
    /// The attempt was lost, and repeating it could take effect twice.
    Lose,
    /// A caller or a human recorded whether the task took effect.
    Resolve,
}

/// A step that the life cycle does not allow.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the step `{step:?}` is not allowed in state `{from}`")]
pub struct Unexpected {
    pub from: State,
    pub step: Step,
}

impl State {
    pub const ALL: [Self; 11] = [
        Self::Accepted,
        Self::AwaitingConfirmation,
        Self::Queued,
        Self::Running,
        Self::Succeeded,
        Self::Failed,
        Self::Denied,
        Self::Expired,
        Self::Cancelled,
        Self::TimedOut,
        Self::Unknown,
    ];

    /// Returns the state after `step`. Each legal step has one row.
    pub fn after(self, step: Step) -> Result<Self, Unexpected> {
        match (self, step) {
            (Self::Accepted, Step::Ask) => Ok(Self::AwaitingConfirmation),
            (Self::Accepted, Step::Enqueue) => Ok(Self::Queued),
            (Self::AwaitingConfirmation, Step::Enqueue) => Ok(Self::Queued),
            (Self::AwaitingConfirmation, Step::Deny) => Ok(Self::Denied),
            (Self::AwaitingConfirmation, Step::Expire) => Ok(Self::Expired),
            (Self::AwaitingConfirmation, Step::Cancel) => Ok(Self::Cancelled),
            (Self::AwaitingConfirmation, Step::Fail) => Ok(Self::Failed),
            // Its result file was final when the record was restored from an earlier time.
            (Self::AwaitingConfirmation | Self::Queued, Step::Lose) => Ok(Self::Unknown),
            // A rule that came later asks a human about it.
            (Self::Queued, Step::Ask) => Ok(Self::AwaitingConfirmation),
            (Self::Queued, Step::Start) => Ok(Self::Running),
            (Self::Queued, Step::Fail) => Ok(Self::Failed),
            (Self::Queued, Step::Deny) => Ok(Self::Denied),
            (Self::Queued, Step::Expire) => Ok(Self::Expired),
            (Self::Queued, Step::Cancel) => Ok(Self::Cancelled),
            (Self::Running, Step::Verify) => Ok(Self::Running),
            (Self::Running, Step::Retry) => Ok(Self::Queued),
            (Self::Running, Step::Succeed) => Ok(Self::Succeeded),
            (Self::Running, Step::Fail) => Ok(Self::Failed),
            (Self::Running, Step::Cancel) => Ok(Self::Cancelled),
            (Self::Running, Step::TimeOut) => Ok(Self::TimedOut),
            (Self::Running, Step::Lose) => Ok(Self::Unknown),
            (Self::Unknown, Step::Resolve) => Ok(Self::Unknown),
            (from, step) => Err(Unexpected { from, step }),
        }
    }

    /// Whether a task in this state has ended.
    pub const fn is_final(self) -> bool {
        match self {
            Self::Accepted | Self::AwaitingConfirmation | Self::Queued | Self::Running => false,
            Self::Succeeded
            | Self::Failed
            | Self::Denied
            | Self::Expired
            | Self::Cancelled
            | Self::TimedOut
            | Self::Unknown => true,
        }
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::AwaitingConfirmation => "awaiting_confirmation",
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Denied => "denied",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
            Self::TimedOut => "timed_out",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for State {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|state| state.as_str() == text).ok_or_else(|| {
            let known: Vec<_> = Self::ALL.iter().map(|state| state.as_str()).collect();
            format!("`{text}` is not a valid state; the states are {}", known.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEPS: [Step; 13] = [
        Step::Ask,
        Step::Enqueue,
        Step::Start,
        Step::Verify,
        Step::Retry,
        Step::Succeed,
        Step::Fail,
        Step::Deny,
        Step::Expire,
        Step::Cancel,
        Step::TimeOut,
        Step::Lose,
        Step::Resolve,
    ];

    #[test]
    fn exactly_the_final_states_have_no_successor() {
        for state in State::ALL {
            let successors: Vec<_> = STEPS.iter().filter_map(|step| state.after(*step).ok()).collect();
            assert_eq!(successors.iter().all(|successor| *successor == state), state.is_final(), "{state}");
        }
    }

    #[test]
    fn every_state_has_one_name_in_text_and_json() {
        for state in State::ALL {
            assert_eq!(state.as_str().parse::<State>(), Ok(state));
            assert_eq!(serde_json::to_value(state).expect("a state serializes"), state.as_str());
        }
    }

    #[test]
    fn an_id_has_one_spelling() {
        let id = TaskId::new();
        assert_eq!(id.to_string().parse::<TaskId>().expect("an id that we wrote"), id);
        for other in [id.0.hyphenated().to_string(), id.to_string().to_uppercase(), "../x".to_owned(), String::new()] {
            assert!(other.parse::<TaskId>().is_err(), "{other}");
        }
    }
}
