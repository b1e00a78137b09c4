//! The hook protocol of Claude Code.
//!
//! Follows 2.1.197: the `Stop` hook is installed with `asyncRewake`, so it runs in parallel with the
//! conversation; exit status 2 wakes the model, idle or not, with the text on standard error. Versions
//! without `asyncRewake`, and `claude -p`, wait for the hook and continue with the same text. The session's
//! id is that of `CLAUDE_CODE_SESSION_ID` in its shell (since 2.1.132).

use protocol::code::Exit;
use serde_json::Value;

use super::{HookCall, blocking};
use crate::output::Output;

pub(super) fn parse(input: &Value) -> Option<HookCall> {
    blocking::parse("claude-code", input)
}

pub(super) fn respond(text: &str, output: &Output) -> Exit {
    output.prompt(&format!("{text}\n"));
    // Status 2, which means wrong usage elsewhere, tells the client to wake the model.
    Exit::Usage
}
