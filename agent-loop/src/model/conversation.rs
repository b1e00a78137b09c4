//! The conversation of a session: the entries of its journal, and the types of a turn.
//!
//! The entries are the source of truth. Each request to the model is built from them (`view.rs`), and so is the
//! state of the loop (`machine.rs`). They are written to disk in this form, so a new field needs a default, and
//! no field is removed or renamed.

use std::path::PathBuf;

use ground::config::ProviderKind;
use protocol::command_executor::OpenedTask;
use protocol::data_class::DataClass;
use protocol::task::{State, TaskId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with_macros::skip_serializing_none;

use super::reported_usage;

/// One event of a session, as a line of its journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JournalEntry {
    /// The user asked a question, maybe with images.
    Asked {
        text: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        images: Vec<Image>,
    },
    /// The model answered, with or without tool calls.
    Answered { turn: Box<ModelTurn> },
    /// The results of the tool calls of the previous turn, in the order of the calls.
    Called { results: Vec<ToolResult> },
    /// The model was told that these tasks are final.
    Woken { tasks: Vec<EndedTask> },
    /// The loop sent a note to the model.
    Noted { text: String },
    /// The model gave an answer that is not part of the conversation, because it was empty.
    Discarded { turn: Box<ModelTurn> },
    /// The model explained a failed call, in a request without tools.
    Diagnosed { turn: Box<ModelTurn> },
    /// The work on the question ended.
    Stopped { reason: StopReason },
    /// Another model answers from here on.
    UsesModel { name: String },
    /// From here on, the user is shown this many characters of a result; 0 means all.
    ShowsAtMost { chars: usize },
    /// The last question and everything after it is removed from the conversation.
    Undone,
    /// The conversation starts over; open tasks stay open.
    Cleared,
}

impl JournalEntry {
    /// A question without images.
    pub fn asked(text: impl Into<String>) -> Self {
        Self::Asked { text: text.into(), images: Vec::new() }
    }
}

/// An image that a user sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Image {
    /// Like `image/png`.
    pub media_type: String,
    pub source: ImageSource,
}

/// Where the data of an image is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ImageSource {
    Base64(String),
    /// The provider fetches it.
    Url(String),
}

/// One answer of a model.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelTurn {
    pub text: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<ToolCall>,
    /// The calls were parsed from the text.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_text: bool,
    /// The answer in the provider's own format, sent back to that provider unchanged.
    pub raw: Option<RawMessage>,
    #[serde(default)]
    pub usage: TokenUsage,
    /// The name in `[models]` of the model that answered.
    #[serde(default)]
    pub model: String,
    /// The cost of the request, at the prices configured when it was made.
    #[serde(default)]
    pub cost: f64,
    #[serde(default, skip_serializing_if = "TurnEnd::is_complete")]
    pub end: TurnEnd,
    /// How the answer ended, in the provider's word.
    pub stop_reason: Option<String>,
    /// What the user should know about the request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// How an answer ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnEnd {
    #[default]
    Complete,
    /// It reached the limit of tokens.
    Truncated,
    /// The model or its provider refused to answer, or stopped the answer.
    Refused,
}

impl TurnEnd {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires this signature")]
    fn is_complete(&self) -> bool {
        *self == Self::Complete
    }
}

/// An answer in the format of its provider, with what that provider needs back: signed thoughts, order of parts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawMessage {
    pub provider: ProviderKind,
    pub message: Value,
}

/// One call of a tool, as the model wrote it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolCall {
    pub id: String,
    pub name: String,
    /// A JSON object, unless the model wrote something else.
    pub arguments: Value,
}

/// The result of one tool call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolResult {
    pub call: String,
    pub name: String,
    /// The text that the model reads.
    pub text: String,
    pub status: u8,
    /// The tasks that the call started and that were still open when it returned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub opened: Vec<OpenedTask>,
    /// The tasks whose final result this text contains.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub collected: Vec<TaskId>,
    /// The call only waited or read results.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub only_reads: bool,
    /// What the tasks in `collected` spent on models.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spent: Vec<TaskSpending>,
    /// The most sensitive class of the data of the tasks in `collected`, if they have any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_class: Option<DataClass>,
}

/// Returns the most sensitive class of data in a conversation.
pub fn data_class(entries: &[JournalEntry]) -> DataClass {
    let results = entries.iter().filter_map(|entry| match entry {
        JournalEntry::Called { results } => results.iter().filter_map(|result| result.data_class).max(),
        _ => None,
    });
    results.max().unwrap_or(DataClass::Public)
}

/// What a task of the session spent on models: its own requests, or those of a sub-agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskSpending {
    pub task: TaskId,
    pub usage: TokenUsage,
    pub cost: f64,
}

impl TaskSpending {
    /// Reads it from the result of a task, which has it in `_meta` or in its error.
    pub fn of(task: TaskId, result: &Value) -> Option<Self> {
        let usage = [&result["_meta"]["usage"], &result["error"]["details"]["usage"]];
        let usage = usage.into_iter().find(|usage| usage.is_object())?;
        let count = |key: &str| reported_usage::count(usage, key).unwrap_or(0);
        let tokens =
            TokenUsage { input: count("input_tokens"), output: count("output_tokens"), cached: count("cached_tokens") };
        Some(Self { task, usage: tokens, cost: reported_usage::cost(usage).unwrap_or(0.0) })
    }
}

impl ToolResult {
    /// Returns the result of a call that started no task and read no task's result.
    pub fn new(call: &ToolCall, text: impl Into<String>, status: u8) -> Self {
        Self {
            call: call.id.clone(),
            name: call.name.clone(),
            text: text.into(),
            status,
            opened: Vec::new(),
            collected: Vec::new(),
            only_reads: false,
            spent: Vec::new(),
            data_class: None,
        }
    }
}

/// A task in a final state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndedTask {
    pub id: TaskId,
    pub tool: String,
    /// `None` if the result file has been removed.
    pub state: Option<State>,
    pub result_file: PathBuf,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spent: Option<TaskSpending>,
}

/// Token counts of one or more requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenUsage {
    pub input: u64,
    pub output: u64,
    /// How many of the `input` tokens the provider read from its cache.
    #[serde(default)]
    pub cached: u64,
}

impl std::ops::AddAssign for TokenUsage {
    fn add_assign(&mut self, other: Self) {
        self.input = self.input.saturating_add(other.input);
        self.output = self.output.saturating_add(other.output);
        self.cached = self.cached.saturating_add(other.cached);
    }
}

/// Why the work on a question ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The model answered and no task is open.
    Completed,
    /// The request limit was reached; the model answered once more, without tools.
    MaxIterations,
    /// The budget of the question is used up.
    BudgetExhausted,
    /// The answer was cut at the model's limit of tokens.
    Truncated,
    /// The model or its provider refused to answer.
    Refused,
    /// The model stopped after a policy rule refused a task.
    PolicyDenied,
    /// The model stopped after a human denied a task, or the confirmation expired.
    ApprovalDenied,
    /// The provider failed; the only reason for which trying again may help.
    ProviderFailed,
    /// The model called tools of the client, which goes on with their results.
    CallsClient,
    Cancelled,
}

impl StopReason {
    /// Returns whether a limit cut the work short.
    pub fn is_truncated(self) -> bool {
        matches!(self, Self::MaxIterations | Self::BudgetExhausted | Self::Truncated)
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::MaxIterations => "max_iterations",
            Self::BudgetExhausted => "budget_exhausted",
            Self::Truncated => "truncated",
            Self::Refused => "refused",
            Self::PolicyDenied => "policy_denied",
            Self::ApprovalDenied => "approval_denied",
            Self::ProviderFailed => "provider_failed",
            Self::CallsClient => "calls_client",
            Self::Cancelled => "cancelled",
        }
    }
}
