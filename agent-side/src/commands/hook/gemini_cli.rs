//! The hook protocol of Gemini CLI.
//!
//! Follows 0.61: `AfterAgent` is called with `{"session_id", "cwd", "prompt", ...}` when the model has
//! answered; `{"decision": "deny", "reason"}` sends the reason to it as a new prompt. Gemini CLI's shell sets
//! `GEMINI_CLI=1` but does not identify the session, so all sessions in one folder count as one.

use serde_json::Value;

use super::{HookCall, HookEvent};
use crate::wake_promise;

pub(super) fn parse(input: &Value) -> Option<HookCall> {
    let event = match input["hook_event_name"].as_str()? {
        "SessionStart" => HookEvent::SessionStart,
        "AfterAgent" => HookEvent::TurnEnd,
        _ => return None,
    };
    let folder = input["cwd"].as_str()?;
    Some(HookCall { event, target: wake_promise::by_folder("gemini-cli", folder.as_ref()) })
}
