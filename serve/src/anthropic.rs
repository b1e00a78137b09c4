//! Anthropic's Messages API: its official SDKs, and programs like Claude Code, talk to a session of ours as to a model.
//!
//! `/v1/messages`, `/v1/messages/count_tokens`, and `/v1/models` for clients that say that they are Anthropic's. What counts
//! of a request, and which session answers it, is said in [`crate::proxy::question`].

mod blocks;
mod demands;
pub(crate) mod errors;
mod format;
mod messages;
mod models;

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{any, post};

pub(crate) use self::models::{list, one};

use self::errors::AnthropicError;
use crate::http::ServeState;
use crate::proxy::failure::ProxyFailure;

const OFFERED: &str = "/v1/messages, /v1/messages/count_tokens and /v1/models";

/// The answer of a route.
pub(crate) type AnthropicResult = Result<Response, AnthropicError>;

/// The routes of Anthropic's clients, besides those for models, which OpenAI's clients have too.
pub fn router() -> Router<Arc<ServeState>> {
    Router::new()
        .route("/v1/messages", post(messages::create).fallback(wrong_method))
        .route("/v1/messages/count_tokens", post(messages::count_tokens).fallback(wrong_method))
        .route("/v1/messages/{*rest}", any(unknown))
}

async fn wrong_method(request: Request) -> AnthropicError {
    let message = format!("{} is not allowed for `{}`", request.method(), request.uri().path());
    ProxyFailure::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message).into()
}

/// The error for a path that is not there.
pub(crate) async fn unknown(request: Request) -> AnthropicError {
    let message = format!("`{}` is not offered here; there are {OFFERED}", request.uri().path());
    ProxyFailure::new(StatusCode::NOT_FOUND, "unknown_url", message).into()
}

/// One server-sent event, whose name is its type.
fn event(data: &serde_json::Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap_or_default())
}
