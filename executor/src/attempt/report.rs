//! How an attempt ended, as it is reported to the dispatcher.

use protocol::task::TaskId;

use crate::task::End;
use crate::task::failure::{Retry, SideEffect};

/// How one attempt ended.
#[derive(Debug)]
pub struct AttemptReport {
    pub id: TaskId,
    pub attempt: u32,
    pub result: Result<End, FailedAttempt>,
}

#[derive(Debug)]
pub struct FailedAttempt {
    pub end: End,
    pub kind: FailureKind,
    pub retry: Retry,
    pub side_effect: SideEffect,
}

/// What kind of failure it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    Failure,
    Timeout,
    /// Stopped because its caller asked for it.
    Cancelled,
    /// Stopped because the executor stops.
    Shutdown,
}

/// What an attempt is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptPurpose {
    /// What the task asks for.
    Work,
    /// Whether an attempt before it took effect. It ends well if that happened, with an error of
    /// [`SideEffect::None`] if it surely did not, and with another error if that cannot be known.
    Lookup,
}
