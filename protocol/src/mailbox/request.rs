//! What callers ask for, and the answers that are no result file.

use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::caller::{is_false, is_zero};
use crate::error::ErrorBody;
use crate::resolution::Resolution;
use crate::task::{State, TaskId};
use crate::tool_scope::ToolScope;

/// The version of this format; another one is refused with a hint to upgrade.
pub const VERSION: u32 = 1;

/// One request file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    pub v: u32,
    pub ask: Operation,
    /// What the caller says of itself.
    #[serde(default)]
    pub session: Option<String>,
    #[serde(default)]
    pub folder: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub depth: u8,
    /// Whether somebody wakes the caller when the task is final.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub wakes: bool,
    /// Which subtools it may use: it can take away, and nothing else.
    #[serde(default, skip_serializing_if = "ToolScope::is_everything")]
    pub reach: ToolScope,
}

impl Request {
    /// A request of nobody in particular.
    pub fn new(ask: Operation) -> Self {
        Self { v: VERSION, ask, session: None, folder: None, depth: 0, wakes: false, reach: ToolScope::default() }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    Run(Box<RunRequest>),
    Cancel {
        id: TaskId,
    },
    /// Says whether a task that ended as unknown took effect.
    Resolve {
        id: TaskId,
        happened: bool,
        #[serde(default)]
        note: Option<String>,
    },
    /// Stops every open task of a session of the caller's.
    Abandon {
        session: String,
    },
    /// Forgets the ended tasks of a session of the caller's, with their results.
    Forget {
        session: String,
    },
    Status,
}

impl Operation {
    pub fn run(run: RunRequest) -> Self {
        Self::Run(Box::new(run))
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunRequest {
    pub tool: String,
    #[serde(default)]
    pub input: Map<String, Value>,
    /// `key=value` words, which take the type that the schema names.
    #[serde(default)]
    pub words: Map<String, Value>,
    #[serde(default)]
    pub idempotency_key: Option<String>,
    #[serde(default)]
    pub dry_run: bool,
    /// What the agent says to the human who is asked, in its own favour.
    #[serde(default)]
    pub reason: Option<String>,
    /// What happens if a human must be asked and none is there.
    #[serde(default)]
    pub if_no_approver: IfNoApprover,
    /// It is not to start before this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// The caller's session only reads: what is not declared to is refused. It never lets anything through.
    #[serde(default, skip_serializing_if = "is_false")]
    pub read_only: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IfNoApprover {
    #[default]
    Wait,
    /// Nothing is accepted.
    Fail,
}

/// An answer. An accepted `run` has none: its result file is the answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Nothing was accepted and nothing is left behind.
    Refused(ErrorBody),
    /// The same was asked for before, under the same idempotency key.
    SameAs(TaskId),
    /// What a `--dry-run` would send.
    Plan(Value),
    /// To a cancel: the task's state now.
    Cancelling {
        id: TaskId,
        state: State,
    },
    /// To a resolve: what holds now.
    Settled {
        id: TaskId,
        settlement: Resolution,
    },
    /// To an abandon: the tasks that were open.
    Abandoned(Vec<TaskId>),
    /// To a forget: how many tasks are gone, and which are still open.
    Forgotten {
        forgotten: usize,
        open: Vec<TaskId>,
    },
    Status(Value),
}
