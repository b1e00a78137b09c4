//! What a delegated agent is told: who starts it writes it, and the session reads it.

use serde::{Deserialize, Serialize};

/// The instructions for a sub-agent: one JSON document on its standard input.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentBrief {
    pub prompt: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// Whether its tasks fail that need a human, unless one has the page open.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unattended: bool,
}
