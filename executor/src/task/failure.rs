//! Why an attempt failed, and whether another one could help.

use std::time::Duration;

use protocol::code::Code;
use protocol::error::ErrorBody;
use serde_json::Value;

/// Why an order failed, in words that a model can act on. Never holds a secret.
#[derive(Debug)]
pub struct Failure {
    /// As the caller reads it.
    pub error: ErrorBody,
    pub retry: Retry,
    pub side_effect: SideEffect,
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
    /// A failure before anything happened, which a repetition cannot mend.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        ErrorBody::new(code, message).into()
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.error = self.error.hint(hint);
        self
    }

    #[must_use]
    pub fn detail(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.error = self.error.detail(key, value);
        self
    }

    #[must_use]
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// It may have taken effect all the same.
    #[must_use]
    pub fn effect_possible(mut self) -> Self {
        self.side_effect = SideEffect::Possible;
        self
    }
}

/// A failure before anything happened, which a repetition cannot mend.
impl From<ErrorBody> for Failure {
    fn from(error: ErrorBody) -> Self {
        Self { error, retry: Retry::Never, side_effect: SideEffect::None }
    }
}
