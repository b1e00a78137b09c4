//! Why an attempt failed, and whether a retry could help.

use crate::base::template::TemplateError;
use std::time::Duration;

use protocol::code::Code;
use protocol::error::ErrorBody;
use serde_json::Value;

/// Why an attempt failed, in words that a model can act on. Never contains a secret.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The error that the caller gets.
    pub error: ErrorBody,
    pub retry: Retry,
    pub side_effect: SideEffect,
}

/// Whether a retry could help, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    Never,
    /// After the usual backoff.
    Later,
    /// After at least this long, as the server asked (`Retry-After`).
    After(Duration),
}

/// Whether the failed attempt can have changed anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SideEffect {
    /// No: nothing was sent, or the server says that it changed nothing.
    None,
    /// The service or the program answered that it failed. Parts of it may have been done.
    Answered,
    /// It may have taken effect, and no answer says whether it did.
    Possible,
}

impl Failure {
    /// A failure without side effects that a retry cannot fix.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        ErrorBody::new(code, message).into()
    }

    /// What a human was shown is no longer so, as `what` says.
    pub fn drifted(what: &str) -> Self {
        Self::new(Code::Drifted, format!("{what}; nothing was done"))
            .hint("if it is still wanted, run it again: the human will be asked about the current state")
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

    /// Marks that the service or the program answered that the attempt failed.
    #[must_use]
    pub fn answered(mut self) -> Self {
        self.side_effect = SideEffect::Answered;
        self
    }

    /// Marks that the attempt may have taken effect, and that there was no answer that says whether it did.
    #[must_use]
    pub fn effect_possible(mut self) -> Self {
        self.side_effect = SideEffect::Possible;
        self
    }
}

/// A failure without side effects that a retry cannot fix.
impl From<ErrorBody> for Failure {
    fn from(error: ErrorBody) -> Self {
        Self { error, retry: Retry::Never, side_effect: SideEffect::None }
    }
}

impl From<TemplateError> for Failure {
    fn from(error: TemplateError) -> Self {
        Self::new(Code::TemplateFailed, error.to_string())
            .hint("the input lacks a value that the definition needs, or the definition is wrong")
    }
}
