//! The dialect of Codex CLI, and what Gemini CLI shares with it.
//!
//! Follows Codex 0.169: `SessionStart` and `Stop` hooks get `{"hook_event_name", "session_id", "cwd", ...}`,
//! and the session's id is that of `CODEX_THREAD_ID` in its shell. `{"decision": "block", "reason"}` on
//! standard output goes on with the reason as a user's message; nothing at all lets the turn end. A hook
//! runs only once its user has trusted it, with `/hooks`.

use protocol::code::Exit;
use serde_json::{Value, json};

use super::{Call, Moment};
use crate::error::Error;
use crate::output::Output;
use crate::waking;

pub(super) fn call(client: &str, given: &Value) -> Option<Call> {
    let moment = match given["hook_event_name"].as_str()? {
        "SessionStart" => Moment::Start,
        "Stop" => Moment::TurnEnds,
        _ => return None,
    };
    Some(Call { moment, listener: waking::by_session(client, given["session_id"].as_str()?) })
}

pub(super) fn say(decision: &str, text: &str, output: &Output) -> Result<Exit, Error> {
    output.json(&json!({"decision": decision, "reason": text}))?;
    Ok(Exit::Ok)
}
