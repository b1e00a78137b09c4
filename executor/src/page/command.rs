//! What the page has the daemon do, and the changes that it hears of.

use dispatcher::{DecisionResult, HumanCommand};
use ground::base::webauthn::{Assertion, Base64Url, RegisteredKey};
use protocol::task::{State, TaskId};
use tokio::sync::oneshot;

/// A command, with the channel for its result.
#[derive(Debug)]
pub struct PageMessage {
    pub command: PageCommand,
    /// If this is dropped without a result, nothing was done.
    pub reply: oneshot::Sender<DecisionResult>,
}

/// What the page can have the daemon do.
#[derive(Debug)]
pub enum PageCommand {
    /// What concerns tasks, grants and API keys is up to the dispatcher.
    Dispatch(Box<HumanCommand>),
    /// Enrols a key that the page has registered.
    EnrolKey { name: String, key: Box<RegisteredKey>, touch: Option<Assertion> },
    /// Revokes a key.
    RevokeKey { credential: Base64Url, touch: Option<Assertion> },
    /// Reloads definitions that have changed.
    RefreshCatalog,
    /// A browser opened or closed the event stream.
    PresenceChanged,
}

impl From<HumanCommand> for PageCommand {
    fn from(command: HumanCommand) -> Self {
        Self::Dispatch(Box::new(command))
    }
}

/// A task has a new state. Receivers may miss changes; the record is the truth.
#[derive(Debug, Clone, Copy)]
pub struct TaskChange {
    pub id: TaskId,
    pub state: State,
}
