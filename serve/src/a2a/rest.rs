//! The HTTP+JSON binding: the same calls, each with a path of its own.

use std::sync::Arc;

use axum::extract::{Extension, Path, Query, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Router, body};
use serde_json::{Map, Value, json};

use super::calls::{CallDesk, TaskAnswer, params};
use super::desk::TaskDesk;
use super::error::{A2aError, A2aErrorKind};
use super::reply::{delivered, event_stream};
use super::wire::{ListParams, TaskParams};
use crate::http::{HttpClient, ServeState};

/// The media type of the binding.
const MEDIA_TYPE: &str = "application/a2a+json";

/// Its routes, below the path of the JSON-RPC binding.
pub(super) fn routes() -> Router<Arc<ServeState>> {
    Router::new()
        .route("/a2a/message:send", post(send))
        .route("/a2a/message:stream", post(stream))
        .route("/a2a/tasks", get(list))
        .route("/a2a/tasks/{id}", get(task).post(task))
        .route("/a2a/tasks/{id}/pushNotificationConfigs", get(push).post(push))
        .route("/a2a/tasks/{id}/pushNotificationConfigs/{config}", get(push).delete(push))
        .route("/a2a/extendedAgentCard", get(extended_card))
}

type Calls = (State<Arc<ServeState>>, Extension<Arc<TaskDesk>>, Extension<HttpClient>);

fn calls((State(state), Extension(desk), Extension(client)): Calls) -> CallDesk {
    CallDesk { state, desk, client }
}

async fn send(calls: Calls, headers: HeaderMap, body: body::Bytes) -> Response {
    let sent = async {
        super::check_version(&headers)?;
        self::calls(calls).send(params(json_of(&body)?)?).await
    };
    answer(sent.await, |answer| json!({"task": answer.task}))
}

async fn stream(calls: Calls, headers: HeaderMap, body: body::Bytes) -> Response {
    let asked = async {
        super::check_version(&headers)?;
        self::calls(calls).ask(params(json_of(&body)?)?).await
    };
    match asked.await {
        Ok((record, feed)) => event_stream(record, feed, |update| update),
        Err(error) => failure(&error),
    }
}

async fn list(calls: Calls, headers: HeaderMap, Query(query): Query<Map<String, Value>>) -> Response {
    let listed = || {
        super::check_version(&headers)?;
        self::calls(calls).list(&params::<ListParams>(typed(query))?)
    };
    match listed() {
        Ok(page) => ([("content-type", MEDIA_TYPE)], page.to_string()).into_response(),
        Err(error) => failure(&error),
    }
}

/// A task, or with `:cancel` or `:subscribe` after its id, what is done with it.
async fn task(
    method: Method,
    calls: Calls,
    headers: HeaderMap,
    Path(id): Path<String>,
    Query(query): Query<Map<String, Value>>,
) -> Response {
    if let Err(error) = super::check_version(&headers) {
        return failure(&error);
    }
    let calls = self::calls(calls);
    let (id, action) = id.split_once(':').unwrap_or((&id, ""));
    let of = |id: &str| TaskParams { id: id.to_owned(), history_length: None };
    match (method, action) {
        (Method::GET, "") => {
            let read = params::<TaskParams>(typed(query)).map(|params| TaskParams { id: id.to_owned(), ..params });
            answer(read.and_then(|params| calls.get(&params)), task_itself)
        }
        (Method::POST, "cancel") => answer(calls.cancel(&of(id)).await, task_itself),
        (_, "subscribe") => match calls.subscribe(&of(id)) {
            Ok((record, feed)) => event_stream(record, feed, |update| update),
            Err(error) => failure(&error),
        },
        _ => failure(&A2aError::new(A2aErrorKind::MethodNotFound, format!("there is no `{action}` of a task"))),
    }
}

fn task_itself(answer: &TaskAnswer) -> Value {
    serde_json::to_value(&answer.task).expect("a task is plain JSON")
}

async fn push() -> Response {
    failure(&super::no_push())
}

async fn extended_card() -> Response {
    failure(&super::no_extended_card())
}

fn json_of(body: &[u8]) -> Result<Value, A2aError> {
    serde_json::from_slice(body)
        .map_err(|error| A2aError::new(A2aErrorKind::Parse, format!("the body is not JSON: {error}")))
}

/// Parameters of a query with the types that they have in JSON.
fn typed(query: Map<String, Value>) -> Value {
    let typed = query.into_iter().map(|(name, value)| {
        let text = value.as_str().unwrap_or_default();
        let value = match name.as_str() {
            "historyLength" | "pageSize" => text.parse::<u64>().map_or(value.clone(), Value::from),
            "includeArtifacts" => (text == "true").into(),
            _ => value,
        };
        (name, value)
    });
    Value::Object(typed.collect())
}

fn answer(answer: Result<TaskAnswer, A2aError>, shape: impl Fn(&TaskAnswer) -> Value) -> Response {
    match answer {
        Ok(answer) => delivered(MEDIA_TYPE, &shape(&answer), &answer),
        Err(error) => failure(&error),
    }
}

fn failure(error: &A2aError) -> Response {
    let (status, body) = error.to_http();
    let status = if error.kind == A2aErrorKind::Parse { StatusCode::BAD_REQUEST } else { status };
    (status, error.headers(), [("content-type", MEDIA_TYPE)], body.to_string()).into_response()
}
