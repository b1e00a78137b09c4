//! What was said in a session: the entries of its journal, and the types of a turn.
//!
//! The entries are the truth of a session. What a model is given is made from them anew at each request
//! (`view.rs`), and what the loop knows is what they add up to (`machine.rs`). Written to disk as they are:
//! a field is only ever added, with a default.

use std::path::PathBuf;

use protocol::command_executor::OpenedTask;
use protocol::task::{State, TaskId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::ProviderKind;

/// One thing that happened in a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JournalEntry {
    /// A person asked.
    Asked {
        text: String,
    },
    Answered {
        turn: Box<Turn>,
    },
    /// What the calls of the turn before came to, in their order.
    Called {
        results: Vec<ToolResult>,
    },
    /// The model was told that these are final.
    Woken {
        tasks: Vec<EndedTask>,
    },
    /// We said something to the model.
    Noted {
        text: String,
    },
    /// The model looked at what went wrong, without tools.
    Diagnosed {
        turn: Box<Turn>,
    },
    /// The question came to an end.
    Stopped {
        reason: StopReason,
    },
    /// From now on another model answers.
    UsesModel {
        name: String,
    },
    /// The last question is taken back, with all that came of it.
    Undone,
    /// The conversation begins anew; open tasks stay.
    Cleared,
}

/// What a model said in one answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Turn {
    pub text: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<ToolCall>,
    /// The calls were found in the text.
    #[serde(default, skip_serializing_if = "is_false")]
    pub in_text: bool,
    /// The provider's own form of it, which it gets back unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<RawMessage>,
    #[serde(default)]
    pub usage: TokenUsage,
    /// The name in `[models]` of who said it.
    #[serde(default)]
    pub model: String,
    /// What it cost, by the prices of then.
    #[serde(default)]
    pub cost: f64,
}

/// An answer as only its provider understands it: signed thoughts, its own order of parts.
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
    /// An object, unless the model wrote something else.
    pub arguments: Value,
}

/// What came of one call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolResult {
    pub call: String,
    pub name: String,
    /// As the model reads it.
    pub text: String,
    pub status: u8,
    /// The tasks that it delegated and that were open then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub opened: Vec<OpenedTask>,
    /// The tasks whose end the model has read in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub collected: Vec<TaskId>,
    /// It only waited or read.
    #[serde(default, skip_serializing_if = "is_false")]
    pub only_reads: bool,
}

impl ToolResult {
    /// Of a call that delegated nothing and read no result.
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

/// A task that is final.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndedTask {
    pub id: TaskId,
    pub tool: String,
    /// None if its result file is gone.
    pub state: Option<State>,
    pub result_file: PathBuf,
}

/// Tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenUsage {
    pub input: u64,
    pub output: u64,
    /// How many of `input` the provider had seen before.
    #[serde(default)]
    pub cached: u64,
}

impl std::ops::AddAssign for TokenUsage {
    fn add_assign(&mut self, more: Self) {
        self.input += more.input;
        self.output += more.output;
        self.cached += more.cached;
    }
}

/// Why a question came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The model answered, and nothing is open.
    Completed,
    /// The last request, without tools, was answered.
    MaxIterations,
    /// Another request could cost more than allowed.
    BudgetExhausted,
    /// The model gave up after a rule said no.
    PolicyDenied,
    /// The model gave up after a human said no, or nobody answered.
    ApprovalDenied,
    /// No answer could be had; the only one that asking again may mend.
    ProviderFailed,
    Cancelled,
}

impl StopReason {
    /// Whether the answer is not what it could have been with more room.
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

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_false(value: &bool) -> bool {
    !*value
}
