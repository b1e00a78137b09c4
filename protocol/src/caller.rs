//! Who calls: the same value in a request, a task, the one tool and an attempt.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::tool_scope::ToolScope;

/// Who asked: the user id is the kernel's word, the rest is the caller's own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Caller {
    pub uid: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
    /// How many agents stand above it that were themselves called by an agent; 0 is nobody's.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub depth: u8,
    /// Whether it is woken when its task is final.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub wakes: bool,
    /// Which subtools it may use.
    #[serde(default, skip_serializing_if = "ToolScope::is_everything")]
    pub reach: ToolScope,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
pub fn is_zero(depth: &u8) -> bool {
    *depth == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
pub fn is_false(flag: &bool) -> bool {
    !*flag
}
