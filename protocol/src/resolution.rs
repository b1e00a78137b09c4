//! What somebody said had happened to a task that ended as unknown.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// What was said, and by whom.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resolution {
    pub happened: bool,
    pub by: ResolvedBy,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    pub at: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResolvedBy {
    /// Whoever speaks through the mailbox: an agent, or a person at its side.
    Caller,
    /// A person, on the page.
    Human,
}
