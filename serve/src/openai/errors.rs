//! Errors as OpenAI's clients read them.

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use protocol::code::Code;
use serde_json::{Value, json};

use crate::proxy::failure::ProxyFailure;
use crate::proxy::format::JSON;

/// Tells OpenAI's SDKs whether to ask again by themselves; otherwise they do it after every error of a server.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// A failed request of an OpenAI client.
#[derive(Debug)]
pub(crate) struct OpenAiError(ProxyFailure);

impl From<ProxyFailure> for OpenAiError {
    fn from(failure: ProxyFailure) -> Self {
        Self(failure)
    }
}

impl IntoResponse for OpenAiError {
    fn into_response(self) -> Response {
        let Self(failure) = self;
        let mut response =
            (failure.status, [(header::CONTENT_TYPE, JSON)], document(&failure).to_string()).into_response();
        let headers = response.headers_mut();
        if let Some(seconds) = failure.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        let should_retry = if failure.retry_after.is_some() { "true" } else { "false" };
        headers.insert(SHOULD_RETRY, HeaderValue::from_static(should_retry));
        response
    }
}

/// The body of an error, also in a stream.
pub(super) fn document(failure: &ProxyFailure) -> Value {
    json!({"error": {
        "message": failure.message,
        "type": kind(failure),
        "param": failure.param,
        "code": code(failure),
    }})
}

/// OpenAI's word where its clients look for it.
fn code(failure: &ProxyFailure) -> &'static str {
    let is_rate = [Code::Throttled, Code::RateLimited].iter().any(|code| code.as_str() == failure.code);
    if is_rate { "rate_limit_exceeded" } else { failure.code }
}

fn kind(failure: &ProxyFailure) -> &'static str {
    match failure.status {
        _ if failure.code == Code::BudgetExhausted.as_str() => "insufficient_quota",
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        status if status.is_server_error() => "server_error",
        _ => "invalid_request_error",
    }
}

#[cfg(test)]
mod tests {
    use protocol::error::ErrorBody;

    use super::*;

    #[test]
    fn an_error_has_openais_shape_and_says_whether_to_ask_again() {
        let failure = ProxyFailure::invalid("messages.0.content", "`image_url` cannot be read here; send text only");
        let expected = json!({"error": {
            "message": "`image_url` cannot be read here; send text only",
            "type": "invalid_request_error",
            "param": "messages.0.content",
            "code": "invalid-input",
        }});
        assert_eq!(document(&failure), expected);
        let of = |code| {
            let failure = ProxyFailure::from(ErrorBody::new(code, "so"));
            let kind = kind(&failure);
            let response = OpenAiError(failure).into_response();
            let header =
                |name: &str| response.headers().get(name).map(|value| value.to_str().expect("text").to_owned());
            (response.status().as_u16(), kind, header("retry-after"), header("x-should-retry").expect("always there"))
        };
        assert_eq!(of(Code::SessionInUse), (409, "invalid_request_error", Some("2".to_owned()), "true".to_owned()));
        assert_eq!(of(Code::BudgetExhausted), (429, "insufficient_quota", None, "false".to_owned()));
        assert_eq!(of(Code::Throttled), (429, "rate_limit_error", Some("2".to_owned()), "true".to_owned()));
        assert_eq!(of(Code::ModelFailed), (502, "server_error", None, "false".to_owned()));
        assert_eq!(of(Code::Denied), (403, "permission_error", None, "false".to_owned()));
    }
}
