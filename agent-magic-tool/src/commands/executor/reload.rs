//! `executor reload`: applies the configuration now and says what changed, by key.
//!
//! The executor reads a changed file by itself before it does anything else. So this command only asks it: the answer
//! is about the file as it is now.

use agent_side::context::Context;
use agent_side::error::Error;
use executor::intake::policy::Policy;
use executor::intake::targets::{self, Unmatched};
use ground::config::ConfigText;
use protocol::code::{Code, Exit};
use protocol::mailbox::Mailbox;
use serde_json::json;

use super::{ask_status, executor_of, waits_for_restart};

pub(super) fn run(context: &Context) -> Result<Exit, Error> {
    let mailbox = Mailbox::open(&context.paths.mailbox)?;
    if executor_of(&mailbox)?.is_none() {
        let text = ConfigText::of_user(&context.paths)?;
        let config = text.parse()?.config;
        Policy::new(&config)?;
        let unmatched = targets::unmatched(&config, &context.paths);
        if let Some(Unmatched { path, message, .. }) = unmatched.iter().find(|unmatched| unmatched.is_error) {
            return Err(text.mistake_at(path, message).into());
        }
        context.output.json(&json!({"running": false, "mailbox": mailbox.root()}))?;
        context.output.note("no executor is running; the next one starts with this configuration");
        return Ok(Exit::Ok);
    }
    let mut config = ask_status(&mailbox, context)?["config"].take();
    let problem = &config["problem"];
    if let Some(message) = problem["message"].as_str() {
        let hint = problem["hint"].as_str().unwrap_or_default();
        return Err(Error::new(Code::BadConfig, message)
            .hint(hint)
            .detail("in_force_since", config["applied_at"].clone())
            .detail("version", config["version"].clone()));
    }
    if let Some(keys) = waits_for_restart(&config) {
        context.output.note(&format!("takes effect after `agent-magic-tool executor stop`: {keys}"));
    }
    if let Some(config) = config.as_object_mut() {
        config.shift_remove("problem");
    }
    context.output.json(&config)?;
    Ok(Exit::Ok)
}
