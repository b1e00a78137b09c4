//! How an attempt ended, as it is reported to the dispatcher.

use protocol::task::TaskId;

use crate::task::End;
use crate::task::failure::{Again, Effect};

/// How one attempt ended.
#[derive(Debug)]
pub struct Finished {
    pub id: TaskId,
    pub attempt: u32,
    pub result: Result<End, Failed>,
}

#[derive(Debug)]
pub struct Failed {
    pub end: End,
    pub why: Why,
    pub again: Again,
    pub effect: Effect,
}

/// What kind of failure it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    Failure,
    Timeout,
    /// Stopped because its caller asked for it.
    Cancelled,
    /// Stopped because the executor stops.
    Shutdown,
}

/// What an attempt is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// What the task asks for.
    Work,
    /// Whether an attempt before it took effect. It ends well if that happened, with an error of
    /// [`Effect::None`] if it surely did not, and with another error if that cannot be known.
    Lookup,
}
