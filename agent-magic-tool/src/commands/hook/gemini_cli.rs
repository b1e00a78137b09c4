//! The dialect of Gemini CLI.
//!
//! Follows 0.61: `AfterAgent` is called with `{"session_id", "cwd", "prompt", ...}` when the model has
//! answered; `{"decision": "deny", "reason"}` sends the reason to it as a new prompt. Its shell says
//! `GEMINI_CLI=1` but not which session it is, so sessions of one folder are one here.

use serde_json::Value;

use super::{HookCall, HookMoment};
use crate::wake_promise;

pub(super) fn call(given: &Value) -> Option<HookCall> {
    let moment = match given["hook_event_name"].as_str()? {
        "SessionStart" => HookMoment::Start,
        "AfterAgent" => HookMoment::TurnEnds,
        _ => return None,
    };
    let folder = given["cwd"].as_str()?;
    Some(HookCall { moment, listener: wake_promise::by_folder("gemini-cli", folder.as_ref()) })
}
