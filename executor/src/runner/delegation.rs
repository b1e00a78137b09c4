//! Delegation: what runners need that have something done by others.
//!
//! Whatever they have done is asked for as by any caller, through the mailbox: the same desk, the same
//! gates, one deeper than whoever asked for it. A task that waits for another one takes no place from it
//! (`dispatcher/places.rs`). Decides nothing about models or agents.

use std::ffi::OsString;
use std::fmt::Debug;
use std::path::PathBuf;
use std::time::Duration;

use protocol::caller::Caller;
use protocol::code::Code;
use protocol::error::ErrorBody;
use protocol::handover::{PendingRequest, Reply};
use protocol::mailbox::Mailbox;
use protocol::mailbox::request::{Answer, Operation, RunRequest};
use protocol::nearest::did_you_mean;
use protocol::paths::Paths;
use protocol::task::{State, TaskId};
use protocol::tool_scope::ToolScope;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::{Failure, Invocation, Retry};
use crate::config::Config;
use crate::model::provider::ToolDefinition;
use crate::results::handover;
use crate::results::trigger::Trigger;

/// An executor that has not taken a request by then has stopped taking any.
const TAKEN_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a call that was cancelled may take to report.
const LAST_WORD: Duration = Duration::from_secs(5);

/// The subtools that a task can be delegated to.
pub trait SubtoolDirectory: Send + Sync + Debug {
    /// The definition of `name` as a model needs it, or the names that resemble it. A caller of `scope`
    /// finds nothing beyond that.
    fn find(&self, name: &str, scope: &ToolScope) -> Result<ToolDefinition, Vec<String>>;
}

/// The way back to the executor itself, as its callers go.
#[derive(Debug)]
pub struct Delegation {
    pub mailbox: Mailbox,
    pub subtools: Box<dyn SubtoolDirectory>,
    /// This program.
    pub program: PathBuf,
    /// With which a program of ours finds the same places.
    pub environment: Vec<(&'static str, OsString)>,
    /// Where the sections of the system prompt lie.
    pub prompts: PathBuf,
    /// Where the sessions of sub-agents are remembered.
    pub sessions: PathBuf,
}

/// A task that came to its end for another one.
#[derive(Debug)]
pub(super) struct CalledTask {
    pub(super) id: TaskId,
    /// Its result file.
    pub(super) result: Value,
}

/// Why a caller at this depth may not delegate, if it may not.
pub fn too_deep(tool: &str, depth: u8, config: &Config) -> Option<ErrorBody> {
    let most = config.agent.depth;
    (depth >= most).then(|| {
        let message = format!("`{tool}` delegates, and its caller was called by an agent itself: {depth} deep, the most is {most}");
        ErrorBody::new(Code::TooDeep, message)
            .hint("do it with the other subtools, or answer with what is missing; a human can raise `depth` under [agent] in config.toml")
    })
}

impl Delegation {
    pub fn new(paths: &Paths, mailbox: Mailbox, subtools: Box<dyn SubtoolDirectory>) -> std::io::Result<Self> {
        Ok(Self {
            mailbox,
            subtools,
            program: std::env::current_exe()?,
            environment: paths.environment(),
            prompts: paths.prompts(),
            sessions: paths.delegates(),
        })
    }

    /// What is said where nobody is there to delegate to.
    pub(super) fn is_missing() -> Failure {
        Failure::new(Code::Internal, "there is no executor here to delegate to")
    }

    /// The subtool that the order's caller may use under this name.
    pub(super) fn subtool(&self, name: &str, invocation: &Invocation) -> Result<ToolDefinition, Failure> {
        self.subtools.find(name, &invocation.caller.tool_scope).map_err(|nearest| {
            let hint = did_you_mean(nearest.first()).unwrap_or_else(|| {
                "search by what it should do: agent-magic-tool list tools --query=\"...\"".to_owned()
            });
            Failure::new(Code::UnknownSubtool, format!("no subtool named `{name}`")).hint(hint)
        })
    }

    /// Has `tool` run for the order's caller, and waits for its end. The same order calls once, however
    /// often it is performed: what an earlier attempt called counts.
    pub(super) async fn call(
        &self,
        invocation: &Invocation,
        tool: &str,
        input: Map<String, Value>,
        cancel: &CancellationToken,
    ) -> Result<CalledTask, Failure> {
        let key = format!("{}-call", invocation.id);
        let run = RunRequest { tool: tool.to_owned(), input, idempotency_key: Some(key), ..RunRequest::default() };
        let request = self.post(invocation, Operation::run(run))?;
        let id = tokio::select! {
            biased;
            reply = handover::reply(&request) => called_task(reply)?,
            () = cancel.cancelled() => return Err(self.give_up(invocation, tool, request.id()).await),
        };
        let (trigger, ids) = (Trigger::new(self.mailbox.clone()), [id]);
        tokio::select! {
            biased;
            _ = trigger.ended(&ids) => {}
            () = cancel.cancelled() => return Err(self.give_up(invocation, tool, id).await),
        }
        let result = self.mailbox.read_result(id).map_err(|error| {
            Failure::new(Code::Io, format!("the result of `{tool}` cannot be read: {error}"))
                .detail("id", id.to_string())
        })?;
        Ok(CalledTask { id, result: serde_json::from_slice(&result).unwrap_or_default() })
    }

    /// Puts a request of the order's caller into the mailbox.
    fn post(&self, invocation: &Invocation, operation: Operation) -> Result<PendingRequest<'_>, Failure> {
        let caller =
            Caller { depth: invocation.caller.depth.saturating_add(1), wakes: false, ..invocation.caller.clone() };
        PendingRequest::post(&self.mailbox, operation, caller).map_err(|error| {
            Failure::new(Code::Io, format!("failed to write to the mailbox: {error}")).retry(Retry::Later)
        })
    }

    /// Stops the call `id`, which the order no longer waits for. An executor that stops takes no request:
    /// then the call goes on with the next one, as the order does.
    async fn give_up(&self, invocation: &Invocation, tool: &str, id: TaskId) -> Failure {
        let failure = Failure::new(Code::Cancelled, format!("it was cancelled while it waited for `{tool}`"));
        if self.mailbox.withdraw(id) {
            return failure;
        }
        let before = self.state(id);
        if let Ok(request) = self.post(invocation, Operation::Cancel { id }) {
            if is_answered(&request).await {
                let ended = Trigger::new(self.mailbox.clone());
                // Whatever it says in time is what is known.
                drop(tokio::time::timeout(LAST_WORD, ended.ended(&[id])).await);
            } else {
                request.withdraw();
            }
        }
        let call = json!({"id": id, "tool": tool, "state": self.state(id)});
        let failure = failure.detail("call", call);
        match before {
            Some(State::AwaitingConfirmation) => failure.hint(format!(
                "`{tool}` waited for a human's yes and was not run; tell the user, or run it by itself: agent-magic-tool run {tool}"
            )),
            Some(State::Accepted | State::Queued) => failure.hint(format!("`{tool}` had not begun")),
            _ => failure.effect_possible(),
        }
    }

    /// Stops what a sub-agent of the order left open. An executor that stops leaves that to the next one.
    pub(super) async fn abandon(&self, invocation: &Invocation, session: &str) {
        let Ok(request) = self.post(invocation, Operation::Abandon { session: session.to_owned() }) else { return };
        if !is_answered(&request).await {
            tracing::debug!(session, "what a sub-agent left open is stopped by the next executor");
        }
    }

    fn state(&self, id: TaskId) -> Option<State> {
        Trigger::new(self.mailbox.clone()).states(&[id]).first().map(|(_, state)| *state)
    }
}

/// The task that a run request became.
fn called_task(reply: Option<Reply>) -> Result<TaskId, Failure> {
    match reply {
        Some(Reply::Accepted(id) | Reply::Answer(Answer::SameAs(id))) => Ok(id),
        Some(Reply::Answer(Answer::Refused(error))) => {
            // An earlier attempt made the call with another input; there is one call per invocation.
            let earlier = error.details.get("id").and_then(Value::as_str).and_then(|id| id.parse().ok());
            earlier.filter(|_| error.code == Code::IdempotencyMismatch).ok_or_else(|| Failure::from(error))
        }
        Some(Reply::Answer(_)) | None => {
            Err(Failure::new(Code::Internal, "the executor's answer does not fit a run request"))
        }
    }
}

/// Whether the executor answers `request` in time.
async fn is_answered(request: &PendingRequest<'_>) -> bool {
    tokio::time::timeout(TAKEN_TIMEOUT, handover::reply(request)).await.is_ok()
}
