//! The conversation of a session: the entries of its journal, and the types of a turn.
//!
//! The entries are the source of truth. Each request to the model is built from them (`view.rs`), and so is the
//! state of the loop (`machine.rs`). They are written to disk in this form, so a new field needs a default, and
//! no field is removed or renamed.

use std::path::PathBuf;

use protocol::command_executor::OpenedTask;
use protocol::task::{State, TaskId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::ProviderKind;

/// One event of a session, as a line of its journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JournalEntry {
    /// The user asked a question.
    Asked { text: String },
    /// The model answered, with or without tool calls.
    Answered { turn: Box<Turn> },
    /// The results of the tool calls of the previous turn, in the order of the calls.
    Called { results: Vec<ToolResult> },
    /// The model was told that these tasks are final.
    Woken { tasks: Vec<EndedTask> },
    /// The loop sent a note to the model.
    Noted { text: String },
    /// The model explained a failed call, in a request without tools.
    Diagnosed { turn: Box<Turn> },
    /// The work on the question ended.
    Stopped { reason: StopReason },
    /// Another model answers from here on.
    UsesModel { name: String },
    /// The last question and everything after it is removed from the conversation.
    Undone,
    /// The conversation starts over; open tasks stay open.
    Cleared,
}

/// One answer of a model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Turn {
    pub text: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<ToolCall>,
    /// The calls were parsed from the text.
    #[serde(default, skip_serializing_if = "is_false")]
    pub in_text: bool,
    /// The answer in the provider's own format, sent back to that provider unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<RawMessage>,
    #[serde(default)]
    pub usage: TokenUsage,
    /// The name in `[models]` of the model that answered.
    #[serde(default)]
    pub model: String,
    /// The cost of the request, at the prices configured when it was made.
    #[serde(default)]
    pub cost: f64,
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
    #[serde(default, skip_serializing_if = "is_false")]
    pub only_reads: bool,
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
        self.input += other.input;
        self.output += other.output;
        self.cached += other.cached;
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
    /// The model stopped after a policy rule refused a task.
    PolicyDenied,
    /// The model stopped after a human denied a task, or the confirmation expired.
    ApprovalDenied,
    /// The provider failed; the only reason for which trying again may help.
    ProviderFailed,
    Cancelled,
}

impl StopReason {
    /// Returns whether a limit cut the work short.
    pub fn is_truncated(self) -> bool {
        matches!(self, Self::MaxIterations | Self::BudgetExhausted)
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::MaxIterations => "max_iterations",
            Self::BudgetExhausted => "budget_exhausted",
            Self::PolicyDenied => "policy_denied",
            Self::ApprovalDenied => "approval_denied",
            Self::ProviderFailed => "provider_failed",
            Self::Cancelled => "cancelled",
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires this signature")]
fn is_false(value: &bool) -> bool {
    !*value
}
