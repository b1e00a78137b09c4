//! The dialect of Codex CLI, and what Gemini CLI shares with it.
//!
//! Follows Codex 0.169: `SessionStart` and `Stop` hooks get `{"hook_event_name", "session_id", "cwd", ...}`,
//! and the session's id is that of `CODEX_THREAD_ID` in its shell. `{"decision": "block", "reason"}` on
//! standard output goes on with the reason as a user's message; nothing at all lets the turn end. A hook
//! runs only once its user has trusted it, with `/hooks`.

use protocol::code::Exit;
use serde_json::{Value, json};

use super::{HookCall, HookMoment};
use crate::error::Error;
use crate::output::Output;
use crate::wake_promise;

pub(super) fn call(client: &str, given: &Value) -> Option<HookCall> {
    let moment = match given["hook_event_name"].as_str()? {
        "SessionStart" => HookMoment::Start,
        "Stop" => HookMoment::TurnEnds,
        _ => return None,
    };
    Some(HookCall { moment, listener: wake_promise::by_session(client, given["session_id"].as_str()?) })
}

pub(super) fn say(decision: &str, text: &str, output: &Output) -> Result<Exit, Error> {
    output.json(&json!({"decision": decision, "reason": text}))?;
    Ok(Exit::Ok)
}
