//! What a human has done from the page through the mailbox, like a request of any other caller: a subtool that is tried, and
//! the undo of a task.

use std::path::PathBuf;
use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use definition::Undo;
use ground::base::jq_pool::Query;
use ground::results::handover;
use ground::task::{Outcome, Task};
use protocol::caller::Caller;
use protocol::code::Code;
use protocol::handover::{PendingRequest, Reply};
use protocol::mailbox::request::{Answer, Operation, RunRequest};
use protocol::task::{State as TaskState, TaskId};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::{ActionResult, PageState, existing_task, parse_body, stopping};
use crate::attempt;
use crate::page::Page;
use crate::page::door::refuse;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TryBody {
    tool: String,
    #[serde(default)]
    input: Map<String, Value>,
}

/// Runs a subtool for the human.
pub(in crate::page) async fn try_it(State(page): PageState, body: Bytes) -> ActionResult {
    let TryBody { tool, input } = parse_body(&body)?;
    run(&page, RunRequest { tool, input, ..RunRequest::default() }, None).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UndoBody {
    id: TaskId,
}

/// Runs the subtool that undoes a task, in the same folder. It is asked about like any other; asked for twice, it is one task.
pub(in crate::page) async fn undo(State(page): PageState, body: Bytes) -> ActionResult {
    let UndoBody { id } = parse_body(&body)?;
    let task = existing_task(&page, id)?;
    let refused = |message: &str| refuse(StatusCode::UNPROCESSABLE_ENTITY, Code::Rejected, message);
    let undo = undo_of(&page, &task).ok_or_else(|| refused("this task has nothing that undoes it"))?;
    let input = input(&page, &task, &undo).await.map_err(|problem| refused(&problem))?;
    let (tool, idempotency_key) = (undo.subtool.to_string(), Some(format!("undo-{id}")));
    let run_request = RunRequest { tool, input, idempotency_key, ..RunRequest::default() };
    run(&page, run_request, task.caller.folder).await
}

/// How a task is undone: as its definition says, if that is still the one that ran.
pub(in crate::page) fn undo_of(page: &Page, task: &Task) -> Option<Undo> {
    let catalog = page.catalog();
    let subtool = catalog.get(task.tool.as_str()).filter(|subtool| subtool.hash == task.definition_hash)?;
    subtool.definition.undo.clone().filter(|_| task.state == TaskState::Succeeded)
}

/// The input of the undo: its expression over the data and the input of the task.
async fn input(page: &Page, task: &Task, undo: &Undo) -> Result<Map<String, Value>, String> {
    let context = page.runner_context();
    let data = match task.end.as_ref().map(|end| &end.outcome) {
        Some(Outcome::Data(data)) => data,
        _ => &Value::Null,
    };
    // A hidden value stays sealed, so an undo that needs one is refused.
    let shared = attempt::invocation(task, task.input.clone()).variables(&undo.input);
    let variables: Vec<_> = shared.iter().map(|(name, value)| (*name, value)).collect();
    let max_bytes = context.config.executor.output_bytes;
    let query = Query { expression: &undo.input, data, variables: &variables, max_bytes };
    match context.jq.outputs(query, &CancellationToken::new()).await.as_deref() {
        Ok([Value::Object(input)]) => Ok(input.clone()),
        Ok(_) => Err("its `undo.input` does not give one object".to_owned()),
        Err(error) => Err(format!("its `undo.input` failed: {error}")),
    }
}

async fn run(page: &Page, run: RunRequest, folder: Option<PathBuf>) -> Result<Response, Response> {
    const TIMEOUT: Duration = Duration::from_secs(20);
    let caller = Caller { session: Some("page".to_owned()), folder, ..Caller::default() };
    let not_posted = |error: std::io::Error| {
        refuse(StatusCode::SERVICE_UNAVAILABLE, Code::Io, &format!("failed to write the request: {error}"))
    };
    let (id, context) = (TaskId::new(), page.runner_context());
    let _mark = context.delegation.as_ref().map(|delegation| delegation.mark_of_human(id));
    let request =
        PendingRequest::post_as(id, &page.context.mailbox, Operation::run(run), caller).map_err(not_posted)?;
    match tokio::time::timeout(TIMEOUT, handover::reply(&request)).await {
        Ok(Some(Reply::Accepted(id) | Reply::Answer(Answer::SameAs(id)))) => {
            Ok(Json(json!({"id": id})).into_response())
        }
        Ok(Some(Reply::Answer(Answer::Refused(error)))) => {
            let problems = error.details.get("problems").cloned();
            let body = json!({"error": error, "problems": problems});
            Err((StatusCode::UNPROCESSABLE_ENTITY, Json(body)).into_response())
        }
        Ok(_) => {
            Err(refuse(StatusCode::INTERNAL_SERVER_ERROR, Code::Internal, "the executor gave an unexpected answer"))
        }
        Err(_) => Err(stopping()),
    }
}
