//! The hook protocol of Codex CLI, parts of which Gemini CLI and others share.
//!
//! Follows Codex 0.169: `SessionStart` and `Stop` hooks get `{"hook_event_name", "session_id", "cwd", ...}`,
//! and the session's id is that of `CODEX_THREAD_ID` in its shell. `{"decision": "block", "reason"}` on
//! standard output continues with the reason as a user message; empty output lets the turn end. A hook
//! runs only after the user has trusted it with `/hooks`.

use protocol::code::Exit;
use serde_json::{Value, json};

use super::{HookCall, HookEvent};
use crate::error::Error;
use crate::output::Output;
use crate::wake_promise;

pub(super) fn parse(client: &str, input: &Value) -> Option<HookCall> {
    let event = match input["hook_event_name"].as_str()? {
        "SessionStart" => HookEvent::SessionStart,
        "Stop" => HookEvent::TurnEnd,
        _ => return None,
    };
    Some(HookCall { event, target: wake_promise::by_session(client, input["session_id"].as_str()?) })
}

pub(super) fn respond(decision: &str, text: &str, output: &Output) -> Result<Exit, Error> {
    output.whole_json(&json!({"decision": decision, "reason": text}))?;
    Ok(Exit::Ok)
}
