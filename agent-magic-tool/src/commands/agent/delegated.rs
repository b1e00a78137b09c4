//! A delegated agent: reads its brief as a JSON document, and prints its outcome as another one.
//!
//! `runner/src/agent.rs` starts this process and reads its output.

use std::sync::Arc;

use agent_loop::brief::AgentBrief;
use agent_loop::driver::LoopCommand;
use agent_loop::own_tasks::OwnTasksShell;
use agent_loop::session::{Session, SessionOptions};
use agent_side::context::Context;
use agent_side::error::Error;
use agent_side::in_process::InProcess;
use agent_side::output::Output;
use ground::config::Config;
use protocol::caller::Caller;
use protocol::code::Exit;
use protocol::mailbox::MAX_REQUEST_BYTES;
use protocol::shell::Shell;

use super::observer::PlainObserver;
use super::one_shot;

pub(super) fn run(config: &Config, context: &Context) -> Result<Exit, Error> {
    let bytes = context.stdin.read_at_most(2 * MAX_REQUEST_BYTES);
    let bytes = bytes.map_err(|error| Error::io("failed to read standard input", &error))?;
    let brief: AgentBrief = serde_json::from_slice(&bytes)
        .map_err(|error| Error::usage(format!("standard input is not a valid brief: {error}")))?;
    let observer = Arc::new(PlainObserver::new(Output::new(), false));
    let options = SessionOptions {
        model: brief.model.clone(),
        stream: Some(false),
        caller: Caller { unattended: brief.unattended, ..context.caller.clone() },
        brief: Some(brief.clone()),
        ..SessionOptions::default()
    };
    let mut shell: Arc<dyn Shell> = Arc::new(InProcess::of(context));
    if context.caller.client().is_some() {
        // It sees no more than the session that delegated to it.
        shell = Arc::new(OwnTasksShell::new(shell, &[]));
    }
    let mut session = Session::open(options, &context.paths, config, shell, Arc::clone(&observer) as _)?;
    let sender = session.take_sender().ok_or_else(|| Error::internal("a new session has no command sender"))?;
    if sender.try_send(LoopCommand::Ask(brief.prompt)).is_err() {
        return Err(Error::internal("a new session did not accept the question"));
    }
    drop(sender);
    session.run()?;
    if let Some(failure) = observer.state().failure.take() {
        let (_, spent) = session.spending();
        return Err(Error::new(failure.class.code(), failure.message).detail("usage", one_shot::usage(spent)));
    }
    context.output.whole_json(&one_shot::outcome(&session, None))?;
    Ok(Exit::Ok)
}
