//! A language model, as the loop sees it: messages in, one turn out.
//!
//! Knows nothing of tasks, sessions or repetition. [`client::Client`] speaks with real ones; the tests of the
//! loop use a scripted one.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use serde_json::Value;

use super::conversation::{RawMessage, ToolCall, ToolResult, Turn};

pub mod client;

/// One request.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelRequest {
    pub system: String,
    pub messages: Vec<Message>,
    /// The tools that it may call; none at all where this is empty.
    pub tools: Vec<ToolDefinition>,
}

/// One message of a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    User(String),
    Assistant {
        text: String,
        calls: Vec<ToolCall>,
        raw: Option<RawMessage>,
    },
    /// One result for each call of the message before.
    Results(Vec<ToolResult>),
}

/// A tool's definition.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolDefinition {
    pub name: String,
    pub description: String,
    /// A JSON Schema.
    pub parameters: Value,
}

/// Why there was no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ModelFailure {
    pub class: FailureClass,
    /// For the person; what the provider said of it is in the log.
    pub message: String,
    /// The provider said when to come back.
    pub retry_after: Option<Duration>,
}

/// Decides whether the same request may be made again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureClass {
    Connection,
    RateLimit,
    ServerError,
    /// An answer that nobody understands.
    BadAnswer,
    Auth,
    ClientError,
    Configuration,
}

impl FailureClass {
    pub fn may_pass(self) -> bool {
        match self {
            Self::Connection | Self::RateLimit | Self::ServerError | Self::BadAnswer => true,
            Self::Auth | Self::ClientError | Self::Configuration => false,
        }
    }
}

/// A turn on its way.
pub type TurnFuture<'a> = Pin<Box<dyn Future<Output = Result<Turn, ModelFailure>> + Send + 'a>>;

/// Takes the text of an answer as it comes.
pub type TextListener<'a> = &'a (dyn Fn(&str) + Send + Sync);

/// Somebody who answers.
pub trait Provider: Send + Sync {
    /// Asks once. Dropping the future ends the request; what was heard of it until then counts for nothing.
    fn ask<'a>(&'a self, request: ModelRequest, heard: TextListener<'a>) -> TurnFuture<'a>;
}
