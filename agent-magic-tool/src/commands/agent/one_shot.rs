//! One question: asked, worked on until nothing is open, answered.

use std::sync::Arc;

use executor::agent::driver::LoopCommand;
use executor::agent::journal::SessionStore;
use executor::agent::machine::Spending;
use executor::agent::session::Session;
use executor::config::Config;
use executor::model::conversation::{StopReason, TokenUsage};
use protocol::code::{Code, Exit};
use protocol::mailbox::MAX_REQUEST_BYTES;
use serde::Serialize;
use serde_json::{Value, json};

use super::observer::PlainObserver;
use super::{Args, report};
use crate::context::Context;
use crate::error::Error;
use crate::output::Output;

/// What came of a question.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    pub(super) answer: String,
    pub(super) termination: &'static str,
    /// The answer is not what it could have been with more room.
    pub(super) truncated: bool,
    pub(super) session: u32,
    pub(super) session_id: String,
    pub(super) model: String,
    /// For this question, and for the whole session.
    pub(super) usage: Value,
    pub(super) session_usage: Value,
    /// Tasks whose end the model does not know.
    pub(super) open: Vec<Value>,
}

/// The question that the words ask; `None` if a session is only to be gone on with.
pub(super) fn question(args: &Args, context: &Context) -> Result<Option<String>, Error> {
    let question = match args.prompt.as_deref() {
        Some("-") => {
            let bytes = context.stdin.read_at_most(MAX_REQUEST_BYTES);
            let bytes = bytes.map_err(|error| Error::io("standard input cannot be read", &error))?;
            let text = String::from_utf8(bytes).map_err(|_| Error::usage("the question is no UTF-8 text"))?;
            Some(text)
        }
        Some(text) => Some(text.to_owned()),
        None => args.focus.as_ref().map(|focus| {
            format!("Analyse this: {focus}\nSay what you found, what follows from it, and what you could not find out.")
        }),
    };
    match question {
        Some(text) if text.trim().is_empty() => {
            Err(Error::usage("the question is empty").hint("agent-magic-tool agent \"what is new in my mail?\""))
        }
        None if args.session.is_none() && !args.go_on => {
            Err(Error::usage("there is no question").hint("agent-magic-tool agent \"what is new in my mail?\""))
        }
        question => Ok(question),
    }
}

pub(super) fn run(
    question: Option<&str>,
    args: &Args,
    config: Config,
    sessions: &SessionStore,
    context: &Context,
) -> Result<Exit, Error> {
    // A program wants the answer alone.
    let streams = context.output.is_terminal() && !args.json;
    let observer = Arc::new(PlainObserver::new(Output::new(), streams));
    let mut session = super::open(args, config, sessions, Arc::clone(&observer) as _, context)?;
    session.end_on_interrupt();
    let commands = session.commands();
    if let (Some(commands), Some(text)) = (&commands, question) {
        // There is room: nobody else has wished anything yet.
        if commands.try_send(LoopCommand::Ask(text.to_owned())).is_err() {
            return Err(Error::internal("a new session took no question"));
        }
    }
    drop(commands);
    session.run()?;
    let failed = observer.heard().failed.take();
    let outcome = outcome(&session);
    if let Some(file) = &args.report {
        report::write(file, question, &outcome, session.machine().entries())?;
    }
    let termination = session.termination().unwrap_or(StopReason::Completed);
    if let (StopReason::ProviderFailed, Some(failed)) = (termination, failed) {
        let log = context.paths.state.join("agent.log");
        return Err(Error::new(Code::ModelFailed, failed.message).hint(format!(
            "what the provider said: {}; to try again: agent-magic-tool agent --session {}",
            log.display(),
            outcome.session
        )));
    }
    if args.json {
        context.output.json(&outcome)?;
    } else if !streams || outcome.truncated {
        context.output.text(&format!("{}\n", outcome.answer.trim_end()))?;
    }
    Ok(exit(termination))
}

pub(super) fn outcome(session: &Session) -> Outcome {
    let reason = session.termination().unwrap_or(StopReason::Completed);
    let machine = session.machine();
    let open: Vec<_> = machine
        .open()
        .map(|task| json!({"id": task.id.to_string(), "tool": task.tool, "result_file": task.result_file}))
        .collect();
    let (question, all) = session.spent();
    let said = machine.answer().unwrap_or_default();
    let answer = match reason {
        StopReason::BudgetExhausted => {
            let unread = if open.is_empty() { String::new() } else { format!(" {} tasks are still open.", open.len()) };
            let tokens = question.usage.input + question.usage.output;
            let stopped = format!(
                "[Stopped: the budget of this question is used up, after {} requests and {tokens} tokens.{unread}]",
                question.requests
            );
            [said, &stopped].join("\n\n").trim_start().to_owned()
        }
        _ => said.to_owned(),
    };
    Outcome {
        answer,
        termination: reason.as_str(),
        truncated: reason.is_truncated(),
        session: session.number(),
        session_id: session.id().to_string(),
        model: session.model().to_owned(),
        usage: usage(question),
        session_usage: usage(all),
        open,
    }
}

fn usage(spent: Spending) -> Value {
    let TokenUsage { input, output, cached } = spent.usage;
    json!({"requests": spent.requests, "input_tokens": input, "cached_tokens": cached, "output_tokens": output, "cost": spent.cost})
}

fn exit(reason: StopReason) -> Exit {
    match reason {
        StopReason::Completed => Exit::Ok,
        StopReason::MaxIterations | StopReason::BudgetExhausted => Exit::Pending,
        StopReason::PolicyDenied | StopReason::ApprovalDenied => Exit::Refused,
        StopReason::ProviderFailed | StopReason::Cancelled => Exit::Failed,
    }
}
