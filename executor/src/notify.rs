//! Notifies humans and programs: hooks when a task ends, notices when a task waits for a human.

pub mod hook;
pub mod notice;
