//! The objects of the agent2agent protocol, version 1, as JSON.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use serde_with_macros::skip_serializing_none;

/// The key of what we say in metadata that the protocol has no words for.
pub(super) const OWN_METADATA: &str = "agent-magic-tool";
/// The artifact that is the answer.
pub(super) const ANSWER: &str = "answer";

/// The state of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum A2aState {
    #[serde(rename = "TASK_STATE_SUBMITTED")]
    Submitted,
    #[serde(rename = "TASK_STATE_WORKING")]
    Working,
    /// A human is waited for.
    #[serde(rename = "TASK_STATE_INPUT_REQUIRED")]
    InputRequired,
    #[serde(rename = "TASK_STATE_COMPLETED")]
    Completed,
    #[serde(rename = "TASK_STATE_FAILED")]
    Failed,
    #[serde(rename = "TASK_STATE_CANCELED")]
    Canceled,
    #[serde(rename = "TASK_STATE_REJECTED")]
    Rejected,
    /// We never need it; a client may ask for tasks in it.
    #[serde(rename = "TASK_STATE_AUTH_REQUIRED")]
    AuthRequired,
}

impl A2aState {
    pub(super) fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Canceled | Self::Rejected)
    }

    /// Whether a client that waits for the task gets it now.
    pub(super) fn ends_waiting(self) -> bool {
        self.is_final() || matches!(self, Self::InputRequired | Self::AuthRequired)
    }
}

/// One piece of a message or of an artifact.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct A2aPart {
    pub text: Option<String>,
    pub data: Option<Value>,
    /// The content of a file.
    pub raw: Option<String>,
    /// The address of a file.
    pub url: Option<String>,
    /// The name of the file that the part is, and its type.
    pub filename: Option<String>,
    pub media_type: Option<String>,
}

impl A2aPart {
    pub(super) fn of_text(text: impl Into<String>) -> Self {
        Self { text: Some(text.into()), ..Self::default() }
    }
}

/// A message of the client or of the agent.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct A2aMessage {
    pub message_id: String,
    pub context_id: Option<String>,
    pub task_id: Option<String>,
    pub role: String,
    pub parts: Vec<A2aPart>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
}

/// What is so of a task now.
#[derive(Debug, Clone, Serialize)]
pub(super) struct A2aStatus {
    pub state: A2aState,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<A2aMessage>,
    pub timestamp: String,
}

/// What a task made.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct A2aArtifact {
    pub artifact_id: String,
    pub name: String,
    pub parts: Vec<A2aPart>,
}

impl A2aArtifact {
    pub(super) fn answer(text: impl Into<String>) -> Self {
        Self { artifact_id: ANSWER.to_owned(), name: ANSWER.to_owned(), parts: vec![A2aPart::of_text(text)] }
    }
}

/// A task: one turn of a session.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct A2aTask {
    pub id: String,
    pub context_id: String,
    pub status: A2aStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub artifacts: Option<Vec<A2aArtifact>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<A2aMessage>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
}

/// One event of a stream.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum A2aUpdate {
    Task(A2aTask),
    #[serde(rename_all = "camelCase")]
    StatusUpdate {
        task_id: String,
        context_id: String,
        status: A2aStatus,
        #[serde(skip_serializing_if = "Map::is_empty")]
        metadata: Map<String, Value>,
    },
    #[serde(rename_all = "camelCase")]
    ArtifactUpdate {
        task_id: String,
        context_id: String,
        artifact: A2aArtifact,
        /// Whether it goes at the end of what came before, instead of in its place.
        append: bool,
        last_chunk: bool,
    },
}

impl A2aUpdate {
    /// The state that it says the task is in, if it says one.
    pub(super) fn state(&self) -> Option<A2aState> {
        match self {
            Self::Task(task) => Some(task.status.state),
            Self::StatusUpdate { status, .. } => Some(status.state),
            Self::ArtifactUpdate { .. } => None,
        }
    }

    pub(super) fn to_value(&self) -> Value {
        serde_json::to_value(self).expect("an update is plain JSON")
    }
}

/// What a client sends with a message.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct SendParams {
    pub message: A2aMessage,
    pub configuration: SendConfiguration,
    pub metadata: Map<String, Value>,
}

/// How a client wants its message handled.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct SendConfiguration {
    pub return_immediately: bool,
    pub history_length: Option<usize>,
    pub task_push_notification_config: Option<Value>,
}

/// Which task a client means.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct TaskParams {
    pub id: String,
    pub history_length: Option<usize>,
}

/// Which tasks a client wants to see.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ListParams {
    pub context_id: Option<String>,
    pub status: Option<String>,
    pub page_size: Option<usize>,
    pub page_token: Option<String>,
    pub history_length: Option<usize>,
    pub status_timestamp_after: Option<String>,
    pub include_artifacts: bool,
}

/// What another agent of ours says in the metadata of its message.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct OwnMetadata {
    /// How many agents started each other before this message.
    pub depth: u8,
    pub model: Option<String>,
    /// `false` if nothing in the message is a command.
    pub commands: Option<bool>,
    pub limits: LimitsMetadata,
}

/// The limits of one message.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub(super) struct LimitsMetadata {
    pub steps: Option<u32>,
    pub tokens: Option<u64>,
    pub cost: Option<f64>,
    pub calls: Option<u32>,
    /// In seconds.
    pub deadline: Option<f64>,
}

/// A message of the agent.
pub(super) fn agent_message(text: &str, context_id: &str, task_id: &str) -> A2aMessage {
    A2aMessage {
        message_id: uuid::Uuid::now_v7().simple().to_string(),
        context_id: Some(context_id.to_owned()),
        task_id: Some(task_id.to_owned()),
        role: "ROLE_AGENT".to_owned(),
        parts: vec![A2aPart::of_text(text)],
        metadata: Map::new(),
    }
}

/// `value` under our key.
pub(super) fn own_metadata(value: &Value) -> Map<String, Value> {
    let Value::Object(metadata) = json!({OWN_METADATA: value}) else { unreachable!("the literal is an object") };
    metadata
}
