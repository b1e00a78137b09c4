//! Nothing lost, nothing twice: whatever is killed, full, broken, stopped or set back.
//!
//! `oracle.rs` is the judge of all: what the fake tools did, what `run` printed, what readers saw and
//! what stands in the record must agree. The sizes are those of a normal run; with
//! `AGENT_MAGIC_TOOL_FAULTS=full` in the environment they are those of a night.

mod clocks;
mod damage;
mod failpoints;
mod keys;
mod limits;
mod oracle;
mod power;
mod room;
mod seeds;
pub(crate) mod shim;
mod stopped;

/// `small` in a normal run, `full` where all of it is asked for.
pub(crate) fn size(small: usize, full: usize) -> usize {
    if std::env::var("AGENT_MAGIC_TOOL_FAULTS").is_ok_and(|size| size == "full") { full } else { small }
}

/// Says loudly that a test could not be had, past the harness which would keep it to itself.
fn skip(why: &str) {
    use std::io::Write as _;
    writeln!(std::io::stderr(), "SKIPPED: {why}").expect("said");
}
