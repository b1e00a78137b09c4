//! The dialect of OpenCode: that of our own plugin, which `setup` installs.
//!
//! Follows 1.18: the plugin names the session to the shell (`shell.env`), calls us when the session is idle,
//! and hands our text to `session.promptAsync`. `opencode run` ends with its first turn, so there the plugin
//! announces nothing, and the model is told to wait.

use protocol::code::Exit;
use serde_json::{Value, json};

use super::{HookCall, blocking};
use crate::error::Error;
use crate::output::Output;

pub(super) fn call(given: &Value) -> Option<HookCall> {
    blocking::call("opencode", given)
}

pub(super) fn say(text: &str, output: &Output) -> Result<Exit, Error> {
    output.json(&json!({"wake": text}))?;
    Ok(Exit::Ok)
}
