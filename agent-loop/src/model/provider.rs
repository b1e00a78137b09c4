//! A language model as the loop sees it: messages in, one turn out.
//!
//! Knows nothing about tasks, sessions or retries. [`client::ModelClient`] talks to real providers; the
//! tests of the loop use a scripted one.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use ground::base::backoff::Backoff;
use ground::task::failure::{Failure, Retry};
use protocol::code::Code;
use serde_json::{Value, json};

use super::answer_options::AnswerOptions;
use super::conversation::{Image, ModelTurn, RawMessage, ToolCall, ToolResult};

pub mod client;
pub mod embeddings;
mod ending;
mod ollama;
mod optional;
mod request_error;
mod wire;

/// One request to a model.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelRequest {
    pub system: String,
    pub messages: Vec<Message>,
    /// The tools that the model may call natively; may be empty.
    pub tools: Vec<ToolDefinition>,
    pub options: AnswerOptions,
}

/// One message of a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    User(String),
    /// Images that belong to the message of the user before them.
    Images(Vec<Image>),
    Assistant {
        text: String,
        calls: Vec<ToolCall>,
        raw: Option<RawMessage>,
    },
    /// One result for each tool call of the previous message.
    Results(Vec<ToolResult>),
}

/// The definition of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolDefinition {
    pub name: String,
    pub description: String,
    /// A JSON Schema.
    pub parameters: Value,
    /// Whether the arguments certainly keep to the schema; `None` leaves that to the provider.
    pub strict: Option<bool>,
}

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ModelFailure {
    pub class: FailureClass,
    /// For the user. The message of a remote provider goes to the log only.
    pub message: String,
    /// The delay that the provider asked for, if any.
    pub retry_after: Option<Duration>,
}

/// The delays before a request is repeated, unless the provider asks for a longer one.
const RETRY_DELAYS: Backoff = Backoff { first: Duration::from_secs(1), max: Duration::from_mins(1) };

impl ModelFailure {
    /// How long to wait before the request is repeated after attempt number `attempt`, counted from 0.
    pub fn retry_delay(&self, attempt: u32) -> Duration {
        let Backoff { first, max } = RETRY_DELAYS;
        self.retry_after.map_or(RETRY_DELAYS.pause(attempt), |wanted| wanted.max(first).min(max * 10))
    }
}

/// The class of a failure, which decides whether the request is retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureClass {
    Connection,
    RateLimit,
    ServerError,
    /// The response could not be parsed.
    BadAnswer,
    Auth,
    /// The provider rejected what was asked, and would again.
    Rejected,
    Configuration,
    /// The user's budget of the day is used up.
    Budget,
}

impl FailureClass {
    /// Returns whether the same request may succeed later.
    pub fn is_transient(self) -> bool {
        match self {
            Self::Connection | Self::RateLimit | Self::ServerError | Self::BadAnswer => true,
            Self::Auth | Self::Rejected | Self::Configuration | Self::Budget => false,
        }
    }

    /// Returns the error code of a failure that is not retried.
    pub fn code(self) -> Code {
        match self {
            Self::Budget => Code::BudgetExhausted,
            Self::Rejected => Code::ModelRejected,
            _ => Code::ModelFailed,
        }
    }
}

/// A request in progress; resolves to the turn.
pub type TurnFuture<'a> = Pin<Box<dyn Future<Output = Result<ModelTurn, ModelFailure>> + Send + 'a>>;

/// Receives the text of an answer piece by piece.
pub type TextListener<'a> = &'a (dyn Fn(&str) + Send + Sync);

/// A model that answers requests.
pub trait Provider: Send + Sync {
    /// Makes one request. Dropping the future cancels it; the caller then discards the text received so far.
    fn ask<'a>(&'a self, request: ModelRequest, on_text: TextListener<'a>) -> TurnFuture<'a>;
}

/// Returns the arguments of a call as a provider accepts them: always an object.
fn call_arguments(arguments: &Value) -> Value {
    if arguments.is_object() { arguments.clone() } else { json!({ "not_an_object": arguments }) }
}

impl From<ModelFailure> for Failure {
    fn from(failed: ModelFailure) -> Self {
        let retry = match failed.retry_after {
            _ if !failed.class.is_transient() => Retry::Never,
            Some(pause) => Retry::After(pause),
            None => Retry::Later,
        };
        let hint = match failed.class {
            FailureClass::Budget => "a human can raise the budget under [agent] in config.toml",
            _ => "the provider's answer is in the executor's log",
        };
        Self::new(failed.class.code(), failed.message).hint(hint).retry(retry)
    }
}
