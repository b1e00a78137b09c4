//! The command line's one error: a code, words, a hint, and the exit status that follows from the code.

use std::io;

use executor::agent::journal::JournalError;
use executor::config::ConfigError;
use executor::config::secret::SecretError;
use executor::intake::policy::RuleError;
use protocol::code::{Code, Exit};
use protocol::error::{ErrorBody, chain};
use protocol::mailbox::MailboxError;
use protocol::paths::NoHomeFolder;
use serde_json::Value;

/// Why a command did not do what it was asked to.
#[derive(Debug, Clone)]
pub(crate) struct Error(Box<ErrorBody>);

impl Error {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self(Box::new(ErrorBody::new(code, message)))
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Code::Usage, message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(Code::Internal, message).hint("this is a mistake in agent-magic-tool, not in your call")
    }

    pub(crate) fn io(what: &str, error: &io::Error) -> Self {
        Self::new(Code::Io, format!("{what}: {error}"))
    }

    #[must_use]
    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        Self(Box::new(self.0.hint(hint)))
    }

    #[must_use]
    pub(crate) fn detail(self, key: &str, value: impl Into<Value>) -> Self {
        Self(Box::new(self.0.detail(key, value)))
    }

    pub(crate) fn body(&self) -> &ErrorBody {
        &self.0
    }

    pub(crate) fn exit(&self) -> Exit {
        self.0.code.exit()
    }
}

impl From<ErrorBody> for Error {
    fn from(body: ErrorBody) -> Self {
        Self(Box::new(body))
    }
}

impl From<JournalError> for Error {
    fn from(error: JournalError) -> Self {
        ErrorBody::from(error).into()
    }
}

impl From<MailboxError> for Error {
    fn from(error: MailboxError) -> Self {
        Self::new(Code::BadMailbox, chain(&error)).hint(
            "set AGENT_MAGIC_TOOL_DIR to a folder of your own that others cannot write to, for caller and executor alike",
        )
    }
}

impl From<ConfigError> for Error {
    fn from(error: ConfigError) -> Self {
        Self::new(Code::BadConfig, chain(&error)).hint(error.hint())
    }
}

impl From<RuleError> for Error {
    fn from(error: RuleError) -> Self {
        Self::new(Code::BadConfig, error.to_string())
            .hint("every rule and what it must match: agent-magic-tool doctor --settings")
    }
}

impl From<NoHomeFolder> for Error {
    fn from(error: NoHomeFolder) -> Self {
        Self::new(Code::BadConfig, error.to_string()).hint("set HOME")
    }
}

impl From<SecretError> for Error {
    fn from(error: SecretError) -> Self {
        executor::task::failure::Failure::from(error).error.into()
    }
}
