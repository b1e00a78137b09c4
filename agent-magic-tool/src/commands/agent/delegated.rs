//! An agent that was called by another one: told what to do in one JSON document, and answering in one.
//!
//! `executor/src/runner/agent.rs` starts it and reads what it prints.

use std::sync::Arc;

use executor::agent::driver::LoopCommand;
use executor::agent::session::{Session, SessionOptions};
use executor::config::Config;
use executor::runner::agent::AgentBrief;
use protocol::code::{Code, Exit};
use protocol::mailbox::MAX_REQUEST_BYTES;

use super::observer::PlainObserver;
use super::one_shot;
use crate::context::Context;
use crate::error::Error;
use crate::in_process::InProcess;
use crate::output::Output;

pub(super) fn run(config: Config, context: &Context) -> Result<Exit, Error> {
    let bytes = context.stdin.read_at_most(2 * MAX_REQUEST_BYTES);
    let bytes = bytes.map_err(|error| Error::io("standard input cannot be read", &error))?;
    let brief: AgentBrief = serde_json::from_slice(&bytes)
        .map_err(|error| Error::usage(format!("standard input does not say what to do: {error}")))?;
    let observer = Arc::new(PlainObserver::new(Output::new(), false));
    let opening = SessionOptions {
        model: brief.model.clone(),
        stream: Some(false),
        caller: context.caller.clone(),
        brief: Some(brief.clone()),
        ..SessionOptions::default()
    };
    let shell = Arc::new(InProcess::of(context));
    let mut session = Session::open(opening, &context.paths, config, shell, Arc::clone(&observer) as _)?;
    let commands = session.commands().ok_or_else(|| Error::internal("a new session takes no question"))?;
    if commands.try_send(LoopCommand::Ask(brief.prompt)).is_err() {
        return Err(Error::internal("a new session took no question"));
    }
    drop(commands);
    session.run()?;
    if let Some(failed) = observer.heard().failed.take() {
        return Err(Error::new(Code::ModelFailed, failed.message));
    }
    context.output.json(&one_shot::outcome(&session))?;
    Ok(Exit::Ok)
}
