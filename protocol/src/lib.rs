//! What callers and the executor share: requests, answers and results, the mailbox that holds them, and the
//! one tool for agents.
//!
//! Has no async runtime, no network access and no database, so that a caller starts within a millisecond.
//! The executor decides what to do with a request.

pub mod caller;
pub mod clock;
pub mod code;
pub mod command_executor;
pub mod command_names;
pub mod data_class;
pub mod decimal;
pub mod digest;
pub mod duration;
pub mod error;
pub mod excerpt;
pub mod extent;
pub mod fault;
pub mod handover;
pub mod json;
pub mod layout;
pub mod lease;
pub mod mailbox;
pub mod nearest;
pub mod part;
pub mod paths;
pub mod regular_file;
pub mod resolution;
pub mod schedule;
pub mod shell;
pub mod task;
pub mod tool_scope;
