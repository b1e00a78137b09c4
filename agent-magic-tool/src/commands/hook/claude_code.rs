//! The dialect of Claude Code.
//!
//! Follows 2.1.197: the `Stop` hook is installed with `asyncRewake`, so it runs beside the conversation;
//! exit status 2 wakes the model, idle or not, with what stands on standard error. A version that does not
//! know `asyncRewake`, and `claude -p`, wait for the hook, and go on with the same words. The session's id
//! is that of `CLAUDE_CODE_SESSION_ID` in its shell (since 2.1.132).

use protocol::code::Exit;
use serde_json::Value;

use super::{HookCall, blocking};
use crate::output::Output;

pub(super) fn call(given: &Value) -> Option<HookCall> {
    blocking::call("claude-code", given)
}

pub(super) fn say(text: &str, output: &Output) -> Exit {
    output.prompt(&format!("{text}\n"));
    // The status by which the client knows that it is to wake; it means wrong usage elsewhere.
    Exit::Usage
}
