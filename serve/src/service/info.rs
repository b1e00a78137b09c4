//! What the service tells about its sessions, questions and models.

use protocol::error::ErrorBody;
use schemars::JsonSchema;
use serde::Serialize;
use serde_with_macros::skip_serializing_none;
use uuid::Uuid;

use crate::error_shape::ErrorShape;
use crate::service::turn::{TaskNews, TurnOutcome, TurnUsage};

/// A session in a list.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct SessionInfo {
    pub number: u32,
    /// The client's id, like `llama-127.0.0.1`; the terminal's own sessions have none.
    pub client: Option<String>,
    /// The name of the API key to which it belongs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// When it began, like `2026-11-23T08:00:00Z`.
    pub began_at: String,
    /// Whether it answers a question now, or waits for a task.
    pub is_busy: bool,
}

/// What a session is doing, and its last answer.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SessionState {
    pub session: u32,
    /// `idle`, `working`, or `waiting` for a task.
    pub state: &'static str,
    pub model: String,
    /// The last answer of the model, if it has ended.
    pub answer: Option<String>,
    /// The tasks that have not ended.
    pub open: Vec<TaskNews>,
    /// The latest questions that were not waited for, and what became of them; the oldest first.
    pub questions: Vec<QuestionState>,
}

/// A question, and what became of it.
#[skip_serializing_none]
#[derive(Debug, Serialize, JsonSchema)]
pub struct QuestionState {
    /// Its id, as `submit` answered it.
    #[schemars(with = "String")]
    pub question: Uuid,
    /// `queued`, `working` or `ended`.
    pub state: &'static str,
    pub answer: Option<String>,
    /// Why it ended: as in the answer of `submit`.
    pub termination: Option<&'static str>,
    /// A limit cut the work short.
    pub truncated: bool,
    /// What it used; after a restart that is not known.
    pub usage: Option<TurnUsage>,
    /// Why there is no answer.
    #[schemars(with = "Option<ErrorShape>")]
    pub error: Option<ErrorBody>,
}

impl QuestionState {
    /// Of a question whose turn may have begun, and ended.
    pub(super) fn of(question: Uuid, turn: Option<u64>, end: Option<Result<TurnOutcome, ErrorBody>>) -> Self {
        let state = match (turn, &end) {
            (None, _) => "queued",
            (Some(_), None) => "working",
            (Some(_), Some(_)) => "ended",
        };
        let nothing =
            Self { question, state, answer: None, termination: None, truncated: false, usage: None, error: None };
        match end {
            None => nothing,
            Some(Err(error)) => Self { error: Some(error), ..nothing },
            Some(Ok(outcome)) => Self {
                answer: Some(outcome.answer),
                termination: Some(outcome.termination),
                truncated: outcome.truncated,
                usage: Some(outcome.usage).filter(|usage| usage.requests > 0),
                ..nothing
            },
        }
    }
}

/// A model in a list.
#[derive(Debug, Clone, Serialize)]
pub struct ModelInfo {
    pub name: String,
    pub description: Option<String>,
    /// Its context window, in tokens.
    pub window: u64,
    pub is_default: bool,
}
