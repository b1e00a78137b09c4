//! `agent`: our own loop, for one question or as an interactive chat.
//!
//! Parses the arguments and prints the results; the loop itself is in `agent-loop/src/`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use agent_loop::journal::SessionStore;
use agent_loop::model::prompt::PromptMode;
use agent_loop::model::view;
use agent_loop::model_factory::ModelFactory;
use agent_loop::session::{Session, SessionOptions};
use agent_side::commands::tasks;
use agent_side::context::Context;
use agent_side::error::Error;
use agent_side::in_process::InProcess;
use ground::config::Config;
use ground::config::log::{self, LogTarget};
use protocol::caller::Caller;
use protocol::code::{Code, Exit};
use protocol::command_executor::definition;
use protocol::error::chain;
use serde_json::{Value, json};

use crate::profile;

mod chat;
mod delegated;
mod observer;
mod one_shot;
mod report;
mod wording;

/// The `termination` of a question that never began.
const NOT_STARTED: &str = "not_started";

#[derive(Debug, Clone, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct Args {
    /// The question; `-` reads it from standard input
    #[arg(value_name = "PROMPT")]
    prompt: Option<String>,
    /// The model to use: a name in `[models]`
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Continue the session with this number or id
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
    /// Continue the newest session that began in this folder
    #[arg(long = "continue", conflicts_with = "session")]
    continue_newest: bool,
    /// Keep the agent focused on this; without a question, analyze it
    #[arg(long, value_name = "TEXT")]
    focus: Option<String>,
    /// Write a report to this file, as Markdown: the answer, the tasks, the cost
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// The most model requests for one question
    #[arg(long, value_name = "N")]
    steps: Option<u32>,
    /// Refuse every subtool that is not declared read-only, even if the policy allows it
    #[arg(long)]
    read_only: bool,
    /// The rights of the agent: a name in `[profiles]`
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// If a task needs approval and no human has the page open: `fail` refuses it, `wait` waits for a human;
    /// by default it waits on a terminal and fails elsewhere
    #[arg(long, value_name = "WHAT", value_parser = ["wait", "fail"])]
    if_no_approver: Option<String>,
    /// Print one JSON document: the answer, how the question ended, its cost, the open tasks; also if it failed
    #[arg(long)]
    json: bool,
    /// Receive each answer in one piece instead of streaming it
    #[arg(long)]
    no_stream: bool,
    /// Run as a delegated agent: read the brief, a JSON document, from standard input
    #[arg(long, hide = true, conflicts_with = "json")]
    delegated: bool,
    /// List the sessions
    #[arg(long, conflicts_with_all = ["prompt", "session", "continue_newest"])]
    sessions: bool,
    /// Print the system prompt, its sections and its estimated number of tokens
    #[arg(long, conflicts_with_all = ["prompt", "session", "continue_newest"])]
    show_prompt: bool,
    /// Delete a session
    #[arg(long, value_name = "SESSION", conflicts_with_all = ["prompt", "session", "continue_newest"])]
    delete: Option<String>,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<Exit, Error> {
    let sessions = SessionStore::in_state(&context.paths.state);
    // Those of other callers are among them.
    let is_about_others = args.sessions || args.continue_newest || args.session.is_some() || args.delete.is_some();
    if is_about_others {
        profile::refuse_restricted("agent", context)?;
    }
    if args.sessions {
        context.output.json(&sessions.list()?)?;
        return Ok(Exit::Ok);
    }
    if let Some(word) = &args.delete {
        return delete(word, &sessions, context);
    }
    let config = Config::in_force(&context.paths)?;
    if args.show_prompt {
        context.output.whole_json(&system_prompt(args, &config, context)?)?;
        return Ok(Exit::Ok);
    }
    start_log(&config, context)?;
    if args.delegated {
        return delegated::run(&config, context);
    }
    if chat::is_wanted(args, context) {
        return chat::run(args, &config, &sessions, context);
    }
    let question = one_shot::question(args, context)?;
    one_shot::run(question.as_deref(), args, &config, &sessions, context)
}

/// Whether `arguments`, which need not be right, are of a question whose caller reads one JSON document.
pub(crate) fn wants_document(arguments: &[OsString]) -> bool {
    let mut words = arguments.iter().skip(1).skip_while(|word| *word == "--whole");
    words.next().is_some_and(|command| command == "agent")
        && words.take_while(|word| *word != "--").any(|word| word == "--json")
}

/// The document of a question that never began, because of `error`.
pub(crate) fn not_started(error: &Error) -> Value {
    json!({"termination": NOT_STARTED, "error": error.body()})
}

/// Deletes a session, and the results of its tasks that have ended.
fn delete(word: &str, sessions: &SessionStore, context: &Context) -> Result<Exit, Error> {
    let deleted = sessions.delete(word)?;
    let mut outcome = json!({ "deleted": deleted.id });
    match tasks::forget(deleted.label(), context) {
        Ok((forgotten, open)) => {
            outcome["forgotten"] = forgotten.into();
            outcome["open"] = json!(open);
        }
        // The session is deleted anyway, and results expire.
        Err(error) => context.output.note(&format!("failed to delete its results: {}", error.body().message)),
    }
    context.output.whole_json(&outcome)?;
    Ok(Exit::Ok)
}

/// Opens the session that the arguments name, or creates one.
fn open(
    args: &Args,
    config: &Config,
    sessions: &SessionStore,
    observer: Arc<dyn agent_loop::driver::LoopObserver>,
    context: &Context,
) -> Result<Session, Error> {
    let newest = if args.continue_newest { Some(newest(sessions, context)?) } else { None };
    let unattended = match &args.if_no_approver {
        Some(given) => given == "fail",
        None => !context.output.stderr_is_terminal(),
    };
    let options = SessionOptions {
        model: args.model.clone(),
        session: args.session.clone().or(newest.map(|number| number.to_string())),
        steps: args.steps,
        stream: args.no_stream.then_some(false),
        focus: args.focus.clone(),
        brief: None,
        caller: caller(args, unattended, config, context)?,
    };
    let shell = Arc::new(InProcess::of(context));
    Ok(Session::open(options, &context.paths, config, shell, observer)?)
}

/// Who the agent calls as.
fn caller(args: &Args, unattended: bool, config: &Config, context: &Context) -> Result<Caller, Error> {
    let caller = profile::caller(args.profile.as_deref(), config, context)?;
    Ok(Caller { unattended, read_only: caller.read_only || args.read_only, ..caller })
}

/// The newest session that began in the caller's folder.
fn newest(sessions: &SessionStore, context: &Context) -> Result<u32, Error> {
    sessions.newest_in(context.caller.folder.as_deref())?.ok_or_else(|| {
        Error::new(Code::NotFound, "no session began in this folder")
            .hint("leave out --continue to start one; the sessions: agent-magic-tool agent --sessions")
    })
}

/// Returns the system prompt and the tool definition that a model would get.
fn system_prompt(args: &Args, config: &Config, context: &Context) -> Result<Value, Error> {
    let caller = caller(args, false, config, context)?;
    let mode = PromptMode::of(config, config.restricts_to_reading(&caller));
    let model_factory = ModelFactory::new(config, &context.paths, mode, args.focus.clone())?;
    let (sections, text) = model_factory.system_prompt(args.model.as_deref())?;
    let tokens = view::estimate_tokens(&text) + view::estimate_tokens(&definition().to_string());
    Ok(json!({"tokens": tokens, "sections": sections, "prompt": text, "tools": [definition()]}))
}

/// Sends the log to a file, away from the terminal.
fn start_log(config: &Config, context: &Context) -> Result<(), Error> {
    let io = |error| Error::io("failed to create the state folder", &error);
    context.paths.create_state().map_err(io)?;
    log::start(LogTarget::File(&context.paths.agent_log()), &config.executor)
        .map_err(|error| Error::new(Code::Io, chain(&error)))
}
