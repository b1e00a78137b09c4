//! The ways of performing a task.
//!
//! A runner knows nothing of tasks, results or retries: it gets a frozen [`Order`] and a
//! cancellation token, and returns what came of it. To add one: a file under `runner/`, a variant
//! of [`Run`], and its arm in the three matches below.

use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::code::Code;
use crate::config::Config;
use crate::secret::Secrets;
use crate::template::TemplateError;

pub mod ask_user;
pub mod builtin;
pub mod http;
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
}

/// What is to be done: fixed when the task was accepted, the same at each attempt.
#[derive(Debug, Clone, Default)]
pub struct Order {
    /// The task's id; a good idempotency key.
    pub id: String,
    /// 1 for the first.
    pub attempt: u32,
    pub input: Map<String, Value>,
    /// The folder from which the caller asked.
    pub caller_folder: Option<PathBuf>,
    /// How deep the caller is nested in agents that were called by agents.
    pub caller_depth: u8,
    /// What a human answered, if it is a question to one.
    pub answer: Option<Value>,
}

/// What the runners of one executor share.
#[derive(Debug)]
pub struct Equipment {
    pub config: Config,
    pub secrets: Secrets,
    pub http: http::Clients,
    /// A folder of the executor's own for data that is too large for memory, or is not text.
    pub spool: PathBuf,
}

/// What came of an order.
#[derive(Debug)]
pub struct Success {
    pub data: Data,
    /// Goes into the result's `_meta`, like `http_status` or `exit_code`.
    pub meta: Map<String, Value>,
}

#[derive(Debug)]
pub enum Data {
    Json(Value),
    /// A file in [`Equipment::spool`], which the caller of the runner takes over.
    File {
        path: PathBuf,
        content_type: String,
        bytes: u64,
    },
}

impl Success {
    pub fn json(data: Value) -> Self {
        Self { data: Data::Json(data), meta: Map::new() }
    }

    #[must_use]
    pub fn with_meta(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.meta.insert(key.to_owned(), value.into());
        self
    }
}

/// Why an order failed, in words that a model can act on. Never holds a secret.
#[derive(Debug)]
pub struct Failure {
    pub code: Code,
    pub message: String,
    pub hint: Option<String>,
    /// More for the reader: what the API said, what the program printed so far.
    pub details: Map<String, Value>,
    pub again: Again,
    pub effect: Effect,
}

/// Whether a repetition could help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    Never,
    /// After the usual pause.
    Later,
    /// Not before this long has passed: the far side said so.
    After(Duration),
}

/// Whether the failed order can have changed anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Surely not: nothing left this machine, or the far side says that it did nothing.
    None,
    /// Perhaps.
    Possible,
}

impl Failure {
    /// A failure that a repetition cannot mend, before anything happened.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            hint: None,
            details: Map::new(),
            again: Again::Never,
            effect: Effect::None,
        }
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    #[must_use]
    pub fn detail(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.details.insert(key.to_owned(), value.into());
        self
    }

    #[must_use]
    pub fn again(mut self, again: Again) -> Self {
        self.again = again;
        self
    }

    /// It may have taken effect all the same.
    #[must_use]
    pub fn effect_possible(mut self) -> Self {
        self.effect = Effect::Possible;
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
pub struct Mistake {
    /// Relative to the runner's object, like `query.q`.
    pub place: String,
    pub message: String,
}

impl Mistake {
    pub fn new(place: impl Into<String>, message: &impl ToString) -> Self {
        Self { place: place.into(), message: message.to_string() }
    }
}

/// The contract of a runner.
pub trait Runner {
    /// Finds mistakes that the types cannot: called when the definition is loaded.
    fn check(&self) -> Result<(), Mistake>;

    /// What [`Runner::perform`] would send, as JSON, with secrets as `secret:NAME`; touches nothing.
    fn plan(&self, order: &Order, config: &Config) -> Result<Value, Failure>;

    /// Performs the order once.
    ///
    /// When `cancel` fires, it stops as soon as it can, leaves nothing running, and still reports:
    /// [`Code::Cancelled`], with what it had so far in `details`, and [`Effect::Possible`] unless
    /// nothing can have happened yet. Timeouts are its caller's, who cancels.
    fn perform(
        &self,
        order: &Order,
        equipment: &Equipment,
        cancel: &CancellationToken,
    ) -> impl Future<Output = Result<Success, Failure>> + Send;
}

impl Run {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Http(_) => "http",
            Self::Process(_) => "process",
            Self::Builtin(_) => "builtin",
            Self::AskUser(_) => "ask_user",
        }
    }

    pub fn check(&self) -> Result<(), Mistake> {
        match self {
            Self::Http(http) => http.check(),
            Self::Process(process) => process.check(),
            Self::Builtin(builtin) => builtin.check(),
            Self::AskUser(ask_user) => ask_user.check(),
        }
    }

    pub fn plan(&self, order: &Order, config: &Config) -> Result<Value, Failure> {
        match self {
            Self::Http(http) => http.plan(order, config),
            Self::Process(process) => process.plan(order, config),
            Self::Builtin(builtin) => builtin.plan(order, config),
            Self::AskUser(ask_user) => ask_user.plan(order, config),
        }
    }

    /// The files that performing it would execute, as far as its definition names them.
    pub fn files(&self, order: &Order) -> Vec<PathBuf> {
        match self {
            Self::Process(process) => process.files(order),
            Self::Http(_) | Self::Builtin(_) | Self::AskUser(_) => Vec::new(),
        }
    }

    pub async fn perform(
        &self,
        order: &Order,
        equipment: &Equipment,
        cancel: &CancellationToken,
    ) -> Result<Success, Failure> {
        match self {
            Self::Http(http) => http.perform(order, equipment, cancel).await,
            Self::Process(process) => process.perform(order, equipment, cancel).await,
            Self::Builtin(builtin) => builtin.perform(order, equipment, cancel).await,
            Self::AskUser(ask_user) => ask_user.perform(order, equipment, cancel).await,
        }
    }
}
