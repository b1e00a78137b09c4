//! What an API key can ask of the page: who it is, what waits for a human, and a decision.
//!
//! A decision takes the way of those that a human makes on the page, with less: no edit, no grant, nothing that needs a
//! touch, and no secret. The types of the answers are in `api_client.rs`.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use dispatcher::{DecideRequest, DecisionError, HumanCommand, HumanVerdict};
use ground::config::api_keys::ClientKey;
use ground::page_client::api_client::{
    ApiKeyStanding, Gate, GateDecision, GateList, GateNeed, GateOutcome, GateVerdict,
};
use ground::task::Task;
use ground::task::confirmation::{DecidedBy, Digest, ReplacedValues};
use protocol::clock;
use protocol::code::Code;
use protocol::invisible;
use protocol::task::{State as TaskState, TaskId};
use protocol::tool_scope::ToolScope;
use runner::ask_user::UserQuestion;
use serde_json::{Map, Value, json};
use store::StoreError;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

use super::Page;
use super::actions::{
    ActionResult, PageState, existing_task, invalid_input, no_scope, not_decided, note, parse_body, pending_task,
    secret_prefix, stopping,
};
use super::approval_word::word_required;
use super::background::BackgroundReader;
use super::card::{Card, question_of};
use super::door::refuse;
use super::views::ViewError;

/// The most gates in one answer; the rest is counted.
const MAX_GATES: u32 = 50;
/// How many bytes the inputs of the gates in one answer may have, after the first one.
const MAX_GATE_BYTES: usize = 512 << 10;

/// How long an answer is held back while nothing changes: less than a client of the page waits.
const MAX_HOLD: Duration = Duration::from_secs(8);

type CurrentKey = Extension<ClientKey>;

fn unreadable(error: StoreError) -> Response {
    ViewError::from(error).into_response()
}

pub(super) async fn standing(State(page): PageState, Extension(key): CurrentKey) -> ActionResult {
    let may_decide = page.may_decide(&key).map_err(unreadable)?;
    Ok(Json(ApiKeyStanding { name: key.name, may_decide }).into_response())
}

pub(super) async fn gates(State(page): PageState, Extension(key): CurrentKey) -> ActionResult {
    Ok(Json(gate_list(&page, &key).map_err(unreadable)?).into_response())
}

/// Answers when what waits is no longer what the key saw, or after [`MAX_HOLD`].
pub(super) async fn gates_after(
    State(page): PageState,
    Extension(key): CurrentKey,
    Path(seen): Path<String>,
) -> ActionResult {
    // Subscribed before it is read, so that no change is missed.
    let mut changes = page.context.task_changes.subscribe();
    let until = Instant::now() + MAX_HOLD;
    loop {
        // The scope may have been taken back meanwhile.
        if !page.may_decide(&key).map_err(unreadable)? {
            return Err(no_scope());
        }
        let list = gate_list(&page, &key).map_err(unreadable)?;
        if list.version() != seen {
            return Ok(Json(list).into_response());
        }
        match tokio::time::timeout_at(until, changes.recv()).await {
            // It fell behind, so something has changed.
            Ok(Ok(_) | Err(RecvError::Lagged(_))) => {}
            Ok(Err(RecvError::Closed)) | Err(_) => return Ok(Json(list).into_response()),
        }
    }
}

fn gate_list(page: &Page, key: &ClientKey) -> Result<GateList, StoreError> {
    // Of what the profile of a key excludes, not even a number.
    let (mut tasks, waiting) = if key.profile.is_some() {
        let mut tasks = page.read(|records| records.waiting(u32::MAX))?;
        tasks.retain(|task| is_for(page, task, key));
        let waiting = tasks.len();
        tasks.truncate(MAX_GATES as usize);
        (tasks, waiting)
    } else {
        let waiting = page.read(|records| records.waiting_ids(u32::MAX))?.len();
        (page.read(|records| records.waiting(MAX_GATES))?, waiting)
    };
    let mut bytes = 0;
    let shown = tasks.iter().take_while(|task| {
        let had = bytes;
        bytes += Value::Object(task.input.clone()).to_string().len();
        had == 0 || bytes <= MAX_GATE_BYTES
    });
    let count = shown.count();
    tasks.truncate(count);
    let mut backgrounds = BackgroundReader::new(page);
    let mut gates = Vec::with_capacity(count);
    for task in &tasks {
        gates.extend(gate_of(page, task, key, &mut backgrounds)?);
    }
    Ok(GateList { more: waiting.saturating_sub(gates.len()), gates })
}

pub(super) async fn gate(State(page): PageState, Extension(key): CurrentKey, Path(id): Path<String>) -> ActionResult {
    let task = pending(&page, &key, parse_id(&id)?)?;
    let gate = gate_of(&page, &task, &key, &mut BackgroundReader::new(&page)).map_err(unreadable)?;
    gate.map(|gate| Json(gate).into_response()).ok_or_else(no_gate)
}

/// What waits, as its card shows it to this key; `None` if it does not wait.
fn gate_of(
    page: &Page,
    task: &Task,
    key: &ClientKey,
    backgrounds: &mut BackgroundReader<'_>,
) -> Result<Option<Gate>, StoreError> {
    let Some(card) = Card::of(task, page, clock::now()) else { return Ok(None) };
    let question = question(page, task);
    let mut gate = card.with(backgrounds.of(task)?).into_gate(task.id, question.as_ref());
    gate.own = key.reference().is_of(&task.caller);
    gate.asked_by.key = task.caller.api_key().map(invisible::escaped);
    Ok(Some(gate))
}

/// Whether the profile of a key, if it has one, has what waits: it excludes from deciding what it excludes from asking.
fn is_for(page: &Page, task: &Task, key: &ClientKey) -> bool {
    let Some(profile) = &key.profile else { return true };
    let scope = ToolScope::default().within_profile(profile);
    scope.is_ok_and(|scope| page.catalog().usable(task.tool.as_str(), &scope).is_some())
}

fn question(page: &Page, task: &Task) -> Option<UserQuestion> {
    let subtool = page.catalog().get(task.tool.as_str()).filter(|subtool| subtool.hash == task.definition_hash)?;
    question_of(&subtool, task)
}

/// A task that this key may know of.
fn existing(page: &Page, key: &ClientKey, id: TaskId) -> Result<Task, Response> {
    let task = existing_task(page, id).map_err(|_| no_gate())?;
    if is_for(page, &task, key) { Ok(task) } else { Err(no_gate()) }
}

/// A task that a human can decide on, and whose preview is complete.
fn pending(page: &Page, key: &ClientKey, id: TaskId) -> Result<Task, Response> {
    let task = existing(page, key, id)?;
    let confirmation = task.confirmation.as_ref().filter(|_| task.state == TaskState::AwaitingConfirmation);
    let is_ready = confirmation.is_some_and(|confirmation| confirmation.preview != Some(ReplacedValues::Pending));
    if is_ready { Ok(task) } else { Err(no_gate()) }
}

fn parse_id(id: &str) -> Result<TaskId, Response> {
    id.parse().map_err(|_| no_gate())
}

fn no_gate() -> Response {
    refuse(StatusCode::NOT_FOUND, Code::NotFound, "nothing with this id waits for a human")
}

pub(super) async fn not_found() -> Response {
    refuse(StatusCode::NOT_FOUND, Code::NotFound, "there is nothing at this path")
}

pub(super) async fn decide(
    State(page): PageState,
    Extension(key): CurrentKey,
    Path(id): Path<String>,
    body: Bytes,
) -> ActionResult {
    let decision: GateDecision = parse_body(&body)?;
    let shown: Digest = decision
        .digest
        .parse()
        .map_err(|_| refuse(StatusCode::BAD_REQUEST, Code::BadRequest, "`digest` is not a digest"))?;
    let id = existing(&page, &key, parse_id(&id)?)?.id;
    let (task, confirmation) = pending_task(&page, id)?;
    if confirmation.digest != shown {
        return Err(not_decided(&page, DecisionError::Stale(id)));
    }
    let gate =
        gate_of(&page, &task, &key, &mut BackgroundReader::new(&page)).map_err(unreadable)?.ok_or_else(no_gate)?;
    let (verdict, note) = verdict(&page, &task, &gate.needs, decision)?;
    let (tasks, by) = (vec![(id, shown)], DecidedBy::ApiKey(key.reference()));
    let request = DecideRequest { tasks, verdict, by, note, grant: None, touch: None };
    match page.send(HumanCommand::Decide(request)).await {
        None => Err(stopping()),
        Some(Err(DecisionError::NeedsTouch(_))) => Err(needs_touch()),
        Some(Err(error)) => Err(not_decided(&page, error)),
        Some(Ok(decided)) => {
            let state = decided.first().map_or(TaskState::AwaitingConfirmation, |(_, state)| *state);
            Ok(Json(GateOutcome { id, state }).into_response())
        }
    }
}

fn needs_touch() -> Response {
    let message =
        "this needs a touch of the approver's key, which only the page can take: agent-magic-tool executor page";
    refuse(StatusCode::FORBIDDEN, Code::NeedsTouch, message)
}

fn needs_page() -> Response {
    let message = "this asks for a secret or a sign-in, which only the page takes: agent-magic-tool executor page";
    refuse(StatusCode::FORBIDDEN, Code::NeedsAssurance, message)
}

/// What is decided, and the note with an approval.
fn verdict(
    page: &Page,
    task: &Task,
    needs: &GateNeed,
    decision: GateDecision,
) -> Result<(HumanVerdict, Option<String>), Response> {
    let wrong = |code: Code, message: &str| Err(refuse(StatusCode::UNPROCESSABLE_ENTITY, code, message));
    let GateDecision { decision, word, note: text, answer, .. } = decision;
    let reason = note(text);
    let is_question = matches!(needs, GateNeed::Answer { .. } | GateNeed::Page);
    if answer.is_some() && (!is_question || decision == GateVerdict::Deny) {
        return wrong(Code::NoQuestion, "there is no question that this answers");
    }
    match (decision, needs) {
        (GateVerdict::Deny, _) if is_question => Ok((HumanVerdict::Answer(json!({"action": "decline"})), reason)),
        (GateVerdict::Deny, _) => Ok((HumanVerdict::Deny { reason }, None)),
        (GateVerdict::Approve, GateNeed::Touch) => Err(needs_touch()),
        (GateVerdict::Approve, GateNeed::Page) => Err(needs_page()),
        (GateVerdict::Approve, GateNeed::Word { word: wanted }) if word.as_ref() != Some(wanted) => {
            Err(word_required(wanted))
        }
        (GateVerdict::Approve, GateNeed::Answer { .. }) => {
            let Some(content) = answer else {
                return wrong(Code::WantsAnswer, "this is a question; send the fields of its form as `answer`");
            };
            Ok((HumanVerdict::Answer(accepted(page, task, content)?), reason))
        }
        (GateVerdict::Approve, GateNeed::Click | GateNeed::Word { .. }) => Ok((HumanVerdict::Approve, reason)),
    }
}

/// The answer for the caller, if it fits the form.
fn accepted(page: &Page, task: &Task, content: Map<String, Value>) -> Result<Value, Response> {
    let question = question(page, task).ok_or_else(no_gate)?;
    let accepted = question.accept(content, &secret_prefix(task), &page.runner_context().secrets);
    accepted.map_err(|problems| invalid_input(&problems))
}
