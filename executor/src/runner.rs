//! The ways of performing a task.
//!
//! A runner knows nothing of tasks, results or retries: it gets a frozen [`Invocation`] and a
//! cancellation token, and returns what came of it. To add one: a file under `runner/`, a variant
//! of [`Run`], and its arm in the three matches below.

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
pub mod http;
pub mod llm;
pub mod process;

/// Exactly one runner, with what it needs.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Run {
    /// An HTTP request.
    Http(Box<http::Http>),
    /// A program.
    Process(process::Process),
    /// One of the executor's own functions.
    Builtin(builtin::Builtin),
    /// A question to the human.
    AskUser(ask_user::AskUser),
    /// A question to a language model, with nothing around it.
    Llm(llm::Llm),
    /// A sub-agent with a catalog and a budget of its own.
    Agent(agent::Agent),
}

/// What is to be done: fixed when the task was accepted, the same at each attempt.
#[derive(Debug, Clone, Default)]
pub struct Invocation {
    /// The task's id; a good idempotency key.
    pub id: String,
    /// 1 for the first.
    pub attempt: u32,
    pub input: Map<String, Value>,
    /// What it delegates is of the same session, and one deeper.
    pub caller: Caller,
    /// What a human answered, if it is a question to one.
    pub answer: Option<Value>,
}

/// What the runners of one executor share.
#[derive(Debug)]
pub struct RunnerContext {
    pub config: Config,
    pub secrets: Secrets,
    pub http: HttpClients,
    /// Access tokens that were obtained so far.
    pub tokens: http::OAuthTokens,
    /// A folder of the executor's own for data that is too large for memory, or is not text.
    pub spool: PathBuf,
    /// The way back to the executor; none where there is no executor.
    pub delegation: Option<delegation::Delegation>,
}

/// What came of an order.
#[derive(Debug)]
pub struct RunnerOutput {
    pub data: OutputData,
    /// Goes into the result's `_meta`, like `http_status` or `exit_code`.
    pub meta: Map<String, Value>,
}

#[derive(Debug)]
pub enum OutputData {
    Json(Value),
    /// A file in [`RunnerContext::spool`], which the caller of the runner takes over.
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
            .hint("a value that the definition needs is missing from the input, or the definition is wrong")
    }
}

/// A mistake in a definition: where, and what.
#[derive(Debug, PartialEq, Eq)]
pub struct DefinitionMistake {
    /// Relative to the runner's object, like `query.q`.
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
    /// Finds mistakes that the types cannot: called when the definition is loaded.
    fn check(&self) -> Result<(), DefinitionMistake>;

    /// What [`Runner::perform`] would send, as JSON, with secrets as `secret:NAME`; touches nothing.
    fn plan(&self, invocation: &Invocation, config: &Config) -> Result<Value, Failure>;

    /// Performs the order once.
    ///
    /// When `cancel` fires, it stops as soon as it can, leaves nothing running, and still reports:
    /// [`Code::Cancelled`], with what it had so far in `details`, and [`Effect::Possible`] unless
    /// nothing can have happened yet. Timeouts are its caller's, who cancels.
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

    /// Whether other tasks come of it, for which it waits.
    pub fn delegates(&self) -> bool {
        match self {
            Self::Agent(_) => true,
            Self::Llm(llm) => llm.calls(),
            Self::Http(_) | Self::Process(_) | Self::Builtin(_) | Self::AskUser(_) => false,
        }
    }

    /// The files that performing it would execute, as far as its definition names them.
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
