//! Why an attempt failed, and whether another one could help.

use std::time::Duration;

use protocol::code::Code;
use protocol::error::ErrorBody;
use serde_json::{Map, Value};

/// Why an order failed, in words that a model can act on. Never holds a secret.
#[derive(Debug)]
pub struct Failure {
    pub code: Code,
    pub message: String,
    pub hint: Option<String>,
    /// More for the reader: what the API said, what the program printed so far.
    pub details: Map<String, Value>,
    pub again: Retry,
    pub effect: SideEffect,
}

/// Whether a repetition could help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    Never,
    /// After the usual pause.
    Later,
    /// Not before this long has passed: the far side said so.
    After(Duration),
}

/// Whether the failed order can have changed anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SideEffect {
    /// Surely not: nothing left this machine, or the far side says that it did nothing.
    None,
    /// Perhaps.
    Possible,
}

impl Failure {
    /// A failure that a repetition cannot mend, before anything happened.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            hint: None,
            details: Map::new(),
            again: Retry::Never,
            effect: SideEffect::None,
        }
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    #[must_use]
    pub fn detail(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.details.insert(key.to_owned(), value.into());
        self
    }

    #[must_use]
    pub fn again(mut self, again: Retry) -> Self {
        self.again = again;
        self
    }

    /// It may have taken effect all the same.
    #[must_use]
    pub fn effect_possible(mut self) -> Self {
        self.effect = SideEffect::Possible;
        self
    }
}

/// What a caller would have read, as the failure of whoever called for it.
impl From<ErrorBody> for Failure {
    fn from(error: ErrorBody) -> Self {
        let failure = Self::new(error.code, error.message);
        Self { hint: error.hint, details: error.details, ..failure }
    }
}
