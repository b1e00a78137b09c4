//! The runners: the ways of performing a task.
//!
//! A runner knows nothing about tasks, result files or retries: it gets a fixed [`Invocation`] and a
//! cancellation token, and returns the output or a failure. To add one: a file under `runner/`, a variant
//! of [`Run`], and its arm in the matches below.

use std::path::PathBuf;

use protocol::caller::Caller;
use protocol::code::Code;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::base::template::TemplateError;
use crate::config::Config;
use crate::config::secret::Secrets;
use crate::net::clients::HttpClients;
use crate::task::failure::{Failure, Retry};

pub mod agent;
pub mod ask_user;
pub mod builtin;
pub mod delegation;
mod fields;
pub mod http;
pub mod llm;
pub mod process;

/// Exactly one runner and its settings.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Run {
    /// An HTTP request.
    Http(Box<http::Http>),
    /// A program.
    Process(process::Process),
    /// A function of the executor.
    Builtin(builtin::Builtin),
    /// A question to the human.
    AskUser(ask_user::AskUser),
    /// One question to a language model.
    Llm(llm::Llm),
    /// A sub-agent with its own catalog and budget.
    Agent(agent::Agent),
}

/// What a runner performs: fixed when the task is accepted, and the same for each attempt.
#[derive(Debug, Clone, Default)]
pub struct Invocation {
    /// The task's id, which is also suitable as an idempotency key.
    pub id: String,
    /// The number of this attempt, starting at 1.
    pub attempt: u32,
    pub input: Map<String, Value>,
    /// The caller of the task. Delegated tasks belong to the same session and are one level deeper.
    pub caller: Caller,
    /// The human's answer, if the task is a question to the human.
    pub answer: Option<Value>,
}

/// What all runners of one executor share.
#[derive(Debug)]
pub struct RunnerContext {
    pub config: Config,
    pub secrets: Secrets,
    pub http: HttpClients,
    /// The access tokens obtained so far.
    pub tokens: http::OAuthTokens,
    /// The executor's folder for output that is too large for memory or is not text.
    pub spool: PathBuf,
    /// How runners have other tasks run; `None` without an executor.
    pub delegation: Option<delegation::Delegation>,
}

/// The output of a successful invocation.
#[derive(Debug)]
pub struct RunnerOutput {
    pub data: OutputData,
    /// Fields of the result's `_meta`, like `http_status` or `exit_code`.
    pub meta: Map<String, Value>,
}

/// The data of an output.
#[derive(Debug)]
pub enum OutputData {
    Json(Value),
    /// A file in [`RunnerContext::spool`]; the caller of the runner takes ownership of it.
    File {
        path: PathBuf,
        content_type: String,
        bytes: u64,
    },
}

impl RunnerOutput {
    pub fn json(data: Value) -> Self {
        Self { data: OutputData::Json(data), meta: Map::new() }
    }

    #[must_use]
    pub fn with_meta(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.meta.insert(key.to_owned(), value.into());
        self
    }
}

impl From<TemplateError> for Failure {
    fn from(error: TemplateError) -> Self {
        Self::new(Code::TemplateFailed, error.to_string())
            .hint("the input lacks a value that the definition needs, or the definition is wrong")
    }
}

/// A mistake in a definition.
#[derive(Debug, PartialEq, Eq)]
pub struct DefinitionMistake {
    /// The path of the field within the runner's object, like `query.q`.
    pub place: String,
    pub message: String,
}

impl DefinitionMistake {
    pub fn new(place: impl Into<String>, message: &impl ToString) -> Self {
        Self { place: place.into(), message: message.to_string() }
    }
}

/// The contract of a runner.
pub trait Runner {
    /// Finds the mistakes that the types do not rule out. Called when a definition is loaded.
    fn check(&self) -> Result<(), DefinitionMistake>;

    /// Returns what [`Runner::perform`] would send, as JSON, with secrets as `secret:NAME`. Has no side effects.
    fn plan(&self, invocation: &Invocation, config: &Config) -> Result<Value, Failure>;

    /// Performs the invocation once.
    ///
    /// When `cancel` fires, the runner stops as soon as it can, leaves nothing running, and returns
    /// [`Code::Cancelled`] with its output so far in `details`, and with [`SideEffect::Possible`] unless
    /// nothing can have happened yet. A runner has no timeout of its own: its caller cancels it.
    ///
    /// [`SideEffect::Possible`]: crate::task::failure::SideEffect::Possible
    fn perform(
        &self,
        invocation: &Invocation,
        context: &RunnerContext,
        cancel: &CancellationToken,
    ) -> impl Future<Output = Result<RunnerOutput, Failure>> + Send;
}

impl Run {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Http(_) => "http",
            Self::Process(_) => "process",
            Self::Builtin(_) => "builtin",
            Self::AskUser(_) => "ask_user",
            Self::Llm(_) => "llm",
            Self::Agent(_) => "agent",
        }
    }

    pub fn check(&self) -> Result<(), DefinitionMistake> {
        match self {
            Self::Http(http) => http.check(),
            Self::Process(process) => process.check(),
            Self::Builtin(builtin) => builtin.check(),
            Self::AskUser(ask_user) => ask_user.check(),
            Self::Llm(llm) => llm.check(),
            Self::Agent(agent) => agent.check(),
        }
    }

    pub fn plan(&self, invocation: &Invocation, config: &Config) -> Result<Value, Failure> {
        match self {
            Self::Http(http) => http.plan(invocation, config),
            Self::Process(process) => process.plan(invocation, config),
            Self::Builtin(builtin) => builtin.plan(invocation, config),
            Self::AskUser(ask_user) => ask_user.plan(invocation, config),
            Self::Llm(llm) => llm.plan(invocation, config),
            Self::Agent(agent) => agent.plan(invocation, config),
        }
    }

    /// Whether the runner starts other tasks and waits for them.
    pub fn delegates(&self) -> bool {
        match self {
            Self::Agent(_) => true,
            Self::Llm(llm) => llm.calls(),
            Self::Http(_) | Self::Process(_) | Self::Builtin(_) | Self::AskUser(_) => false,
        }
    }

    /// Returns the files that the invocation would execute, as far as the definition names them.
    pub fn files(&self, invocation: &Invocation) -> Vec<PathBuf> {
        match self {
            Self::Process(process) => process.files(invocation),
            Self::Http(_) | Self::Builtin(_) | Self::AskUser(_) | Self::Llm(_) | Self::Agent(_) => Vec::new(),
        }
    }

    pub async fn perform(
        &self,
        invocation: &Invocation,
        context: &RunnerContext,
        cancel: &CancellationToken,
    ) -> Result<RunnerOutput, Failure> {
        match self {
            Self::Http(http) => http.perform(invocation, context, cancel).await,
            Self::Process(process) => process.perform(invocation, context, cancel).await,
            Self::Builtin(builtin) => builtin.perform(invocation, context, cancel).await,
            Self::AskUser(ask_user) => ask_user.perform(invocation, context, cancel).await,
            Self::Llm(llm) => llm.perform(invocation, context, cancel).await,
            Self::Agent(agent) => agent.perform(invocation, context, cancel).await,
        }
    }
}
