//! Delegation: how a runner has another task run.
//!
//! A runner makes its requests like any caller, through the mailbox: they pass the same intake, policy and
//! confirmations, and are one level deeper than the caller of the runner. A task that waits for a delegated task
//! does not occupy a slot (`dispatcher/src/slots.rs`). Decides nothing about models or agents.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use agent_loop::model::ledger::Ledger;
use agent_loop::model::provider::ToolDefinition;
use catalog::Catalog;
use catalog::absent::needed_is_absent;
use ground::config::Config;
use ground::results::handover;
use ground::results::trigger::Trigger;
use ground::task::question_key::{QUESTION, QuestionKey};
use protocol::caller::Caller;
use protocol::code::Code;
use protocol::data_class::DataClass;
use protocol::error::ErrorBody;
use protocol::handover::{PendingRequest, Reply};
use protocol::mailbox::Mailbox;
use protocol::mailbox::request::{Answer, Operation, RunRequest};
use protocol::paths::Paths;
use protocol::task::{State, TaskId};
use protocol::tool_scope::ToolScope;
use serde_json::{Map, Value, json};
use tokio::process::Command;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Failure, Invocation, Retry};

/// After this long without an answer, assume that the executor is stopping and takes no more requests.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a cancelled call may take to report its outcome.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

/// What a runner needs to make requests to its own executor.
#[derive(Debug)]
pub struct Delegation {
    pub mailbox: Mailbox,
    pub subtools: watch::Receiver<Arc<Catalog>>,
    /// The executable of this program.
    pub program: PathBuf,
    /// Environment that points a child at the same folders.
    pub environment: Vec<(&'static str, OsString)>,
    /// The folder with the sections of the system prompt.
    pub prompts: PathBuf,
    /// The folder with the journals of sub-agents.
    pub sessions: PathBuf,
    /// The folder with the records of scripts.
    pub scripts: PathBuf,
    /// What the models cost, day by day.
    pub ledger: Arc<Ledger>,
    /// Watches the results, from the first call on.
    results: OnceLock<Trigger>,
    /// The requests that this executor made: no caller asks a question in the name of a task, or makes a part of one.
    posted: Mutex<HashMap<TaskId, Posted>>,
}

/// What a request of this executor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Posted {
    Call,
    /// The built-in question, which only [`Delegation::ask`] asks.
    Question,
    /// What a human has done from the page.
    OfHuman,
}

/// The idempotency key of a call.
#[derive(Debug)]
pub(super) struct CallKey {
    text: String,
    /// Whether a call with this key is the same whatever its input is. Otherwise the call fails if that is another one.
    may_differ: bool,
    posted: Posted,
}

impl CallKey {
    /// Of the only call that an attempt makes under this key.
    pub(super) fn shared(text: String) -> Self {
        Self { text, may_differ: true, posted: Posted::Call }
    }

    /// Of a call that is known with its input.
    pub(super) fn exact(text: String) -> Self {
        Self { text, may_differ: false, posted: Posted::Call }
    }
}

/// A delegated task that has ended.
#[derive(Debug)]
pub(super) struct CalledTask {
    pub(super) id: TaskId,
    /// The content of its result file.
    pub(super) result: Value,
}

impl CalledTask {
    /// Its error, as that of a call of `tool`, without details.
    pub(super) fn error(&self, tool: &str) -> ErrorBody {
        let error = &self.result["error"];
        let code = serde_json::from_value(error["code"].clone()).unwrap_or(Code::Internal);
        let message = format!("`{tool}` failed: {}", error["message"].as_str().unwrap_or("it gave no reason"));
        let body = ErrorBody::new(code, message);
        match error["hint"].as_str() {
            Some(hint) => body.hint(hint),
            None => body,
        }
    }

    /// Its failure, as that of the invocation that called `tool`.
    pub(super) fn failure(&self, tool: &str) -> Failure {
        let error = self.error(tool);
        let code = error.code;
        let failure = Failure::from(error);
        let is_unknown = code == Code::UnknownOutcome && self.result["resolution"].is_null();
        let failure = if is_unknown { failure.effect_possible() } else { failure };
        failure.detail("call", json!({"id": self.id, "tool": tool, "state": self.result["status"]}))
    }

    /// All of its data, also what lies beside its result file; data that is not JSON as a string.
    pub(super) fn data(&self, mailbox: &Mailbox) -> io::Result<Value> {
        let Some(path) = self.result["_meta"]["data_file"].as_str() else { return Ok(self.result["data"].clone()) };
        let extension =
            if Path::new(path).extension().is_some_and(|extension| extension == "json") { "json" } else { "txt" };
        let mut file = mailbox.open_data(self.id, extension)?;
        if extension == "json" {
            return Ok(serde_json::from_reader(io::BufReader::new(file))?);
        }
        let mut text = String::new();
        io::Read::read_to_string(&mut file, &mut text)?;
        Ok(Value::String(text))
    }
}

/// Returns the error for a caller at this depth that may not delegate; `None` if it may.
pub fn too_deep(tool: &str, depth: u8, config: &Config) -> Option<ErrorBody> {
    let limit = config.agent.depth;
    (depth >= limit).then(|| {
        let message =
            format!("`{tool}` delegates to other tasks, which is not allowed at depth {depth}: the limit is {limit}");
        let hint =
            "use other subtools, or report what is missing; a human can raise `depth` under [agent] in config.toml";
        ErrorBody::new(Code::TooDeep, message).hint(hint)
    })
}

impl Delegation {
    pub fn new(paths: &Paths, mailbox: Mailbox, subtools: watch::Receiver<Arc<Catalog>>) -> io::Result<Self> {
        Ok(Self {
            mailbox,
            subtools,
            program: std::env::current_exe()?,
            environment: paths.environment(),
            prompts: paths.prompts(),
            sessions: paths.delegates(),
            scripts: paths.scripts(),
            ledger: Arc::new(Ledger::in_state(&paths.state)),
            results: OnceLock::new(),
            posted: Mutex::default(),
        })
    }

    /// The failure without an executor to delegate to.
    pub(super) fn unavailable() -> Failure {
        Failure::new(Code::Internal, "there is no executor to delegate to")
    }

    /// The failure if a definition needs the subtool `name`, and its caller has only a part of all subtools, without this
    /// one. It does not name what the caller must not know.
    pub(super) fn excluded(&self, name: &str, invocation: &Invocation) -> Option<Failure> {
        let scope = &invocation.caller.tool_scope;
        if scope.is_everything() || self.subtools.borrow().usable(name, scope).is_some() {
            return None;
        }
        Some(needed_is_absent().into())
    }

    /// Returns the subtool `name` if the caller may use it.
    pub(super) fn subtool(&self, name: &str, invocation: &Invocation) -> Result<ToolDefinition, Failure> {
        if let Some(failure) = self.excluded(name, invocation) {
            return Err(failure);
        }
        let scope = &invocation.caller.tool_scope;
        let catalog = self.subtools.borrow();
        let found = catalog.usable(name, scope).ok_or_else(|| catalog.absent(name, scope));
        let found = found.map_err(|ErrorBody { code, message, hint, .. }| {
            let failure = Failure::new(code, message);
            match hint {
                Some(hint) => failure.hint(hint),
                None => failure,
            }
        })?;
        let definition = &found.definition;
        let (description, parameters) = (definition.description.clone(), definition.input.clone().into());
        Ok(ToolDefinition { name: name.to_owned(), description, parameters, strict: None })
    }

    /// Runs `tool` for the caller of the invocation and for a model that may get data up to `trust`, and waits until
    /// the task ends.
    ///
    /// All attempts of one task share one call: a later attempt gets the task that an earlier attempt started.
    /// When `cancel` fires, the call is cancelled too.
    pub(super) async fn call(
        &self,
        invocation: &Invocation,
        tool: &str,
        input: Map<String, Value>,
        trust: DataClass,
        cancel: &CancellationToken,
    ) -> Result<CalledTask, Failure> {
        let caller = invocation.caller.clone().trusted_with(trust);
        let invocation = &Invocation { caller, ..invocation.clone() };
        let key = format!("{}-call", invocation.id);
        self.call_with_key(invocation, CallKey::shared(key), tool, input, cancel, || {}).await
    }

    /// Asks the human, and returns the task of the question when it has ended. Calls `on_shown` once the question waits on the page.
    pub(super) async fn ask(
        &self,
        invocation: &Invocation,
        key: QuestionKey<'_>,
        input: Map<String, Value>,
        cancel: &CancellationToken,
        on_shown: impl FnOnce() + Send,
    ) -> Result<CalledTask, Failure> {
        // It is not the agent that asks, so what the agent may use says nothing about it.
        let caller = Caller { tool_scope: ToolScope::default(), ..invocation.caller.clone() };
        let invocation = &Invocation { caller, ..invocation.clone() };
        let key = key.text(&invocation.id);
        let key = CallKey { posted: Posted::Question, ..CallKey::shared(key) };
        self.call_with_key(invocation, key, QUESTION, input, cancel, on_shown).await
    }

    /// Runs `tool` for the caller of the invocation, and waits until the task ends. All attempts share the call with
    /// this `key`.
    pub(super) async fn call_with_key(
        &self,
        invocation: &Invocation,
        CallKey { text: key, may_differ, posted }: CallKey,
        tool: &str,
        input: Map<String, Value>,
        cancel: &CancellationToken,
        on_waiting: impl FnOnce() + Send,
    ) -> Result<CalledTask, Failure> {
        let run = RunRequest {
            tool: tool.to_owned(),
            input,
            idempotency_key: Some(key),
            // What it got before may be in the input.
            data_class: invocation.heard.most(),
            ..RunRequest::default()
        };
        let id = TaskId::new();
        let results = self.results().of_task(id);
        let mark = PostedMark::of(id, posted, self);
        let request = self.post_as(id, invocation, Operation::run(run))?;
        let reply = tokio::select! {
            biased;
            reply = handover::reply_to_run(&request, &results) => Some(reply),
            () = cancel.cancelled() => None,
        };
        drop(mark);
        let Some(reply) = reply else { return Err(self.cancel_call(invocation, tool, id).await) };
        let requested = id;
        let id = called_task(reply, may_differ)?;
        // A call that was made before has another id.
        let results = if id == requested { results } else { self.results().of_task(id) };
        if self.state(id) == Some(State::AwaitingConfirmation) {
            on_waiting();
        }
        tokio::select! {
            biased;
            () = results.wait_for(id) => {}
            () = cancel.cancelled() => return Err(self.cancel_call(invocation, tool, id).await),
        }
        let result = self.mailbox.read_result(id).map_err(|error| {
            Failure::new(Code::Io, format!("failed to read the result of `{tool}`: {error}"))
                .detail("id", id.to_string())
                .effect_possible()
        })?;
        let result: Value = serde_json::from_slice(&result).unwrap_or_default();
        invocation.heard.hear(result.as_object().and_then(DataClass::of_result));
        Ok(CalledTask { id, result })
    }

    /// Has a command of this program act for the caller of the invocation, one level deeper and within `scope`.
    pub(super) fn act_for(&self, command: &mut Command, invocation: &Invocation, scope: &ToolScope) {
        let caller = &invocation.caller;
        command
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(caller.folder.as_deref().unwrap_or(Path::new("/")));
        let acting = Caller { depth: caller.depth.saturating_add(1), tool_scope: scope.clone(), ..caller.clone() };
        for (name, value) in acting.environment() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
    }

    /// The task with this id, if it has ended and is one that `caller` may see.
    pub(super) fn ended(&self, id: TaskId, caller: &Caller) -> Option<CalledTask> {
        let text = self.mailbox.read_result(id).ok()?;
        let Ok(Value::Object(file)) = serde_json::from_slice(&text) else { return None };
        let is_theirs = caller.may_see(&file) && self.mailbox.is_final(id);
        is_theirs.then(|| CalledTask { id, result: Value::Object(file) })
    }

    /// Marks a request that a human makes from the page, until the mark is dropped.
    pub fn mark_of_human(&self, id: TaskId) -> PostedMark<'_> {
        PostedMark::of(id, Posted::OfHuman, self)
    }

    /// What this request is, if this executor made it.
    pub fn posted_as(&self, id: TaskId) -> Option<Posted> {
        self.posted().get(&id).copied()
    }

    fn results(&self) -> &Trigger {
        self.results.get_or_init(|| Trigger::new(self.mailbox.clone()))
    }

    fn posted(&self) -> MutexGuard<'_, HashMap<TaskId, Posted>> {
        self.posted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Posts a request of the invocation's caller to the mailbox.
    fn post(&self, invocation: &Invocation, operation: Operation) -> Result<PendingRequest<'_>, Failure> {
        self.post_as(TaskId::new(), invocation, operation)
    }

    fn post_as(
        &self,
        id: TaskId,
        invocation: &Invocation,
        operation: Operation,
    ) -> Result<PendingRequest<'_>, Failure> {
        let caller =
            Caller { depth: invocation.caller.depth.saturating_add(1), wakes: false, ..invocation.caller.clone() };
        PendingRequest::post_as(id, &self.mailbox, operation, caller).map_err(|error| {
            Failure::new(Code::Io, format!("failed to write to the mailbox: {error}")).retry(Retry::Later)
        })
    }

    /// Cancels the call `id` and returns the failure of the cancelled invocation.
    ///
    /// An executor that is stopping takes no requests: then the call continues under the next executor, as does
    /// the task that made it.
    async fn cancel_call(&self, invocation: &Invocation, tool: &str, id: TaskId) -> Failure {
        let failure = Failure::new(Code::Cancelled, format!("cancelled while waiting for `{tool}`"));
        if self.mailbox.withdraw(id) {
            return failure;
        }
        let before = self.state(id);
        if let Ok(request) = self.post(invocation, Operation::Cancel { id, reason: None }) {
            if is_answered(&request).await {
                // After the timeout the failure reports the state at that time.
                drop(tokio::time::timeout(CANCEL_TIMEOUT, self.results().of_task(id).wait_for(id)).await);
            } else {
                request.withdraw();
            }
        }
        let call = json!({"id": id, "tool": tool, "state": self.state(id)});
        let failure = failure.detail("call", call);
        match before {
            Some(State::AwaitingConfirmation) => failure.hint(format!(
                "`{tool}` was waiting for a human's approval and did not run; tell the user, or run it directly: agent-magic-tool run {tool}"
            )),
            Some(State::Accepted | State::Queued) => failure.hint(format!("`{tool}` had not started")),
            _ => failure.effect_possible(),
        }
    }

    /// Cancels the tasks that a stopped sub-agent left open. An executor that is stopping leaves this request to the
    /// next executor.
    pub(super) async fn abandon(&self, invocation: &Invocation, session: &str) {
        // The sub-agent's tasks are its own, so they are stopped in its name.
        let caller = Caller { session: Some(session.to_owned()), ..invocation.caller.clone() };
        let invocation = &Invocation { caller, ..invocation.clone() };
        let Ok(request) = self.post(invocation, Operation::Abandon { session: session.to_owned() }) else { return };
        if !is_answered(&request).await {
            tracing::debug!(session, "the next executor will cancel the open tasks of a sub-agent");
        }
    }

    fn state(&self, id: TaskId) -> Option<State> {
        self.results().states(&[id]).first().map(|(_, state)| *state)
    }
}

/// Marks a request as one of this executor until it is answered or given up.
#[derive(Debug)]
pub struct PostedMark<'a> {
    id: TaskId,
    delegation: &'a Delegation,
}

impl<'a> PostedMark<'a> {
    fn of(id: TaskId, posted: Posted, delegation: &'a Delegation) -> Self {
        delegation.posted().insert(id, posted);
        Self { id, delegation }
    }
}

impl Drop for PostedMark<'_> {
    fn drop(&mut self) {
        self.delegation.posted().remove(&self.id);
    }
}

/// Returns the task that a run request became. If a call with its key had another input, that is the earlier task if
/// `may_differ`, and a failure otherwise.
fn called_task(reply: Option<Reply>, may_differ: bool) -> Result<TaskId, Failure> {
    match reply {
        Some(Reply::Accepted(id) | Reply::Answer(Answer::SameAs(id))) => Ok(id),
        Some(Reply::Answer(Answer::Refused(error))) => {
            // An earlier attempt made the call with another input; there is one call per invocation.
            let earlier = error.details.get("id").and_then(Value::as_str).and_then(|id| id.parse().ok());
            earlier
                .filter(|_| may_differ && error.code == Code::IdempotencyMismatch)
                .ok_or_else(|| Failure::from(error))
        }
        Some(Reply::Answer(_)) | None => Err(Failure::new(Code::Internal, "unexpected answer to a run request")),
    }
}

/// Waits for the answer to `request`; returns false if it does not arrive within [`ANSWER_TIMEOUT`].
async fn is_answered(request: &PendingRequest<'_>) -> bool {
    tokio::time::timeout(ANSWER_TIMEOUT, handover::reply(request)).await.is_ok()
}
