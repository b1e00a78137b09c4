//! Denying everything that one session has waiting.

use axum::Extension;
use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::IntoResponse as _;
use dispatcher::HumanVerdict;
use protocol::task::TaskId;
use serde::Deserialize;
use serde_json::json;

use super::{ActionResult, CurrentSession, PageState, existing_task, note, parse_body, send_decision};
use crate::page::views::ViewError;

/// The most tasks that are denied at once; far more than may wait.
const MAX_DENIED: u32 = 20_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DenySessionBody {
    /// A task of the session.
    id: TaskId,
    #[serde(default)]
    reason: Option<String>,
}

/// Denies all waiting tasks of the session that asked for a task, with one reason. A refusal needs no look at each.
pub(in crate::page) async fn deny_session(
    State(page): PageState,
    Extension(session): CurrentSession,
    body: Bytes,
) -> ActionResult {
    let asked: DenySessionBody = parse_body(&body)?;
    let caller = existing_task(&page, asked.id)?.caller;
    let waiting =
        page.read(|records| records.waiting(MAX_DENIED)).map_err(|error| ViewError::from(error).into_response())?;
    let is_of_session =
        |task: &&ground::task::Task| task.caller.uid == caller.uid && task.caller.session == caller.session;
    let tasks: Vec<_> = waiting
        .iter()
        .filter(is_of_session)
        .filter_map(|task| task.confirmation.as_ref().map(|confirmation| (task.id, confirmation.digest)))
        .collect();
    if tasks.is_empty() {
        return Ok(Json(json!({"decided": []})).into_response());
    }
    send_decision(&page, session, tasks, HumanVerdict::Deny { reason: note(asked.reason) }, (None, None)).await
}
