//! What both sides of the mailbox share: requests, answers and results, where they lie, and the one
//! tool that an agent is given.
//!
//! No runtime, no network, no database: what an agent's side needs starts in a millisecond. What is
//! done with a request is the executor's business.

pub mod caller;
pub mod clock;
pub mod code;
pub mod command_executor;
pub mod digest;
pub mod duration;
pub mod error;
pub mod excerpt;
pub mod fault;
pub mod handover;
pub mod json;
pub mod layout;
pub mod mailbox;
pub mod nearest;
pub mod part;
pub mod paths;
pub mod resolution;
pub mod schedule;
pub mod shell;
pub mod task;
pub mod tool_scope;
