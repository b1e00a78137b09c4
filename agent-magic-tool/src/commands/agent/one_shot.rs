//! One question: asks it, runs the loop until no task is open, prints the answer.

use std::sync::Arc;

use agent_loop::driver::LoopCommand;
use agent_loop::journal::SessionStore;
use agent_loop::machine::Spending;
use agent_loop::model::conversation::{self, StopReason, TokenUsage};
use agent_loop::model::provider::ModelFailure;
use agent_loop::model::registry;
use agent_loop::outcome;
use agent_loop::session::Session;
use agent_side::context::Context;
use agent_side::error::Error;
use agent_side::output::Output;
use ground::config::Config;
use protocol::code::{Code, Exit};
use protocol::data_class::DataClass;
use protocol::error::ErrorBody;
use protocol::mailbox::MAX_REQUEST_BYTES;
use serde::Serialize;
use serde_json::{Value, json};

use super::observer::PlainObserver;
use super::{Args, report};

/// The outcome of a question.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    pub(super) answer: String,
    pub(super) termination: &'static str,
    /// A limit cut the work short.
    pub(super) truncated: bool,
    pub(super) session: u32,
    pub(super) session_id: String,
    pub(super) model: String,
    /// The usage of this question.
    pub(super) usage: Value,
    /// The usage of the whole session.
    pub(super) session_usage: Value,
    /// The most sensitive class of data in the conversation.
    pub(super) data_class: DataClass,
    /// Tasks whose end the model does not know about.
    pub(super) open: Vec<Value>,
    /// Why there is no answer, or why not all was done that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<ErrorBody>,
}

/// The `termination` of a question on which the work broke off, as when the session's journal cannot be written.
const BROKEN_OFF: &str = "broken_off";

/// Returns the question in the arguments; `None` to continue a session without one.
pub(super) fn question(args: &Args, context: &Context) -> Result<Option<String>, Error> {
    let question = match args.prompt.as_deref() {
        Some("-") => {
            let bytes = context.stdin.read_at_most(MAX_REQUEST_BYTES);
            let bytes = bytes.map_err(|error| Error::io("failed to read standard input", &error))?;
            let text = String::from_utf8(bytes).map_err(|_| Error::usage("the question is not valid UTF-8"))?;
            Some(text)
        }
        Some(text) => Some(text.to_owned()),
        None => args.focus.as_ref().map(|focus| {
            format!("Analyze this: {focus}\nSay what you found, what follows from it, and what you could not find out.")
        }),
    };
    match question {
        Some(text) if text.trim().is_empty() => {
            Err(Error::usage("the question is empty").hint("agent-magic-tool agent \"what is new in my mail?\""))
        }
        None if args.session.is_none() && !args.continue_newest => {
            Err(Error::usage("there is no question").hint("agent-magic-tool agent \"what is new in my mail?\""))
        }
        question => Ok(question),
    }
}

pub(super) fn run(
    question: Option<&str>,
    args: &Args,
    config: &Config,
    sessions: &SessionStore,
    context: &Context,
) -> Result<Exit, Error> {
    // A program gets only the final answer.
    let streams = context.output.is_terminal() && !args.json;
    let observer = Arc::new(PlainObserver::new(Output::new(), streams));
    let mut session = super::open(args, config, sessions, Arc::clone(&observer) as _, context)?;
    session.end_on_interrupt();
    let sender = session.take_sender();
    if let (Some(sender), Some(text)) = (&sender, question) {
        // This is the first command, so the channel has room.
        if sender.try_send(LoopCommand::Ask(text.to_owned())).is_err() {
            return Err(Error::internal("a new session did not accept the question"));
        }
    }
    drop(sender);
    let ran = session.run();
    let failure = observer.state().failure.take();
    let mut outcome = outcome(&session, failure.as_ref());
    let stop_reason = session.stop_reason().unwrap_or(StopReason::Completed);
    let mut error = match (ran, failure) {
        (Err(error), _) => {
            outcome.termination = BROKEN_OFF;
            Some(error.into())
        }
        (Ok(()), Some(failure)) if stop_reason == StopReason::ProviderFailed => {
            Some(provider_failed(failure, &outcome, context))
        }
        (Ok(()), _) => None,
    };
    if let Some(file) = &args.report
        && let Err(unwritten) = report::write(file, question, &outcome, session.machine().entries())
    {
        // What ended the question is told before what became of its report.
        error.get_or_insert(unwritten);
    }
    // From here on the question has begun, so no error may be returned: it would be told as one that never did.
    let mut status = exit(stop_reason);
    if let Some(error) = &error {
        context.output.error(error);
        status = error.exit();
        outcome.error = Some(error.body().clone());
    }
    let printed = if args.json {
        context.output.whole_json(&outcome)
    } else if error.is_none() && (!streams || outcome.truncated) {
        context.output.answer(&format!("{}\n", outcome.answer.trim_end()))
    } else {
        Ok(())
    };
    if let Err(unprinted) = printed {
        context.output.error(&unprinted);
        status = unprinted.exit();
    }
    Ok(status)
}

fn provider_failed(failure: ModelFailure, outcome: &Outcome, context: &Context) -> Error {
    let log = context.paths.agent_log();
    Error::new(Code::ModelFailed, failure.message)
        .hint(format!(
            "the provider's message is in {}; to try again: agent-magic-tool agent --session {}",
            log.display(),
            outcome.session
        ))
        .detail("termination", outcome.termination)
}

/// Returns the outcome of a question; `failure` is the one that ended it, if any.
pub(super) fn outcome(session: &Session, failure: Option<&ModelFailure>) -> Outcome {
    let reason = session.stop_reason().unwrap_or(StopReason::Completed);
    let machine = session.machine();
    let open: Vec<_> = machine
        .open()
        .map(|task| json!({"id": task.id.to_string(), "tool": task.tool, "result_file": task.result_file}))
        .collect();
    let (question, total) = session.spending();
    let last_answer = machine.answer().unwrap_or_default();
    let answer = outcome::answer_text(last_answer, reason, question, failure, open.len());
    Outcome {
        answer,
        termination: reason.as_str(),
        truncated: reason.is_truncated(),
        session: session.number(),
        session_id: session.id().to_string(),
        model: session.model().to_owned(),
        usage: usage(question),
        session_usage: usage(total),
        data_class: conversation::data_class(machine.entries()),
        open,
        error: None,
    }
}

pub(super) fn usage(spending: Spending) -> Value {
    let TokenUsage { input, output, cached } = spending.usage;
    json!({
        "requests": spending.requests,
        "input_tokens": input,
        "cached_tokens": cached,
        "output_tokens": output,
        "cost": registry::rounded_cost(spending.cost),
    })
}

fn exit(reason: StopReason) -> Exit {
    match reason {
        StopReason::Completed | StopReason::CallsClient => Exit::Ok,
        StopReason::MaxIterations | StopReason::BudgetExhausted | StopReason::Truncated => Exit::Pending,
        StopReason::Refused | StopReason::PolicyDenied | StopReason::ApprovalDenied => Exit::Refused,
        StopReason::ProviderFailed | StopReason::Cancelled => Exit::Failed,
    }
}
