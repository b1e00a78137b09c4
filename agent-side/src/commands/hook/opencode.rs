//! The hook protocol of our own OpenCode plugin, which `setup` installs.
//!
//! Follows 1.18: the plugin sets the session's id in the shell (`shell.env`), calls the hook when the session
//! is idle, and passes its text to `session.promptAsync`. `opencode run` ends with its first turn, so there the
//! plugin does not register the session, and the model is told to use `wait`.

use protocol::code::Exit;
use serde_json::{Value, json};

use super::{HookCall, blocking};
use crate::error::Error;
use crate::output::Output;

pub(super) fn parse(input: &Value) -> Option<HookCall> {
    blocking::parse("opencode", input)
}

pub(super) fn respond(text: &str, output: &Output) -> Result<Exit, Error> {
    output.whole_json(&json!({"wake": text}))?;
    Ok(Exit::Ok)
}
