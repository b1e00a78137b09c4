//! Errors as Anthropic's clients read them.

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use protocol::code::Code;
use serde_json::{Value, json};

use crate::proxy::failure::ProxyFailure;
use crate::proxy::format::JSON;

/// Tells the SDKs whether to ask again by themselves; otherwise they do it after every error of a server.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
/// Where the SDKs read the id that is also in the body.
const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");

/// A failed request of an Anthropic client.
#[derive(Debug)]
pub(crate) struct AnthropicError(ProxyFailure);

impl From<ProxyFailure> for AnthropicError {
    fn from(failure: ProxyFailure) -> Self {
        Self(failure)
    }
}

impl IntoResponse for AnthropicError {
    fn into_response(self) -> Response {
        let Self(failure) = self;
        let id = request_id();
        let mut body = document(&failure);
        body["request_id"] = id.as_str().into();
        let mut response = (failure.status, [(header::CONTENT_TYPE, JSON)], body.to_string()).into_response();
        let headers = response.headers_mut();
        if let Some(seconds) = failure.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        let should_retry = if failure.retry_after.is_some() { "true" } else { "false" };
        headers.insert(SHOULD_RETRY, HeaderValue::from_static(should_retry));
        headers.extend(HeaderValue::from_str(&id).ok().map(|id| (REQUEST_ID, id)));
        response
    }
}

fn request_id() -> String {
    format!("req_{}", uuid::Uuid::now_v7().simple())
}

/// The body of an error, also in a stream. Our own code is at the end of the message, for which there is no other place.
pub(super) fn document(failure: &ProxyFailure) -> Value {
    let place = failure.param.as_ref().map_or_else(String::new, |param| format!("{param}: "));
    let message = format!("{place}{} ({})", failure.message, failure.code);
    json!({"type": "error", "error": {"type": kind(failure), "message": message}})
}

fn kind(failure: &ProxyFailure) -> &'static str {
    match failure.status {
        _ if failure.code == Code::BudgetExhausted.as_str() => "billing_error",
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::NOT_FOUND => "not_found_error",
        StatusCode::CONFLICT => "conflict_error",
        StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
        StatusCode::GATEWAY_TIMEOUT => "timeout_error",
        status if status.is_server_error() => "api_error",
        _ => "invalid_request_error",
    }
}

#[cfg(test)]
mod tests {
    use protocol::error::ErrorBody;

    use super::*;

    #[test]
    fn an_error_has_anthropics_shape_and_says_whether_to_ask_again() {
        let failure = ProxyFailure::invalid("messages.0.content", "`document` cannot be read here");
        let expected = json!({"type": "error", "error": {
            "type": "invalid_request_error",
            "message": "messages.0.content: `document` cannot be read here (invalid-input)",
        }});
        assert_eq!(document(&failure), expected);
        let of = |code| {
            let failure = ProxyFailure::from(ErrorBody::new(code, "so"));
            let kind = kind(&failure);
            let response = AnthropicError(failure).into_response();
            let header =
                |name: &str| response.headers().get(name).map(|value| value.to_str().expect("text").to_owned());
            assert!(header("request-id").expect("an id").starts_with("req_"));
            (response.status().as_u16(), kind, header("retry-after"), header("x-should-retry").expect("always there"))
        };
        assert_eq!(of(Code::SessionInUse), (409, "conflict_error", Some("2".to_owned()), "true".to_owned()));
        assert_eq!(of(Code::BudgetExhausted), (429, "billing_error", None, "false".to_owned()));
        assert_eq!(of(Code::Throttled), (429, "rate_limit_error", Some("2".to_owned()), "true".to_owned()));
        assert_eq!(of(Code::NoExecutor), (503, "overloaded_error", Some("2".to_owned()), "true".to_owned()));
        assert_eq!(of(Code::ModelFailed), (502, "api_error", None, "false".to_owned()));
        assert_eq!(of(Code::RequestTooLarge), (413, "request_too_large", None, "false".to_owned()));
        assert_eq!(of(Code::Denied), (403, "permission_error", None, "false".to_owned()));
    }
}
