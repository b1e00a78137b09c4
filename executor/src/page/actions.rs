//! The page's actions: each checks what a human sent, sends a command to the daemon, and waits for the result.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use dispatcher::{DecideRequest, DecisionError, HumanCommand, HumanVerdict};
use ground::base::schema::Problem;
use ground::base::webauthn::Assertion;
use ground::task::Task;
use ground::task::confirmation::{Confirmation, DecidedBy, Digest};
use ground::task::grant::Grant;
use protocol::code::Code;
use protocol::json;
use protocol::task::{State as TaskState, TaskId};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::approval_word::check_word;
use super::card::question_of;
use super::door::{SessionName, refuse};
use super::views::ViewError;
use super::wording::decided_words;
use super::{Page, keys};

mod deny_session;
mod edits;
mod grants;
mod requests;
mod sessions;

pub(super) use deny_session::deny_session;
pub(super) use edits::{decide_edit, edit};
pub(super) use grants::{grant, preview_grant, revoke_grant};
pub(super) use requests::{try_it, undo, undo_of};
pub(super) use sessions::{challenge, end_other_sessions, end_session, login, logout};

/// The answer to an action, or the response that refuses it.
pub(super) type ActionResult = Result<Response, Response>;
type CurrentSession = Extension<SessionName>;
pub(super) type PageState = State<Arc<Page>>;

/// The longest note of a human that is kept; the rest is cut off.
const MAX_NOTE_CHARS: usize = 2_000;

pub(super) fn parse_body<T: DeserializeOwned>(body: &Bytes) -> Result<T, Response> {
    let invalid = |reason: String| refuse(StatusCode::BAD_REQUEST, Code::BadRequest, &reason);
    let value = json::parse(body).map_err(|error| invalid(error.to_string()))?;
    serde_json::from_value(value).map_err(|error| invalid(error.to_string()))
}

/// A pending task, and the digest of what its card showed.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DecidedTask {
    id: TaskId,
    digest: String,
}

impl DecidedTask {
    fn parse(&self) -> Result<(TaskId, Digest), Response> {
        let digest = self.digest.parse();
        digest
            .map(|digest| (self.id, digest))
            .map_err(|_| refuse(StatusCode::BAD_REQUEST, Code::BadRequest, "`digest` is not a digest"))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum DecideVerdict {
    Approve,
    Deny,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DecideBody {
    decisions: Vec<DecidedTask>,
    verdict: DecideVerdict,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    typed: Option<String>,
    #[serde(default)]
    touch: Option<Assertion>,
}

pub(super) async fn decide(State(page): PageState, Extension(session): CurrentSession, body: Bytes) -> ActionResult {
    let decision: DecideBody = parse_body(&body)?;
    let tasks: Vec<_> = decision.decisions.iter().map(DecidedTask::parse).collect::<Result<_, _>>()?;
    let verdict = match decision.verdict {
        DecideVerdict::Deny => HumanVerdict::Deny { reason: note(decision.reason) },
        DecideVerdict::Approve => {
            for (id, _) in &tasks {
                check_approvable(&page, *id, decision.typed.as_deref(), tasks.len() > 1)?;
            }
            HumanVerdict::Approve
        }
    };
    send_decision(&page, session, tasks, verdict, (None, decision.touch)).await
}

/// Refuses to approve a question, or a destructive task in a batch or without its name typed.
fn check_approvable(page: &Page, id: TaskId, typed: Option<&str>, is_batch: bool) -> Result<(), Response> {
    let (task, _) = pending_task(page, id)?;
    check_word(page, &task, &task.input, typed.filter(|_| !is_batch))
}

pub(super) fn note(text: Option<String>) -> Option<String> {
    text.map(|text| text.trim().chars().take(MAX_NOTE_CHARS).collect::<String>()).filter(|text| !text.is_empty())
}

async fn send_decision(
    page: &Page,
    session: SessionName,
    tasks: Vec<(TaskId, Digest)>,
    verdict: HumanVerdict,
    (grant, touch): (Option<Box<Grant>>, Option<Assertion>),
) -> ActionResult {
    if tasks.is_empty() {
        return Err(refuse(StatusCode::BAD_REQUEST, Code::BadRequest, "`decisions` is empty"));
    }
    let by = DecidedBy::Page(session.0);
    let request = DecideRequest { tasks, verdict, by, note: None, grant, touch };
    match page.send(HumanCommand::Decide(request)).await {
        None => Err(stopping()),
        Some(Err(error)) => Err(not_decided(page, error)),
        Some(Ok(decided)) => {
            // The daemon answers after its commit, so the record has the decision.
            let starts_at = |id| page.read(|records| records.task(id)).ok().flatten().and_then(|task| task.starts_at());
            let decided: Vec<_> = decided
                .iter()
                .map(|(id, state)| json!({"id": id, "state": state, "starts_at": starts_at(*id)}))
                .collect();
            Ok(Json(json!({"decided": decided})).into_response())
        }
    }
}

pub(super) fn stopping() -> Response {
    refuse(StatusCode::SERVICE_UNAVAILABLE, Code::NoExecutor, "the executor is stopping; nothing was done")
}

pub(super) fn not_decided(page: &Page, error: DecisionError) -> Response {
    let (code, message, id) = match error {
        DecisionError::Stale(id) => (Code::Stale, "this is no longer what was shown; look at it again", id),
        DecisionError::NotPending(id) => (Code::AlreadyDecided, "this was already decided, or has ended", id),
        DecisionError::NeedsTouch(request) => return keys::touch_required(page, &request),
        DecisionError::UnknownKey => {
            return refuse(StatusCode::FORBIDDEN, Code::BadTouch, "this key is not enrolled, so nothing was decided");
        }
        DecisionError::BadTouch(error) => {
            let message = format!("the touch is not valid, so nothing was decided: {error}");
            return refuse(StatusCode::FORBIDDEN, Code::BadTouch, &message);
        }
        DecisionError::NoScope => return no_scope(),
        DecisionError::OwnQuestion => return own_question(),
        DecisionError::CommandRefused(error) => {
            return (StatusCode::UNPROCESSABLE_ENTITY, Json(json!({"error": error}))).into_response();
        }
    };
    // A stale task is still pending and has no decision to show.
    let task = page.read(|records| records.task(id)).ok().flatten().filter(|_| code == Code::AlreadyDecided);
    let decided = task.map(|task| match &task.confirmation {
        Some(confirmation) if confirmation.decision.is_some() => decided_words(Some(confirmation), task.state),
        _ => super::wording::state_words(task.state).into(),
    });
    let mut body = json!({"error": {"code": code, "message": message}, "id": id});
    if let Some(decided) = decided {
        body["decided"] = decided.into();
    }
    (StatusCode::CONFLICT, Json(body)).into_response()
}

/// An API key that may not decide, whatever it asks for.
pub(super) fn no_scope() -> Response {
    let message = "this API key may not decide; a human lets it, under API keys on the page that `agent-magic-tool \
                   executor page` opens";
    refuse(StatusCode::FORBIDDEN, Code::NeedsScope, message)
}

/// An API key that would approve what it asked for.
fn own_question() -> Response {
    let message = "this was asked with the same API key, which can only deny it: approve it with another API key that may \
                   decide, or on the page, `agent-magic-tool executor page`";
    refuse(StatusCode::FORBIDDEN, Code::NeedsScope, message)
}

/// Reads a task; one that does not exist or cannot be read is refused.
pub(super) fn existing_task(page: &Page, id: TaskId) -> Result<Task, Response> {
    let task = page.read(|records| records.task(id)).ok().flatten();
    task.ok_or_else(|| refuse(StatusCode::NOT_FOUND, Code::NotFound, "no such task"))
}

/// Reads a pending task with its confirmation; any other task is refused.
pub(super) fn pending_task(page: &Page, id: TaskId) -> Result<(Task, Box<Confirmation>), Response> {
    let task = page.read(|records| records.task(id)).map_err(|error| ViewError::from(error).into_response())?;
    let pending = task.filter(|task| task.state == TaskState::AwaitingConfirmation);
    let found = pending.and_then(|task| task.confirmation.clone().map(|confirmation| (task, confirmation)));
    found.ok_or_else(|| not_decided(page, DecisionError::NotPending(id)))
}

pub(super) fn invalid_input(problems: &[Problem]) -> Response {
    let error = json!({"code": Code::InvalidInput, "message": "some fields are not valid"});
    (StatusCode::UNPROCESSABLE_ENTITY, Json(json!({"error": error, "problems": problems}))).into_response()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerBody {
    id: TaskId,
    digest: String,
    action: AnswerAction,
    /// The fields of the form, if the question is accepted.
    #[serde(default)]
    content: Option<Map<String, Value>>,
    #[serde(default)]
    touch: Option<Assertion>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum AnswerAction {
    Accept,
    Decline,
    Cancel,
}

pub(super) async fn answer(State(page): PageState, Extension(session): CurrentSession, body: Bytes) -> ActionResult {
    let answered: AnswerBody = parse_body(&body)?;
    let decided = DecidedTask { id: answered.id, digest: answered.digest }.parse()?;
    let (task, _) = pending_task(&page, answered.id)?;
    let catalog = page.catalog();
    let subtool = catalog.get(task.tool.as_str());
    let Some(question) = subtool.and_then(|subtool| question_of(&subtool, &task)) else {
        return Err(refuse(
            StatusCode::UNPROCESSABLE_ENTITY,
            Code::NoQuestion,
            "this is not a question; approve or deny it",
        ));
    };
    let content = match answered.action {
        AnswerAction::Decline => json!({"action": "decline"}),
        AnswerAction::Cancel => json!({"action": "cancel"}),
        AnswerAction::Accept => question
            .accept(answered.content.unwrap_or_default(), &secret_prefix(&task), &page.runner_context().secrets)
            .map_err(|problems| invalid_input(&problems))?,
    };
    send_decision(&page, session, vec![decided], HumanVerdict::Answer(content), (None, answered.touch)).await
}

/// The prefix of the names of secrets that this task asked for.
pub(super) fn secret_prefix(task: &Task) -> String {
    let id = task.id.to_string();
    format!("ask-{}", &id[id.len() - 8..])
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CancelBody {
    id: TaskId,
}

pub(super) async fn cancel(State(page): PageState, body: Bytes) -> ActionResult {
    let CancelBody { id } = parse_body(&body)?;
    let task = existing_task(&page, id)?;
    match page.send(HumanCommand::Cancel { id, uid: task.caller.uid }).await {
        None => Err(stopping()),
        Some(Ok(states)) => {
            Ok(Json(json!({"id": id, "state": states.first().map(|(_, state)| state)})).into_response())
        }
        Some(Err(_)) => Err(not_decided(&page, DecisionError::NotPending(id))),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ResolveBody {
    id: TaskId,
    happened: bool,
    #[serde(default)]
    note: Option<String>,
    #[serde(default)]
    touch: Option<Assertion>,
}

/// Records whether a task with an unknown outcome had its effect.
pub(super) async fn resolve(State(page): PageState, body: Bytes) -> ActionResult {
    let ResolveBody { id, happened, note: text, touch } = parse_body(&body)?;
    let task = existing_task(&page, id)?;
    let command = HumanCommand::Resolve { task: Box::new(task), happened, note: note(text), touch };
    match page.send(command).await {
        None => Err(stopping()),
        Some(Ok(_)) => Ok(Json(json!({"id": id})).into_response()),
        Some(Err(error)) => Err(not_decided(&page, error)),
    }
}
