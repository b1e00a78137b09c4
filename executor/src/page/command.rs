//! Commands that the page sends to the daemon, and the changes that it hears of.

use jiff::Timestamp;
use protocol::task::{State, TaskId};
use tokio::sync::oneshot;

use crate::base::webauthn::{Assertion, Base64Url, RegisteredKey};
use crate::dispatcher::{DecisionAction, DecisionResult};
use crate::task::Task;
use crate::task::api_key::ApiKeyRef;
use crate::task::confirmation::Digest;
use crate::task::grant::{Grant, GrantId};

/// A command of a human, with the channel for its result.
#[derive(Debug)]
pub struct PageMessage {
    pub command: PageCommand,
    /// The name of the page session that sent the command.
    pub session: String,
    /// If this is dropped without a result, nothing was done.
    pub reply: oneshot::Sender<DecisionResult>,
}

/// What a human can have the daemon do.
#[derive(Debug)]
pub enum PageCommand {
    /// Approves, denies, edits or answers pending tasks.
    Decide {
        /// Either all of these tasks are decided, or none. Each has the digest of what the human saw.
        tasks: Vec<(TaskId, Digest)>,
        action: DecisionAction,
        /// A grant to store together with the approval.
        grant: Option<Box<Grant>>,
        /// What a key of the human signed.
        touch: Option<Assertion>,
    },
    /// Approves, denies or answers one pending task with an API key that may decide.
    DecideWithKey {
        key: ApiKeyRef,
        task: TaskId,
        /// The digest of what the client was shown.
        shown: Digest,
        action: DecisionAction,
        /// The words for the agent, with an approval.
        note: Option<String>,
    },
    /// Lets an API key decide until it expires.
    GiveScope { key: ApiKeyRef, expires_at: Option<Timestamp>, touch: Option<Assertion> },
    /// No longer lets the API key with this hash decide.
    TakeScope { hash: String },
    /// Revokes a grant.
    Revoke { grant: GrantId, touch: Option<Assertion> },
    /// Cancels a task as its caller would; `uid` is the caller's user.
    Cancel { task: TaskId, uid: u32 },
    /// Says whether a task that ended as `unknown` had its effect. `task` is the task as recorded.
    Resolve { task: Box<Task>, happened: bool, note: Option<String>, touch: Option<Assertion> },
    /// Enrols a key that the page has registered.
    EnrolKey { name: String, key: Box<RegisteredKey>, touch: Option<Assertion> },
    /// Revokes a key.
    RevokeKey { credential: Base64Url, touch: Option<Assertion> },
    /// Reloads definitions that have changed.
    RefreshCatalog,
    /// A browser opened or closed the event stream.
    PresenceChanged,
}

/// A task has a new state. Receivers may miss changes; the record is the truth.
#[derive(Debug, Clone, Copy)]
pub struct TaskChange {
    pub id: TaskId,
    pub state: State,
}
