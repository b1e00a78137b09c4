//! Ollama's API: its official SDKs and the many programs that look for a local Ollama talk to a session of ours.
//!
//! Everything below `/api` is also below `/v1/api`, for programs that add a path to one base URL. `/api/v1` is our own API
//! and has nothing to do with this. What counts of a request, and which session answers it, is said in
//! [`crate::proxy::question`].

mod chat;
mod demands;
mod embed;
pub(crate) mod errors;
mod format;
mod generate;
mod models;

use std::sync::Arc;
use std::time::Duration;

use agent_loop::model::conversation::StopReason;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{any, get, post};
use axum::{Json, Router};
use protocol::code::Code;
use serde_json::{Value, json};

pub(crate) use self::models::tags;

use self::errors::OllamaError;
use crate::http::ServeState;
use crate::http::model_protocol::is_ollama_client;
use crate::proxy::answer::AnswerEnd;
use crate::proxy::failure::ProxyFailure;

/// The release of Ollama whose forms are spoken. Clients refuse servers that are too old for them.
const OLLAMA_VERSION: &str = "0.12.0";

/// What Ollama can do with models, and a session cannot.
const REFUSED: [&str; 6] = ["pull", "push", "delete", "create", "copy", "blobs/{digest}"];

/// The type of a streamed answer: one JSON document in each line.
const LINES: &str = "application/x-ndjson";

/// The answer of a route.
type OllamaResult = Result<Response, OllamaError>;

/// The routes of Ollama's clients.
pub fn router() -> Router<Arc<ServeState>> {
    let below = |base: &str| {
        let path = |name: &str| format!("{base}/{name}");
        let router = Router::new()
            .route(&path("version"), get(version).fallback(wrong_method))
            .route(&path("tags"), get(models::list).fallback(wrong_method))
            .route(&path("ps"), get(models::running).fallback(wrong_method))
            .route(&path("show"), post(models::show).fallback(wrong_method))
            .route(&path("chat"), post(chat::answer).fallback(wrong_method))
            .route(&path("generate"), post(generate::answer).fallback(wrong_method))
            .route(&path("embed"), post(embed::answer).fallback(wrong_method))
            .route(&path("embeddings"), post(embed::answer_one).fallback(wrong_method));
        REFUSED.iter().fold(router, |router, name| router.route(&path(name), any(refused)))
    };
    Router::new().route("/", get(root)).merge(below("/api")).merge(below("/v1/api"))
}

/// What Ollama's clients ask for to see whether it runs. To others, where everything is.
async fn root(request: Request) -> Response {
    if is_ollama_client(request.headers()) {
        return "Ollama is running".into_response();
    }
    "agent-magic-tool answers here: its own API at /api/v1, OpenAI's and Anthropic's at /v1, Ollama's at /api\n"
        .into_response()
}

async fn version() -> Json<Value> {
    Json(json!({"version": OLLAMA_VERSION}))
}

async fn refused(request: Request) -> OllamaError {
    let path = request.uri().path();
    let message = format!(
        "`{path}` is not offered here: the models are those in the configuration of agent-magic-tool, and they chat"
    );
    ProxyFailure::new(StatusCode::NOT_FOUND, Code::NotFound.as_str(), message).into()
}

async fn wrong_method(request: Request) -> OllamaError {
    let message = format!("{} is not allowed for `{}`", request.method(), request.uri().path());
    ProxyFailure::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message).into()
}

/// A model's name without its tag: `sonnet:latest` is `sonnet`, as everywhere in Ollama.
fn without_tag(name: &str) -> &str {
    name.strip_suffix(":latest").unwrap_or(name)
}

/// The beginning of each document: the model as the client named it, and the time.
fn head(model: &str) -> Value {
    json!({"model": model, "created_at": protocol::clock::now().to_string()})
}

/// Adds the fields of the last document.
fn finish(document: &mut Value, end: &AnswerEnd) {
    let used = end.outcome.usage;
    document["done"] = true.into();
    document["done_reason"] = done_reason(end.outcome.stop_reason).into();
    document["total_duration"] = nanos(end.total).into();
    document["load_duration"] = 0.into();
    document["prompt_eval_count"] = used.input_tokens.into();
    document["prompt_eval_duration"] = nanos(end.thinking).into();
    document["eval_count"] = used.output_tokens.into();
    document["eval_duration"] = nanos(end.total.saturating_sub(end.thinking)).into();
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn done_reason(reason: StopReason) -> &'static str {
    if reason.is_truncated() { "length" } else { "stop" }
}

/// What Ollama answers to a request without a question: the model is loaded.
fn loaded(mut document: Value, keep_alive: Option<&Value>) -> Response {
    let unloads = keep_alive.is_some_and(|value| *value == 0);
    document["done"] = true.into();
    document["done_reason"] = if unloads { "unload" } else { "load" }.into();
    Json(document).into_response()
}

/// One line of a stream.
fn line(document: &Value) -> String {
    format!("{document}\n")
}
