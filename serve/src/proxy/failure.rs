//! Why a request gets no answer, before a protocol puts it into its own form.

use axum::http::StatusCode;
use protocol::code::{Code, Exit};
use protocol::error::ErrorBody;

use crate::http::retry_seconds;

/// A request that gets no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProxyFailure {
    pub(crate) status: StatusCode,
    /// One of our error codes, or one of OpenAI's where its clients look for it.
    pub(crate) code: &'static str,
    pub(crate) message: String,
    /// The field of the request that is wrong.
    pub(crate) param: Option<String>,
    /// When to ask again, in seconds. Without it, asking again would not help.
    pub(crate) retry_after: Option<u32>,
}

impl ProxyFailure {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), param: None, retry_after: None }
    }

    /// A field of the request is wrong.
    pub(crate) fn invalid(param: &str, message: impl Into<String>) -> Self {
        let failure = Self::new(StatusCode::BAD_REQUEST, Code::InvalidInput.as_str(), message);
        Self { param: Some(param.to_owned()), ..failure }
    }

    pub(crate) fn unknown_model(name: &str, known: &[String]) -> Self {
        let message = format!("there is no model `{name}`; the models here are {}", known.join(", "));
        let failure = Self::new(StatusCode::NOT_FOUND, "model_not_found", message);
        Self { param: Some("model".to_owned()), ..failure }
    }

    pub(crate) fn unknown_embedder(name: &str, known: &[String]) -> Self {
        let which = match known {
            [] => "none does here".to_owned(),
            known => format!("those that do are {}", known.join(", ")),
        };
        let message = format!("no model `{name}` makes embeddings; {which}");
        Self { param: Some("model".to_owned()), ..Self::new(StatusCode::NOT_FOUND, "model_not_found", message) }
    }
}

impl From<ErrorBody> for ProxyFailure {
    fn from(error: ErrorBody) -> Self {
        let status = match error.code {
            Code::RequestTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Code::SessionInUse | Code::Cancelled => StatusCode::CONFLICT,
            Code::Throttled | Code::RateLimited | Code::BudgetExhausted => StatusCode::TOO_MANY_REQUESTS,
            Code::TimedOut => StatusCode::GATEWAY_TIMEOUT,
            Code::ModelRejected => StatusCode::BAD_REQUEST,
            Code::Io | Code::BadConfig | Code::BadDefinition | Code::SecretMissing => StatusCode::INTERNAL_SERVER_ERROR,
            code => match code.exit() {
                Exit::Usage => StatusCode::BAD_REQUEST,
                Exit::NotFound => StatusCode::NOT_FOUND,
                // Of `too-many-sessions` too: clients repeat a 429 by themselves, and only a deletion helps.
                Exit::Refused | Exit::AwaitingConfirmation => StatusCode::FORBIDDEN,
                Exit::NoExecutor => StatusCode::SERVICE_UNAVAILABLE,
                Exit::Failed => StatusCode::BAD_GATEWAY,
                Exit::Pending => StatusCode::GATEWAY_TIMEOUT,
                Exit::Ok | Exit::Bug => StatusCode::INTERNAL_SERVER_ERROR,
            },
        };
        let retry_after = retry_seconds(error.code);
        let message = match error.hint {
            Some(hint) => format!("{}; {hint}", error.message),
            None => error.message,
        };
        Self { status, code: error.code.as_str(), message, param: None, retry_after }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_error_has_its_status() {
        let of = |code| {
            let failure = ProxyFailure::from(ErrorBody::new(code, "it is so").hint("do that"));
            assert_eq!(failure.message, "it is so; do that");
            (failure.status.as_u16(), failure.retry_after.is_some())
        };
        assert_eq!(of(Code::NoModel), (400, false));
        assert_eq!(of(Code::InvalidInput), (400, false));
        assert_eq!(of(Code::NotFound), (404, false));
        assert_eq!(of(Code::SessionInUse), (409, true));
        assert_eq!(of(Code::Throttled), (429, true));
        assert_eq!(of(Code::TooManySessions), (403, false));
        assert_eq!(of(Code::BudgetExhausted), (429, false));
        assert_eq!(of(Code::RefusedByPolicy), (403, false));
        assert_eq!(of(Code::TooDeep), (403, false));
        assert_eq!(of(Code::ModelFailed), (502, false));
        assert_eq!(of(Code::ModelRejected), (400, false));
        assert_eq!(of(Code::NoExecutor), (503, true));
        assert_eq!(of(Code::RequestTooLarge), (413, false));
        assert_eq!(of(Code::Internal), (500, false));
        for code in Code::ALL {
            assert!(of(*code).0 >= 400, "{code}");
        }
    }
}
