//! Fault injection: no task is lost or done twice, whatever is killed, full, damaged, stopped or reset.
//!
//! `oracle.rs` checks all of them: the effects of the fake tools, the output of `run`, what readers saw and what the
//! store contains must agree. With `AGENT_MAGIC_TOOL_FAULTS=full` in the environment the tests run with the sizes
//! for a nightly run.

mod clocks;
mod damage;
mod failpoints;
mod full_disk;
mod keys;
mod limits;
mod oracle;
mod poison;
mod power;
mod seeds;
pub(crate) mod shim;
mod stopped;
mod versions;

/// Returns `small` in a normal run, and `full` with `AGENT_MAGIC_TOOL_FAULTS=full`.
pub(crate) fn size(small: usize, full: usize) -> usize {
    if std::env::var("AGENT_MAGIC_TOOL_FAULTS").is_ok_and(|size| size == "full") { full } else { small }
}
