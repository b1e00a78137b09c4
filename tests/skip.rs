//! Tests that cannot run on every machine.

use std::io::Write as _;

/// Reports that a test is skipped, and why. Panics if `AGENT_MAGIC_TOOL_TEST_ALL` is `1`, as it is in `.ci/run`, where
/// every test must run.
#[track_caller]
pub(crate) fn skip(reason: &str) {
    let must_run = std::env::var_os("AGENT_MAGIC_TOOL_TEST_ALL").is_some_and(|value| value == "1");
    assert!(!must_run, "this test must not be skipped: {reason}");
    // Not with `eprintln!`, since the test harness would capture it.
    writeln!(std::io::stderr(), "SKIPPED: {reason}").expect("standard error is open");
}
