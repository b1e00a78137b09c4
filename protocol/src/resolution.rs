//! The resolution of a task that ended as `unknown`.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Whether a task that ended as `unknown` took effect, and who said so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resolution {
    /// Whether the task took effect.
    pub happened: bool,
    pub by: ResolvedBy,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    pub at: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResolvedBy {
    /// A request in the mailbox: from an agent, or from a human at the command line.
    Caller,
    /// A human on the page.
    Human,
}
