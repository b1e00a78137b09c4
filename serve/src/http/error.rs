//! Errors as HTTP answers: the status that fits a code, and the one body.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use protocol::code::{Code, Exit};
use protocol::error::ErrorBody;
use serde_json::json;

/// The pause before a client asks a busy or a stopping server again.
const RETRY_SECONDS: u32 = 2;

/// The status of an answer with this code.
pub fn status_of(code: Code) -> StatusCode {
    match code {
        Code::InvalidJson | Code::InvalidInput | Code::BadRequest | Code::Usage => StatusCode::BAD_REQUEST,
        Code::RequestTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Code::NoModel => StatusCode::UNPROCESSABLE_ENTITY,
        Code::BadApiKey => StatusCode::UNAUTHORIZED,
        Code::SessionInUse | Code::Stale | Code::AlreadyDecided | Code::IdempotencyMismatch | Code::Cancelled => {
            StatusCode::CONFLICT
        }
        Code::WantsWord | Code::WantsAnswer | Code::NoQuestion => StatusCode::UNPROCESSABLE_ENTITY,
        Code::RateLimited | Code::Throttled | Code::BudgetExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::NoExecutor | Code::BadMailbox => StatusCode::SERVICE_UNAVAILABLE,
        Code::ModelFailed => StatusCode::BAD_GATEWAY,
        Code::TimedOut => StatusCode::GATEWAY_TIMEOUT,
        code => match code.exit() {
            Exit::NotFound => StatusCode::NOT_FOUND,
            Exit::Refused => StatusCode::FORBIDDEN,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        },
    }
}

/// After how many seconds a client may ask again; `None` if that alone would not help.
pub(crate) fn retry_seconds(code: Code) -> Option<u32> {
    let may_help = matches!(code, Code::SessionInUse | Code::Throttled | Code::RateLimited);
    (may_help || code.exit() == Exit::NoExecutor).then_some(RETRY_SECONDS)
}

/// An error as the own API answers it.
#[derive(Debug)]
pub(super) struct ApiError(pub(super) StatusCode, pub(super) ErrorBody);

impl From<ErrorBody> for ApiError {
    fn from(error: ErrorBody) -> Self {
        Self(status_of(error.code), error)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let Self(status, error) = self;
        let mut response = (status, Json(json!({ "error": error }))).into_response();
        if let Some(seconds) = retry_seconds(error.code) {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
