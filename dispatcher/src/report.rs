//! What an attempt is for, and how it ended, as reported to the dispatcher.

use ground::task::End;
use ground::task::failure::{Retry, SideEffect};
use protocol::task::TaskId;

/// How one attempt ended.
#[derive(Debug)]
pub struct AttemptReport {
    pub id: TaskId,
    pub attempt: u32,
    pub result: Result<End, FailedAttempt>,
}

/// An attempt that did not succeed.
#[derive(Debug)]
pub struct FailedAttempt {
    pub end: End,
    pub kind: FailureKind,
    pub retry: Retry,
    pub side_effect: SideEffect,
}

/// Why an attempt ended without success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// The runner failed.
    Failure,
    Timeout,
    /// Its caller cancelled it.
    Cancelled,
    /// The executor is shutting down.
    Shutdown,
}

/// What an attempt is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptPurpose {
    /// Performs the task.
    Work,
    /// Finds out whether an earlier attempt took effect. It succeeds if that is so, fails with
    /// [`SideEffect::None`] if it certainly is not, and with [`SideEffect::Possible`] if that remains unknown.
    Lookup,
}
