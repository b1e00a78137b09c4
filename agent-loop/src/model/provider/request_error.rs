//! A request to a provider that failed, before it is decided what to tell of it, and to whom.

use std::time::Duration;

use ground::base::credential;
use protocol::excerpt;
use reqwest::header::HeaderMap;
use serde_json::Value;

use super::FailureClass;
use super::ending::Ending;

/// The most of a provider's message that is kept.
const MAX_MESSAGE_CHARS: usize = 2000;
/// The most of it that is shown to the user, on one line.
const MAX_SHOWN_CHARS: usize = 300;

/// Why a request failed, in the provider's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RequestError {
    pub(super) status: Option<u16>,
    /// The class of a failure without a status.
    pub(super) class: FailureClass,
    pub(super) kind: ErrorKind,
    /// The delay that the provider asked for, if any.
    pub(super) retry_after: Option<Duration>,
    /// What the provider said, which may quote the request. What looks like a credential is masked.
    pub(super) message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ErrorKind {
    Status,
    /// The connection failed or broke.
    Connection,
    /// The connection ended in the middle of an answer.
    BrokeOff,
    TimedOut,
    BadAnswer,
    /// The provider reported an error inside an answer.
    InsideTheAnswer,
}

impl RequestError {
    fn new(kind: ErrorKind, class: FailureClass, message: &str) -> Self {
        let message = credential::mask(message).chars().take(MAX_MESSAGE_CHARS).collect();
        Self { status: None, class, kind, retry_after: None, message }
    }

    /// A response with a status that means failure. `body` is taken apart for its message.
    pub(super) fn status(status: u16, headers: &HeaderMap, body: &str) -> Self {
        let wanted = headers.get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
        let parsed = serde_json::from_str::<Value>(body).ok();
        // Gemini's own answers come as a list.
        let parsed = parsed.map(|parsed| parsed.get(0).cloned().unwrap_or(parsed));
        let text = |pointer: &str| parsed.as_ref().and_then(|body| body.pointer(pointer)?.as_str());
        let said = parsed.as_ref().and_then(|body| Ending::of(body).error);
        let said = said.as_deref().or_else(|| text("/message")).or_else(|| text("/detail")).unwrap_or(body);
        let message = match text("/error/param") {
            Some(field) if !said.contains(field) => format!("{said} ({field})"),
            _ => said.to_owned(),
        };
        let error = Self::new(ErrorKind::Status, FailureClass::Rejected, &message);
        Self { status: Some(status), retry_after: wanted.map(Duration::from_secs), ..error }
    }

    pub(super) fn connection(error: &dyn std::error::Error) -> Self {
        Self::new(ErrorKind::Connection, FailureClass::Connection, &protocol::error::chain(error))
    }

    pub(super) fn broke_off() -> Self {
        Self::new(ErrorKind::BrokeOff, FailureClass::Connection, "the answer broke off")
    }

    pub(super) fn timed_out() -> Self {
        Self::new(ErrorKind::TimedOut, FailureClass::Connection, "timed out")
    }

    pub(super) fn bad_answer(message: &str) -> Self {
        Self::new(ErrorKind::BadAnswer, FailureClass::BadAnswer, message)
    }

    pub(super) fn inside_the_answer(message: &str) -> Self {
        Self::new(ErrorKind::InsideTheAnswer, FailureClass::ServerError, message)
    }

    /// The provider's message for the user, on one line.
    pub(super) fn shown(&self) -> String {
        excerpt::line(self.message.trim(), MAX_SHOWN_CHARS)
    }
}
