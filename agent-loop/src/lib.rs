//! Our own agent: a loop that asks a model, performs its tool calls, and wakes up when tasks end.
//!
//! `machine.rs` decides what to do, `driver.rs` does it, `journal.rs` stores it. The loop runs outside the
//! executor: it is a caller like any other, and talks to the executor only through the mailbox.

pub mod blocking_model;
pub mod brief;
mod client_tools;
pub mod driver;
pub mod input;
pub mod journal;
pub mod machine;
pub mod model;
pub mod model_factory;
pub mod one_tool;
pub mod outcome;
pub mod own_tasks;
pub mod session;
pub mod session_loop;
