//! The routes of all interfaces, behind the one door.

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use axum::{Router, middleware};
use protocol::error::ErrorBody;

use crate::a2a::TaskDesk;
use crate::anthropic::errors::AnthropicError;
use crate::http::model_protocol::ModelProtocol;
use crate::http::{ServeState, api, check_request};
use crate::ollama::errors::OllamaError;
use crate::openai::errors::OpenAiError;
use crate::proxy::failure::ProxyFailure;
use crate::{a2a, anthropic, ollama, openai};

/// All routes, behind the door.
pub(crate) fn router(state: Arc<ServeState>, tasks: Arc<TaskDesk>) -> Router {
    let other_agents = a2a::router(a2a::CardFacts::of(&state.settings), tasks);
    let protocols = openai::router().merge(anthropic::router()).merge(ollama::router()).merge(other_agents);
    api::router()
        .merge(protocols)
        // The door bounds bodies, with an error that its clients can read.
        .layer(DefaultBodyLimit::disable())
        .layer(middleware::from_fn_with_state(Arc::clone(&state), door))
        .with_state(state)
}

async fn door(State(state): State<Arc<ServeState>>, request: Request, next: Next) -> Response {
    check_request(&state, request, next, refusal).await
}

/// The answer to a request that was refused before it reached a route.
fn refusal(protocol: Option<ModelProtocol>, path: &str, status: StatusCode, error: &ErrorBody) -> Option<Response> {
    let failure = || ProxyFailure { status, ..error.clone().into() };
    match protocol {
        Some(ModelProtocol::OpenAi) => Some(OpenAiError::from(failure()).into_response()),
        Some(ModelProtocol::Anthropic) => Some(AnthropicError::from(failure()).into_response()),
        Some(ModelProtocol::Ollama) => Some(OllamaError::from(failure()).into_response()),
        None => a2a::error::too_large(path, error),
    }
}

#[cfg(test)]
mod tests {
    use axum::body;
    use protocol::code::Code;
    use serde_json::Value;

    use super::*;

    const MAX_BYTES: usize = 10_000;

    #[tokio::test]
    async fn a_refusal_has_the_form_of_its_protocol() {
        let too_large = ErrorBody::new(Code::RequestTooLarge, "too large");
        for (protocol, path, key, value) in [
            (None, "/a2a", "code", Value::from(-32600)),
            (None, "/a2a/message:send", "code", 413.into()),
            (Some(ModelProtocol::OpenAi), "/v1/chat/completions", "code", "request-too-large".into()),
            (Some(ModelProtocol::Anthropic), "/v1/messages", "type", "request_too_large".into()),
        ] {
            let response =
                refusal(protocol, path, StatusCode::PAYLOAD_TOO_LARGE, &too_large).expect("a form of its own");
            assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
            let body = body::to_bytes(response.into_body(), MAX_BYTES).await.expect("a body");
            let body: Value = serde_json::from_slice(&body).expect("JSON");
            assert_eq!(body["error"][key], value, "{body}");
            assert_eq!(body["jsonrpc"] == "2.0", path == "/a2a", "{body}");
        }
        let refused = |path, error: &ErrorBody| refusal(None, path, StatusCode::PAYLOAD_TOO_LARGE, error);
        assert!(refused("/api/v1/submit", &too_large).is_none());
        assert!(refused("/a2a", &ErrorBody::new(Code::BadApiKey, "no")).is_none());
    }
}
