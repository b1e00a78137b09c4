//! What a delegated agent is told: who starts it writes it, and the session reads it.

use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

/// The instructions for a sub-agent: one JSON document on its standard input.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentBrief {
    pub prompt: String,
    pub system: Option<String>,
    pub model: Option<String>,
    pub steps: Option<u32>,
    pub tokens: Option<u64>,
    pub cost: Option<f64>,
    /// Whether its tasks fail that need a human, unless one has the page open.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unattended: bool,
}
