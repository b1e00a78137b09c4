//! The dialect of Cursor.
//!
//! Follows its documents of 2026, and was not tried: `stop` is called with `{"conversation_id", "status",
//! "loop_count", "workspace_roots"}`; `{"followup_message"}` is sent as the user's next message, as often as
//! `loop_limit` allows. A turn that was aborted or failed is left alone. Its shell says `CURSOR_AGENT=1` but
//! not which conversation it is, so those of one folder are one here.

use protocol::code::Exit;
use serde_json::{Value, json};

use super::{HookCall, HookMoment};
use crate::error::Error;
use crate::output::Output;
use crate::wake_promise;

pub(super) fn call(given: &Value) -> Option<HookCall> {
    let moment = match (given["hook_event_name"].as_str()?, given["status"].as_str()) {
        ("stop", None | Some("completed")) => HookMoment::TurnEnds,
        ("sessionStart" | "stop", _) => HookMoment::Start,
        _ => return None,
    };
    let folder = given["workspace_roots"][0].as_str().or_else(|| given["cwd"].as_str())?;
    Some(HookCall { moment, listener: wake_promise::by_folder("cursor", folder.as_ref()) })
}

pub(super) fn say(text: &str, output: &Output) -> Result<Exit, Error> {
    output.json(&json!({"followup_message": text}))?;
    Ok(Exit::Ok)
}
