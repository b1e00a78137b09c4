//! Effect classes: what repeating a task may do.

use serde::{Deserialize, Serialize};

/// What repeating a subtool may do; it follows from the annotations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectClass {
    /// It changes nothing: repeat it freely.
    Read,
    /// It changes something, the same however often.
    Idempotent,
    /// A lookup tells whether it happened: repeat it if that says no.
    Verifiable,
    /// Never repeat it unless it surely did not happen.
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
