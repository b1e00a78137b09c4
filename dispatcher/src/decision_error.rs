//! Why the command of a human was not carried out.

use ground::base::webauthn::{Base64Url, WebauthnError};
use protocol::error::ErrorBody;
use protocol::task::{State, TaskId};

use super::touch_verifier::TouchRequest;

/// The new states of the decided tasks.
pub type DecisionResult = Result<Vec<(TaskId, State)>, DecisionError>;

/// Why nothing was decided.
#[derive(Debug, Clone, PartialEq)]
pub enum DecisionError {
    /// The task does not wait for a decision: it was decided, has ended or does not exist.
    NotPending(TaskId),
    /// The task changed since the human was shown it.
    Stale(TaskId),
    /// It needs a touch of a key, and came without.
    NeedsTouch(Box<TouchRequest>),
    /// The key that signed is not enrolled.
    UnknownKey,
    /// What a key signed is not valid for this.
    BadTouch(WebauthnError),
    /// The API key that decides may not.
    NoScope,
    /// The API key that decides asked for the task itself.
    OwnQuestion,
    /// What was commanded is not possible or not allowed, such as an edit that the rules refuse, or a key that is wrong.
    CommandRefused(Box<ErrorBody>),
}

impl DecisionError {
    /// The same, but this key may not sign.
    #[must_use]
    pub fn without_key(mut self, credential: &Base64Url) -> Self {
        if let Self::NeedsTouch(request) = &mut self {
            request.credentials.retain(|other| other != credential);
        }
        self
    }
}

impl From<ErrorBody> for DecisionError {
    fn from(error: ErrorBody) -> Self {
        Self::CommandRefused(Box::new(error))
    }
}
