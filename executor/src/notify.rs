//! Telling people and programs: hooks, when a task is final; notices, when a human is waited for.

pub mod hook;
pub mod notice;
