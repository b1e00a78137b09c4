//! Errors as Ollama's clients read them.

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::proxy::failure::ProxyFailure;
use crate::proxy::format::JSON;

/// A failed request of an Ollama client.
#[derive(Debug)]
pub(crate) struct OllamaError(ProxyFailure);

impl From<ProxyFailure> for OllamaError {
    fn from(failure: ProxyFailure) -> Self {
        Self(failure)
    }
}

impl IntoResponse for OllamaError {
    fn into_response(self) -> Response {
        let Self(failure) = self;
        let mut response =
            (failure.status, [(header::CONTENT_TYPE, JSON)], document(&failure).to_string()).into_response();
        if let Some(seconds) = failure.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// The body of an error, also as a line of a stream.
pub(super) fn document(failure: &ProxyFailure) -> Value {
    json!({"error": failure.message})
}
