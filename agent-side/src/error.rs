//! The command line's error type: a code, a message, a hint, and the exit status that follows from the code.

use std::io;

use protocol::code::{Code, Exit};
use protocol::error::ErrorBody;
use serde_json::Value;

/// Why a command failed.
#[derive(Debug, Clone)]
pub struct Error(Box<ErrorBody>);

impl Error {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self(Box::new(ErrorBody::new(code, message)))
    }

    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Code::Usage, message)
    }

    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(Code::Internal, message).hint("this is a bug in agent-magic-tool, not a mistake in your call")
    }

    /// The executor's answer does not fit the requested `operation`.
    pub fn unexpected_answer(operation: &str) -> Self {
        Self::internal(format!("the executor's answer does not fit the operation `{operation}`"))
    }

    pub fn io(what: &str, error: &io::Error) -> Self {
        Self::new(Code::Io, format!("{what}: {error}"))
    }

    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self(Box::new(self.0.hint(hint)))
    }

    #[must_use]
    pub fn detail(self, key: &str, value: impl Into<Value>) -> Self {
        Self(Box::new(self.0.detail(key, value)))
    }

    pub fn body(&self) -> &ErrorBody {
        &self.0
    }

    pub fn exit(&self) -> Exit {
        self.0.code.exit()
    }
}

/// Whatever has a form for callers; no other error does.
impl<E: Into<ErrorBody>> From<E> for Error {
    fn from(error: E) -> Self {
        Self(Box::new(error.into()))
    }
}
