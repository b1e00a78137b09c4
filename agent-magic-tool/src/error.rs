//! The command line's error type: a code, a message, a hint, and the exit status that follows from the code.

use std::io;

use agent_loop::journal::JournalError;
use executor::intake::policy::RuleError;
use ground::config::ConfigError;
use ground::config::secret::SecretError;
use protocol::code::{Code, Exit};
use protocol::error::{ErrorBody, chain};
use protocol::mailbox::MailboxError;
use protocol::paths::NoHomeFolder;
use protocol::tool_scope::InvalidScope;
use serde_json::Value;

/// Why a command failed.
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
        Self::new(Code::Internal, message).hint("this is a bug in agent-magic-tool, not a mistake in your call")
    }

    /// The executor's answer does not fit the requested `operation`.
    pub(crate) fn unexpected_answer(operation: &str) -> Self {
        Self::internal(format!("the executor's answer does not fit the operation `{operation}`"))
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
            "set AGENT_MAGIC_TOOL_DIR, for the caller and the executor, to a folder that you own and only you can write to",
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
        Self::new(Code::BadConfig, error.to_string()).hint("how to write rules: agent-magic-tool doctor --settings")
    }
}

impl From<InvalidScope> for Error {
    fn from(error: InvalidScope) -> Self {
        Self::new(Code::BadConfig, format!("the environment variable `AGENT_MAGIC_TOOL_SCOPE` is wrong: {error}")).hint(
            "write lists of names or globs, all of which must match, like [[\"git_*\", \"ask_user\"]], or unset it",
        )
    }
}

impl From<NoHomeFolder> for Error {
    fn from(error: NoHomeFolder) -> Self {
        Self::new(Code::BadConfig, error.to_string()).hint("set HOME")
    }
}

impl From<SecretError> for Error {
    fn from(error: SecretError) -> Self {
        ground::task::failure::Failure::from(error).error.into()
    }
}
