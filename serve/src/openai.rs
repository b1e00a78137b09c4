//! OpenAI's API: its official SDKs, and every program that takes a base URL, talk to a session of ours as to a model.
//!
//! `/v1/models`, `/v1/chat/completions`, `/v1/responses`, `/v1/completions` and `/v1/embeddings`. What counts of a request, and which
//! session answers it, is said in [`crate::proxy::question`].

mod chat;
mod completion_format;
mod completions;
mod demands;
mod embeddings;
pub(crate) mod errors;
mod models;
mod responses;

use std::sync::Arc;

use agent_loop::model::conversation::StopReason;
use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{any, get, post};
use serde_json::{Value, json};

use self::errors::OpenAiError;
use crate::anthropic;
use crate::http::ServeState;
use crate::http::model_protocol::is_anthropic_client;
use crate::proxy::failure::ProxyFailure;
use crate::proxy::request::ProxyRequest;
use crate::service::turn::TurnUsage;

const OFFERED: &str = "/v1/chat/completions, /v1/responses, /v1/completions, /v1/embeddings and /v1/models";

/// The routes of OpenAI's clients. All of them are below `/v1`.
pub fn router() -> Router<Arc<ServeState>> {
    Router::new()
        .route("/v1/models", get(models::list).fallback(wrong_method))
        .route("/v1/models/{*id}", get(models::one).fallback(wrong_method))
        .route("/v1/chat/completions", post(chat::complete).fallback(wrong_method))
        .route("/v1/completions", post(completions::complete).fallback(wrong_method))
        .route("/v1/embeddings", post(embeddings::create).fallback(wrong_method))
        .route("/v1/responses", post(responses::create).fallback(wrong_method))
        .route("/v1/responses/{id}", get(responses::stored).delete(responses::forget).fallback(wrong_method))
        .route("/v1/responses/{id}/{*rest}", any(responses::unknown_part))
        .route("/v1/{*rest}", any(unknown))
}

/// The answer of a route.
type OpenAiResult = Result<Response, OpenAiError>;

async fn unknown(request: Request) -> Response {
    if is_anthropic_client(request.headers()) {
        return anthropic::unknown(request).await.into_response();
    }
    let message = format!("`{}` is not offered here; there are {OFFERED}", request.uri().path());
    OpenAiError::from(ProxyFailure::new(StatusCode::NOT_FOUND, "unknown_url", message)).into_response()
}

async fn wrong_method(request: Request) -> OpenAiError {
    let message = format!("{} is not allowed for `{}`", request.method(), request.uri().path());
    ProxyFailure::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message).into()
}

/// Refuses what no answer here can have: more than one choice, sound, probabilities, and work in the background.
fn check(request: &ProxyRequest) -> Result<(), ProxyFailure> {
    for name in ["n", "best_of"] {
        if request.field(name).is_some_and(|count| *count != 1) {
            return Err(ProxyFailure::invalid(name, format!("`{name}` can only be 1: a session gives one answer")));
        }
    }
    let modalities = request.field("modalities").and_then(Value::as_array);
    if modalities.is_some_and(|list| list.iter().any(|kind| kind != "text")) {
        return Err(ProxyFailure::invalid("modalities", "answers are text only"));
    }
    for name in ["logprobs", "logit_bias", "top_logprobs"] {
        let is_nothing = |value: &Value| *value == false || *value == 0 || *value == json!({});
        if request.field(name).is_some_and(|value| !is_nothing(value)) {
            return Err(ProxyFailure::invalid(name, format!("`{name}` is not offered here; leave it out")));
        }
    }
    if request.flag("background")? == Some(true) {
        return Err(ProxyFailure::invalid(
            "background",
            "no response is made in the background; ask with `stream` instead",
        ));
    }
    Ok(())
}

/// Why an answer ended, in the words of both kinds of completions.
fn finish_reason(reason: StopReason) -> &'static str {
    match reason {
        StopReason::CallsClient => "tool_calls",
        StopReason::Refused => "content_filter",
        reason if reason.is_truncated() => "length",
        _ => "stop",
    }
}

fn usage(used: TurnUsage) -> Value {
    json!({
        "prompt_tokens": used.input_tokens,
        "completion_tokens": used.output_tokens,
        "total_tokens": used.input_tokens + used.output_tokens,
        "prompt_tokens_details": {"cached_tokens": used.cached_tokens, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": 0,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    })
}

/// An id in OpenAI's form.
fn new_id(prefix: &str) -> String {
    format!("{prefix}{}", uuid::Uuid::now_v7().simple())
}

/// One server-sent event without a name.
fn event(data: &Value) -> String {
    format!("data: {data}\n\n")
}
