//! Our own agent, and what any agent has of us: one tool, and the loop that is woken.
//!
//! `machine.rs` decides, `driver.rs` carries out, `provider.rs` speaks with models, `journal.rs` remembers;
//! `command_executor.rs` is the one tool. Nothing of it runs in the executor's own tasks, and it reads nothing
//! but what a caller may: a loop is a caller like any other, with files between.

pub mod command_executor;
pub mod conversation;
pub mod driver;
pub mod fallback;
pub mod journal;
pub mod machine;
pub mod model;
pub mod one_tool;
pub mod prompt;
pub mod provider;
pub mod session;
pub mod shell;
pub mod view;
