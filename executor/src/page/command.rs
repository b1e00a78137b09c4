//! What the page says to the daemon, and what it hears back.

use protocol::task::{State, TaskId};
use tokio::sync::oneshot;

use crate::dispatcher::{DecisionResult, DecisionAction};
use crate::task::Task;
use crate::task::confirmation::Digest;
use crate::task::grant::{Grant, GrantId};

/// Something that a human wants done.
#[derive(Debug)]
pub struct PageMessage {
    pub command: PageCommand,
    /// The session of the page.
    pub session: String,
    /// Dropped without an answer, nothing was done.
    pub reply: oneshot::Sender<DecisionResult>,
}

#[derive(Debug)]
pub enum PageCommand {
    Decide {
        /// All of these, or none.
        tasks: Vec<(TaskId, Digest)>,
        action: DecisionAction,
        /// To be remembered with it.
        grant: Option<Box<Grant>>,
    },
    Revoke(GrantId),
    Cancel {
        task: TaskId,
        uid: u32,
    },
    /// What had happened to a task that ended as unknown; it comes as the record has it.
    Resolve {
        task: Box<Task>,
        happened: bool,
        note: Option<String>,
    },
    /// Definitions may have changed.
    RefreshCatalog,
    /// Somebody came to look on, or went.
    PresenceChanged,
}

/// What happened to a task, for whoever looks on. May be missed: the record is the truth.
#[derive(Debug, Clone, Copy)]
pub struct TaskChange {
    pub id: TaskId,
    pub state: State,
}
