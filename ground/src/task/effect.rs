//! Effect classes: whether a task can safely be repeated.

use serde::{Deserialize, Serialize};

/// Whether a call of a subtool can safely be repeated; derived from the subtool's annotations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectClass {
    /// Changes nothing: always safe to repeat.
    Read,
    /// Repeating it has no additional effect: always safe to repeat.
    Idempotent,
    /// A lookup finds out whether it happened: safe to repeat if it did not.
    Verifiable,
    /// Safe to repeat only if it certainly did not happen.
    Once,
}

impl EffectClass {
    pub fn repeatable(self) -> bool {
        match self {
            Self::Read | Self::Idempotent => true,
            Self::Verifiable | Self::Once => false,
        }
    }
}
