//! The hook protocol of Cursor.
//!
//! Follows its documentation of 2026 and has not been tested with Cursor itself: `stop` is called with
//! `{"conversation_id", "status", "loop_count", "workspace_roots"}`; `{"followup_message"}` is sent as the
//! user's next message, as often as `loop_limit` allows. After an aborted or failed turn the hook does not wake
//! the session. Cursor's shell sets `CURSOR_AGENT=1` but does not identify the conversation, so all conversations
//! in one folder count as one session.

use protocol::code::Exit;
use serde_json::{Value, json};

use super::{HookCall, HookEvent};
use crate::error::Error;
use crate::output::Output;
use crate::wake_promise;

pub(super) fn parse(input: &Value) -> Option<HookCall> {
    let event = match (input["hook_event_name"].as_str()?, input["status"].as_str()) {
        ("stop", None | Some("completed")) => HookEvent::TurnEnd,
        ("sessionStart" | "stop", _) => HookEvent::SessionStart,
        _ => return None,
    };
    let folder = input["workspace_roots"][0].as_str().or_else(|| input["cwd"].as_str())?;
    Some(HookCall { event, target: wake_promise::by_folder("cursor", folder.as_ref()) })
}

pub(super) fn respond(text: &str, output: &Output) -> Result<Exit, Error> {
    output.whole_json(&json!({"followup_message": text}))?;
    Ok(Exit::Ok)
}
