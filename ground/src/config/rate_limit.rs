//! Rate limits: how often one session may call a subtool, or the subtools that share a tag.

use std::collections::BTreeMap;

use protocol::duration::PositiveDuration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A limit on how often one session may run it. Calls beyond it are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RateLimit {
    /// The maximum number of runs in a window; 0 means no limit.
    pub calls: u32,
    /// The length of the sliding window, such as `1m`.
    pub per: PositiveDuration,
    /// Whether a call beyond the limit switches the subtool off for its session, until a human switches it on again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub auto_disable: bool,
}

/// The human's own rate limits. Those of `tools` replace the ones in definitions; those of `tags` apply in addition.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateLimitSettings {
    /// By the name of a subtool.
    pub tools: BTreeMap<String, RateLimit>,
    /// By a tag: all subtools with the tag share one window.
    pub tags: BTreeMap<String, RateLimit>,
}
