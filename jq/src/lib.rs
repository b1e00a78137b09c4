//! jq expressions of models and of definitions: evaluated within bounds, with what they asked for in vain.
//!
//! An expression may take any time and memory, so none is evaluated in a process that anything depends on: `worker.rs`
//! is the process that evaluates them.

pub mod filter;
pub mod misplaced;
mod missing;
pub mod record_paths;
pub mod select;
pub mod worker;
