//! The agent2agent protocol (A2A), version 1: other agents ask this one.
//!
//! A context is a session, and a task is one turn of it. Spoken over JSON-RPC and over HTTP+JSON; over JSON-RPC also in
//! the words of version 0.3 ([`legacy`]). What waits for a human is told as a state of the task; no message decides it.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};

use crate::http::{HttpClient, ServeState};

mod calls;
mod card;
mod desk;
pub(crate) mod error;
mod legacy;
mod record;
mod reply;
mod rest;
mod store;
mod wire;

#[cfg(test)]
pub(crate) mod tests;

use calls::{CallDesk, TaskAnswer, params};
pub use card::CardFacts;
pub use desk::TaskDesk;
use error::{A2aError, A2aErrorKind};
use reply::{delivered, event_stream};

/// The header with the version that a client speaks.
const VERSION_HEADER: &str = "a2a-version";

/// The routes of the protocol, over these tasks.
pub fn router(facts: CardFacts, desk: Arc<TaskDesk>) -> Router<Arc<ServeState>> {
    Router::new()
        .route("/.well-known/agent-card.json", get(card))
        .route(card::PATH, post(json_rpc))
        .merge(rest::routes())
        .layer(Extension(desk))
        .layer(Extension(Arc::new(facts)))
}

async fn card(Extension(facts): Extension<Arc<CardFacts>>, headers: HeaderMap) -> Response {
    let host = headers.get("host").and_then(|host| host.to_str().ok()).unwrap_or("localhost");
    axum::Json(facts.to_card(host)).into_response()
}

/// A call, taken apart.
struct RpcCall {
    id: Value,
    /// In the words of version 1.
    method: &'static str,
    params: Value,
    is_legacy: bool,
}

async fn json_rpc(
    State(state): State<Arc<ServeState>>,
    Extension(desk): Extension<Arc<TaskDesk>>,
    Extension(client): Extension<HttpClient>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let mut id = Value::Null;
    let called = rpc_call(&body, &mut id).and_then(|call| check_version(&headers).map(|()| call));
    let call = match called {
        Ok(call) => call,
        Err(error) => return rpc_error(&id, &error),
    };
    let calls = CallDesk { state, desk, client };
    match perform(&calls, call).await {
        Ok(response) => response,
        Err(error) => rpc_error(&id, &error),
    }
}

async fn perform(calls: &CallDesk, call: RpcCall) -> Result<Response, A2aError> {
    let RpcCall { id, method, params: given, is_legacy } = call;
    let shape = move |result: Value| {
        let result = if is_legacy { legacy::to_legacy_result(result) } else { result };
        json!({"jsonrpc": "2.0", "id": id, "result": result})
    };
    let answered = |answer: &TaskAnswer, result: Value| delivered("application/json", &shape(result), answer);
    match method {
        "SendMessage" => {
            let answer = calls.send(params(given)?).await?;
            Ok(answered(&answer, json!({"task": answer.task})))
        }
        "GetTask" => {
            let answer = calls.get(&params(given)?)?;
            Ok(answered(&answer, json!(answer.task)))
        }
        "CancelTask" => {
            let answer = calls.cancel(&params(given)?).await?;
            Ok(answered(&answer, json!(answer.task)))
        }
        "ListTasks" => Ok(axum::Json(shape(calls.list(&params(given)?)?)).into_response()),
        "SendStreamingMessage" => {
            let (record, feed) = calls.ask(params(given)?).await?;
            Ok(event_stream(record, feed, shape))
        }
        "SubscribeToTask" => {
            let (record, feed) = calls.subscribe(&params(given)?)?;
            Ok(event_stream(record, feed, shape))
        }
        "GetExtendedAgentCard" => Err(no_extended_card()),
        _ => Err(no_push()),
    }
}

/// The methods of version 1.
const METHODS: [&str; 11] = [
    "SendMessage",
    "SendStreamingMessage",
    "GetTask",
    "ListTasks",
    "CancelTask",
    "SubscribeToTask",
    "CreateTaskPushNotificationConfig",
    "GetTaskPushNotificationConfig",
    "ListTaskPushNotificationConfigs",
    "DeleteTaskPushNotificationConfig",
    "GetExtendedAgentCard",
];

/// Reads a call; `id` is its id as soon as that is known.
fn rpc_call(body: &[u8], id: &mut Value) -> Result<RpcCall, A2aError> {
    let invalid = |words: &str| A2aError::new(A2aErrorKind::InvalidRequest, words);
    let mut call: Value = serde_json::from_slice(body)
        .map_err(|error| A2aError::new(A2aErrorKind::Parse, format!("the body is not JSON: {error}")))?;
    if call.is_array() {
        return Err(invalid("several calls at once are not taken: send them one by one"));
    }
    let given = call.get("id").cloned().unwrap_or_default();
    if !(given.is_string() || given.is_i64() || given.is_u64() || given.is_null()) {
        return Err(invalid("`id` must be a string or a whole number"));
    }
    *id = given;
    if call["jsonrpc"] != "2.0" {
        return Err(invalid("`jsonrpc` must be \"2.0\""));
    }
    let Some(name) = call["method"].as_str() else { return Err(invalid("`method` must be a string")) };
    let (method, is_legacy) = match legacy::method(name) {
        Some(method) => (Some(method), true),
        None => (METHODS.into_iter().find(|method| *method == name), false),
    };
    let Some(method) = method else {
        return Err(A2aError::new(A2aErrorKind::MethodNotFound, format!("there is no method `{name}`")));
    };
    let given = call["params"].take();
    let params = if is_legacy { legacy::to_current_params(given) } else { given };
    Ok(RpcCall { id: id.clone(), method, params, is_legacy })
}

/// Fails if the client speaks a version that we do not. One that names no version is known by its methods.
fn check_version(headers: &HeaderMap) -> Result<(), A2aError> {
    let Some(version) = headers.get(VERSION_HEADER).and_then(|version| version.to_str().ok()) else { return Ok(()) };
    let version = version.trim();
    let is_spoken = version.is_empty() || version == "1" || version.starts_with("1.") || version.starts_with("0.3");
    if is_spoken {
        return Ok(());
    }
    let words = format!("version `{version}` of the protocol is not spoken here: use 1.0");
    Err(A2aError::new(A2aErrorKind::VersionNotSupported, words))
}

fn no_push() -> A2aError {
    let words = "push notifications are not sent: stream the task, or ask for it with GetTask";
    A2aError::new(A2aErrorKind::PushNotificationNotSupported, words)
}

fn no_extended_card() -> A2aError {
    A2aError::new(A2aErrorKind::UnsupportedOperation, "there is no other card than the public one")
}

fn rpc_error(id: &Value, error: &A2aError) -> Response {
    // A client that has too much at once is told so below the protocol as well, where it looks for when to ask again.
    let status = match error.kind {
        A2aErrorKind::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        A2aErrorKind::PermissionDenied => StatusCode::FORBIDDEN,
        _ => StatusCode::OK,
    };
    let body = axum::Json(json!({"jsonrpc": "2.0", "id": id, "error": error.to_json_rpc()}));
    (status, error.headers(), body).into_response()
}
