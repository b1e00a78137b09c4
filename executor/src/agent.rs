//! What an agent has of us: one tool, whoever's loop it is.
//!
//! Decides nothing about tasks, and reads nothing but what a caller may: it is a caller like any other.

pub mod command_executor;
pub mod shell;
