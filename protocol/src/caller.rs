//! Who calls: the same value in a request, a task, the one tool and an attempt.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::tool_scope::ToolScope;

/// The caller of a command. Only the user id is the kernel's word; the rest is what the caller says of itself,
/// and none of it allows anything that would be refused without it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Caller {
    /// The owner of the request file. The executor sets it, whatever a request says.
    #[serde(default)]
    pub uid: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The folder that it calls from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
    /// How many agents above it were themselves called by an agent.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub depth: u8,
    /// Whether it is woken when its task is final.
    #[serde(default, skip_serializing_if = "is_false")]
    pub wakes: bool,
    /// It may only run what is declared to be read-only.
    #[serde(default, skip_serializing_if = "is_false")]
    pub read_only: bool,
    /// Nobody can answer a question for it: what needs a confirmation fails if no human has the page open.
    #[serde(default, skip_serializing_if = "is_false")]
    pub unattended: bool,
    /// Which subtools it may use. Records of version 1 call it `tool_scope`.
    #[serde(default, alias = "reach", skip_serializing_if = "ToolScope::is_everything")]
    pub tool_scope: ToolScope,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
pub(crate) fn is_zero(depth: &u8) -> bool {
    *depth == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
pub(crate) fn is_false(flag: &bool) -> bool {
    !*flag
}
