//! What the user of a connection does for a call: answers the server's questions, hears of progress, and remembers
//! what must survive a restart.

use std::collections::BTreeMap;

use futures_util::future::BoxFuture;
use rmcp::model::InputRequests;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What a call needs from its user.
pub trait CallHost: Send + Sync {
    /// Asks the human, and waits for as long as that takes.
    fn ask<'a>(&'a self, question: &'a ServerQuestion) -> BoxFuture<'a, HumanAnswer>;

    /// Is told that the server got on.
    fn progress(&self, progress: &CallProgress);

    /// Is told what a later process needs in order to go on with this call instead of starting it again.
    fn remember(&self, handle: &CallHandle);
}

/// A question of a server to the human.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerQuestion {
    /// The same for the same question of the same call, also when a later process goes on with the call.
    pub key: String,
    pub message: String,
    pub form: QuestionForm,
}

/// How a question is to be answered.
#[derive(Debug, Clone, PartialEq)]
pub enum QuestionForm {
    /// The JSON Schema of an object whose properties are the fields to fill in. Without properties, a plain yes or no.
    Fields(Map<String, Value>),
    /// The human opens this URL and says when it is done.
    Url(String),
}

/// What the human said.
#[derive(Debug, Clone, PartialEq)]
pub enum HumanAnswer {
    /// With what was filled in, if there was something to fill in.
    Accept(Option<Map<String, Value>>),
    Decline,
    /// Dismissed, or not answered in time.
    Cancel,
}

impl HumanAnswer {
    /// The result of `elicitation/create`.
    pub(super) fn into_result(self) -> Value {
        match self {
            Self::Accept(Some(content)) => serde_json::json!({"action": "accept", "content": content}),
            Self::Accept(None) => serde_json::json!({"action": "accept"}),
            Self::Decline => serde_json::json!({"action": "decline"}),
            Self::Cancel => serde_json::json!({"action": "cancel"}),
        }
    }
}

/// How far a call is.
#[derive(Debug, Clone, PartialEq)]
pub struct CallProgress {
    pub progress: f64,
    pub total: Option<f64>,
    pub message: Option<String>,
}

/// Where a call can be gone on with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallHandle {
    /// The server does it as a task: ask for it by this id.
    Task(String),
    /// The server waits for answers: send them with the same call.
    Input {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        requests: Option<InputRequests>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<String>,
        /// How often the server has asked.
        round: u32,
    },
}

/// The answers to the requests of a server, by their keys.
pub(super) type InputAnswers = BTreeMap<String, Value>;
