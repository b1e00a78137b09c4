//! `agent`: our own loop, for one question or for a talk.
//!
//! Here are its words and what it prints; the loop itself is `executor/src/agent/`.

use std::path::PathBuf;
use std::sync::Arc;

use executor::agent::journal::{self, SessionStore};
use executor::agent::session::{ModelFactory, Session, SessionOptions};
use executor::config::Config;
use executor::config::log::{self, LogTarget};
use executor::model::view;
use protocol::caller::Caller;
use protocol::code::Exit;
use protocol::command_executor::definition;
use protocol::error::chain;
use serde_json::{Value, json};

use super::tasks;
use crate::commands::run::NoApprover;
use crate::context::Context;
use crate::error::Error;
use crate::in_process::InProcess;

mod chat;
mod delegated;
mod observer;
mod one_shot;
mod report;

#[derive(Debug, Clone, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a word of the command line")]
pub(crate) struct Args {
    /// The question; `-` reads it from standard input
    #[arg(value_name = "PROMPT")]
    prompt: Option<String>,
    /// The model that answers: a name in `[models]`
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Go on with this session: its number, or its id
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
    /// Go on with the newest session that began in this folder
    #[arg(long = "continue", conflicts_with = "session")]
    go_on: bool,
    /// Keep to this; without a question, analyse it
    #[arg(long, value_name = "TEXT")]
    focus: Option<String>,
    /// Write the answer and how it came about into this file, as Markdown
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// How many requests a question may take
    #[arg(long, value_name = "N")]
    steps: Option<u32>,
    /// Refuse every subtool that is not declared to only read, whatever is allowed otherwise
    #[arg(long)]
    read_only: bool,
    /// If a task needs a yes and no human has the page open: `fail` refuses it at once, `wait` waits for one;
    /// by default it waits where a person looks on
    #[arg(long, value_name = "WHAT")]
    if_no_approver: Option<NoApprover>,
    /// Print one JSON document: the answer, how it ended, what it cost, what is still open
    #[arg(long)]
    json: bool,
    /// Take each answer whole, not piece by piece
    #[arg(long)]
    no_stream: bool,
    /// For an agent that was called by another one: a JSON document on standard input says what to do
    #[arg(long, hide = true)]
    delegated: bool,
    /// List the sessions
    #[arg(long, conflicts_with_all = ["prompt", "session", "go_on"])]
    sessions: bool,
    /// Print the system prompt, its sections and about how many tokens it has
    #[arg(long, conflicts_with_all = ["prompt", "session", "go_on"])]
    show_prompt: bool,
    /// Delete a session
    #[arg(long, value_name = "SESSION", conflicts_with_all = ["prompt", "session", "go_on"])]
    delete: Option<String>,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<Exit, Error> {
    let sessions = SessionStore::in_state(&context.paths.state);
    if args.sessions {
        context.output.json(&sessions.list()?)?;
        return Ok(Exit::Ok);
    }
    if let Some(word) = &args.delete {
        return delete(word, &sessions, context);
    }
    let config = Config::read(&context.paths)?;
    if args.show_prompt {
        context.output.json(&system_prompt(args, config, context)?)?;
        return Ok(Exit::Ok);
    }
    start_log(&config, context)?;
    if args.delegated {
        return delegated::run(config, context);
    }
    if chat::is_wanted(args, context) {
        return chat::run(args, &config, &sessions, context);
    }
    let question = one_shot::question(args, context)?;
    one_shot::run(question.as_deref(), args, config, &sessions, context)
}

/// Deletes a session, and has what it ran forgotten, as far as that has ended.
fn delete(word: &str, sessions: &SessionStore, context: &Context) -> Result<Exit, Error> {
    let id = sessions.delete(word)?;
    let mut told = serde_json::json!({ "deleted": id });
    match tasks::forget(journal::label(id), context) {
        Ok((forgotten, open)) => {
            told["forgotten"] = forgotten.into();
            told["open"] = open;
        }
        // The session is gone all the same; results go by themselves, after a while.
        Err(error) => context.output.note(&format!("its results are still there: {}", error.body().message)),
    }
    context.output.json(&told)?;
    Ok(Exit::Ok)
}

/// Opens the session that the words name.
fn open(
    args: &Args,
    config: Config,
    sessions: &SessionStore,
    observer: Arc<dyn executor::agent::driver::LoopObserver>,
    context: &Context,
) -> Result<Session, Error> {
    let newest = if args.go_on { sessions.last_in(context.caller.folder.as_deref())? } else { None };
    let alone = match args.if_no_approver {
        Some(given) => given == NoApprover::Fail,
        None => !context.output.stderr_is_terminal(),
    };
    let opening = SessionOptions {
        model: args.model.clone(),
        session: args.session.clone().or(newest.map(|number| number.to_string())),
        steps: args.steps,
        stream: args.no_stream.then_some(false),
        focus: args.focus.clone(),
        brief: None,
        caller: Caller {
            unattended: alone,
            read_only: context.caller.read_only || args.read_only,
            ..context.caller.clone()
        },
    };
    let shell = Arc::new(InProcess::of(context));
    Ok(Session::open(opening, &context.paths, config, shell, observer)?)
}

/// What a model would be told first.
fn system_prompt(args: &Args, config: Config, context: &Context) -> Result<Value, Error> {
    let models = ModelFactory::new(config, &context.paths, args.focus.clone(), None)?;
    let (sections, text) = models.prompt(args.model.as_deref())?;
    let tokens = view::estimate_tokens(&text) + view::estimate_tokens(&definition().to_string());
    Ok(json!({"tokens": tokens, "sections": sections, "prompt": text, "tools": [definition()]}))
}

/// What a person need not read goes into a file.
fn start_log(config: &Config, context: &Context) -> Result<(), Error> {
    let io = |error| Error::io("the state folder cannot be written", &error);
    context.paths.create_state().map_err(io)?;
    log::start(LogTarget::File(&context.paths.state.join("agent.log")), &config.executor)
        .map_err(|error| Error::new(protocol::code::Code::Io, chain(&error)))
}
