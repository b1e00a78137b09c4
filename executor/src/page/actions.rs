//! The actions: what a human does on the page. Each says something to the daemon and waits for its word.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use protocol::caller::Caller;
use protocol::handover::{PendingRequest, Reply};
use protocol::mailbox::request::{Answer, Operation, RunRequest};
use protocol::task::{State as TaskState, TaskId};
use protocol::{clock, json};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::card::question_of;
use super::command::PageCommand;
use super::gate::{COOKIE, Visitor, refuse};
use super::views::ViewError;
use super::visible::VisibleText;
use super::wording::decided_words;
use super::{Page, form};
use crate::base::schema::Problem;
use crate::catalog::Subtool;
use crate::dispatcher::{DecisionAction, DecisionError};
use crate::results::handover;
use crate::task::Task;
use crate::task::confirmation::{Confirmation, Digest};
use crate::task::grant::{self, FieldCoverage, Grant, GrantId, GrantScope};

/// What is asked for is read whole, or refused with what is wrong.
type ActionResult = Result<Response, Response>;
type CurrentVisitor = Extension<Visitor>;
type PageState = State<Arc<Page>>;

/// A human's own words are not longer.
const MAX_NOTE_CHARS: usize = 2_000;

fn read<T: DeserializeOwned>(body: &Bytes) -> Result<T, Response> {
    let wrong = |reason: String| refuse(StatusCode::BAD_REQUEST, "bad-request", &reason);
    let value = json::parse(body).map_err(|error| wrong(error.to_string()))?;
    serde_json::from_value(value).map_err(|error| wrong(error.to_string()))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LoginBody {
    token: String,
}

pub(super) async fn login(State(page): PageState, body: Bytes) -> ActionResult {
    let link: LoginBody = read(&body)?;
    let Some(keys) = page.sessions.log_in(&link.token) else {
        return Err(refuse(StatusCode::FORBIDDEN, "used-link", "this link was used, or is too old"));
    };
    let cookie = format!("{COOKIE}={}; Path=/; HttpOnly; SameSite=Strict", keys.cookie);
    let mut response = Json(json!({"token": keys.token})).into_response();
    let cookie = HeaderValue::from_str(&cookie).expect("hexadecimal digits fit a header");
    response.headers_mut().insert(header::SET_COOKIE, cookie);
    Ok(response)
}

pub(super) async fn logout(State(page): PageState, Extension(visitor): CurrentVisitor) -> Response {
    page.sessions.log_out(&visitor.0);
    let gone = format!("{COOKIE}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0");
    let mut response = StatusCode::NO_CONTENT.into_response();
    response.headers_mut().insert(header::SET_COOKIE, HeaderValue::from_str(&gone).expect("plain ASCII"));
    response
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DecidedTask {
    id: TaskId,
    digest: String,
}

impl DecidedTask {
    fn bound(&self) -> Result<(TaskId, Digest), Response> {
        let digest = self.digest.parse();
        digest.map(|digest| (self.id, digest)).map_err(|_| refuse(StatusCode::BAD_REQUEST, "bad-request", "no digest"))
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
}

pub(super) async fn decide(State(page): PageState, Extension(visitor): CurrentVisitor, body: Bytes) -> ActionResult {
    let decision: DecideBody = read(&body)?;
    let of: Vec<_> = decision.decisions.iter().map(DecidedTask::bound).collect::<Result<_, _>>()?;
    let said = match decision.verdict {
        DecideVerdict::Deny => DecisionAction::Deny { reason: note(decision.reason) },
        DecideVerdict::Approve => {
            for (id, _) in &of {
                is_typed(&page, *id, decision.typed.as_deref(), of.len() > 1)?;
            }
            DecisionAction::Approve
        }
    };
    say_decision(&page, visitor, of, said, None).await
}

/// What destroys something needs its name typed, and goes in no batch.
fn is_typed(page: &Page, id: TaskId, typed: Option<&str>, is_batch: bool) -> Result<(), Response> {
    let (task, _) = waiting(page, id)?;
    let catalog = page.catalog();
    let definition = catalog.get(task.tool.as_str()).map(|subtool| &subtool.definition);
    if definition.is_some_and(|definition| matches!(definition.run, crate::runner::Run::AskUser(_))) {
        return Err(refuse(StatusCode::UNPROCESSABLE_ENTITY, "wants-answer", "it asks for an answer, not for a yes"));
    }
    let is_danger = definition.is_some_and(|definition| definition.annotations.destructive_hint == Some(true));
    if is_danger && (is_batch || typed != Some(task.tool.as_str())) {
        return Err(wants_word(&task));
    }
    Ok(())
}

fn wants_word(task: &Task) -> Response {
    let message = format!("type `{}` to approve it", task.tool);
    refuse(StatusCode::UNPROCESSABLE_ENTITY, "wants-word", &message)
}

fn note(text: Option<String>) -> Option<String> {
    text.map(|text| text.trim().chars().take(MAX_NOTE_CHARS).collect::<String>()).filter(|text| !text.is_empty())
}

async fn say_decision(
    page: &Page,
    visitor: Visitor,
    tasks: Vec<(TaskId, Digest)>,
    action: DecisionAction,
    grant: Option<Box<Grant>>,
) -> ActionResult {
    if tasks.is_empty() {
        return Err(refuse(StatusCode::BAD_REQUEST, "bad-request", "nothing is decided about"));
    }
    match page.send(PageCommand::Decide { tasks, action, grant }, visitor.0).await {
        None => Err(gone()),
        Some(Err(why)) => Err(not_decided(page, why)),
        Some(Ok(decided)) => {
            let decided: Vec<_> = decided.iter().map(|(id, state)| json!({"id": id, "state": state})).collect();
            Ok(Json(json!({"decided": decided})).into_response())
        }
    }
}

fn gone() -> Response {
    refuse(StatusCode::SERVICE_UNAVAILABLE, "no-executor", "the executor is stopping: nothing was done")
}

fn not_decided(page: &Page, why: DecisionError) -> Response {
    let (code, message, id) = match why {
        DecisionError::Stale(id) => ("stale", "it is no longer what was shown; look at it again", id),
        DecisionError::NotPending(id) => ("already_decided", "it was decided already, or is over", id),
        DecisionError::Refused(error) => {
            return (StatusCode::UNPROCESSABLE_ENTITY, Json(json!({"error": error}))).into_response();
        }
    };
    // One that still waits, as something else, has no decision to tell of.
    let task = page.read(|records| records.task(id)).ok().flatten().filter(|_| code == "already_decided");
    let decided = task.map(|task| match &task.confirmation {
        Some(asked) if asked.decision.is_some() => decided_words(Some(asked), task.state),
        _ => super::wording::state_words(task.state),
    });
    let mut body = json!({"error": {"code": code, "message": message}, "id": id});
    if let Some(decided) = decided {
        body["decided"] = decided.into();
    }
    (StatusCode::CONFLICT, Json(body)).into_response()
}

/// A task that is not there, or cannot be read, is not acted upon.
fn known(page: &Page, id: TaskId) -> Result<Task, Response> {
    let task = page.read(|records| records.task(id)).ok().flatten();
    task.ok_or_else(|| refuse(StatusCode::NOT_FOUND, "not-found", "no such task"))
}

/// A task that waits, as it is in the record.
fn waiting(page: &Page, id: TaskId) -> Result<(Task, Box<Confirmation>), Response> {
    let task = page.read(|records| records.task(id)).map_err(|error| ViewError::from(error).into_response())?;
    let waits = task.filter(|task| task.state == TaskState::AwaitingConfirmation);
    let found = waits.and_then(|task| task.confirmation.clone().map(|asked| (task, asked)));
    found.ok_or_else(|| not_decided(page, DecisionError::NotPending(id)))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EditBody {
    id: TaskId,
    digest: String,
    input: Map<String, Value>,
    #[serde(default)]
    edited_digest: Option<String>,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    typed: Option<String>,
}

/// What an edited task would be: its input, checked, and the digest of it.
fn edited(page: &Page, edit: &EditBody) -> Result<(Task, Map<String, Value>, Digest, Digest), Response> {
    let (task, asked) = waiting(page, edit.id)?;
    let (_, digest) = DecidedTask { id: edit.id, digest: edit.digest.clone() }.bound()?;
    if asked.digest != digest {
        return Err(not_decided(page, DecisionError::Stale(edit.id)));
    }
    let catalog = page.catalog();
    let subtool = catalog.get(task.tool.as_str()).filter(|subtool| subtool.hash == task.definition_hash);
    let Some(subtool) = subtool else { return Err(not_decided(page, DecisionError::Stale(edit.id))) };
    let input = edit.input.clone();
    check(subtool, &input)?;
    let edited = asked.digest_of(&page.context.site.instance, &task, &input);
    Ok((task, input, digest, edited))
}

fn check(subtool: &Subtool, input: &Map<String, Value>) -> Result<(), Response> {
    let problems = subtool.schema.problems(&Value::Object(input.clone()));
    if problems.is_empty() { Ok(()) } else { Err(unfit(&problems)) }
}

fn unfit(problems: &[Problem]) -> Response {
    let error = json!({"code": "invalid-input", "message": "some fields do not fit"});
    (StatusCode::UNPROCESSABLE_ENTITY, Json(json!({"error": error, "problems": problems}))).into_response()
}

pub(super) async fn edit(State(page): PageState, body: Bytes) -> ActionResult {
    let of: EditBody = read(&body)?;
    let (task, input, _, digest) = edited(&page, &of)?;
    let names = task.input.keys().chain(input.keys().filter(|name| !task.input.contains_key(*name)));
    let changes: Vec<_> = names
        .map(|name| (name, task.input.get(name), input.get(name)))
        .filter(|(_, before, after)| before != after)
        .map(|(name, before, after)| {
            let shown = |value: Option<&Value>| value.map(VisibleText::of);
            json!({"label": name, "pointer": form::pointer(name), "before": shown(before), "after": shown(after)})
        })
        .collect();
    Ok(Json(json!({"digest": digest, "changes": changes})).into_response())
}

pub(super) async fn decide_edit(
    State(page): PageState,
    Extension(visitor): CurrentVisitor,
    body: Bytes,
) -> ActionResult {
    let of: EditBody = read(&body)?;
    let (task, input, asked, digest) = edited(&page, &of)?;
    // What was looked at must be what is decided about.
    if of.edited_digest.as_deref() != Some(digest.to_string().as_str()) {
        return Err(not_decided(&page, DecisionError::Stale(of.id)));
    }
    is_typed(&page, of.id, of.typed.as_deref(), false)?;
    let said = if input == task.input {
        DecisionAction::Approve
    } else {
        DecisionAction::Edit { input, digest, reason: note(of.reason) }
    };
    say_decision(&page, visitor, vec![(of.id, asked)], said, None).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerBody {
    id: TaskId,
    digest: String,
    action: AnswerAction,
    /// Of an answer that accepts.
    #[serde(default)]
    content: Option<Map<String, Value>>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum AnswerAction {
    Accept,
    Decline,
    Cancel,
}

pub(super) async fn answer(State(page): PageState, Extension(visitor): CurrentVisitor, body: Bytes) -> ActionResult {
    let answered: AnswerBody = read(&body)?;
    let bound = DecidedTask { id: answered.id, digest: answered.digest }.bound()?;
    let (task, _) = waiting(&page, answered.id)?;
    let catalog = page.catalog();
    let subtool = catalog.get(task.tool.as_str());
    let Some(question) = subtool.and_then(|subtool| question_of(subtool, &task)) else {
        return Err(refuse(StatusCode::UNPROCESSABLE_ENTITY, "no-question", "it asks for a yes, not for an answer"));
    };
    let said = match answered.action {
        AnswerAction::Decline => json!({"action": "decline"}),
        AnswerAction::Cancel => json!({"action": "cancel"}),
        AnswerAction::Accept => question
            .accept(answered.content.unwrap_or_default(), &secret_prefix(&task), &page.context.runner_context.secrets)
            .map_err(|problems| unfit(&problems))?,
    };
    say_decision(&page, visitor, vec![bound], DecisionAction::Answer(said), None).await
}

/// What the names of secrets begin with that this task asked for.
fn secret_prefix(task: &Task) -> String {
    let id = task.id.to_string();
    format!("ask-{}", &id[id.len() - 8..])
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskTarget {
    id: TaskId,
}

pub(super) async fn cancel(State(page): PageState, Extension(visitor): CurrentVisitor, body: Bytes) -> ActionResult {
    let TaskTarget { id } = read(&body)?;
    let task = known(&page, id)?;
    match page.send(PageCommand::Cancel { task: id, uid: task.caller.uid }, visitor.0).await {
        None => Err(gone()),
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
}

/// What had happened to a task whose end was lost.
pub(super) async fn resolve(State(page): PageState, Extension(visitor): CurrentVisitor, body: Bytes) -> ActionResult {
    let ResolveBody { id, happened, note: said } = read(&body)?;
    let task = known(&page, id)?;
    match page.send(PageCommand::Resolve { task: Box::new(task), happened, note: note(said) }, visitor.0).await {
        None => Err(gone()),
        Some(Ok(_)) => Ok(Json(json!({"id": id})).into_response()),
        Some(Err(why)) => Err(not_decided(&page, why)),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GrantBody {
    id: TaskId,
    digest: String,
    fields: Vec<GrantFieldBody>,
    expires_in: String,
    #[serde(default)]
    most_uses: Option<u32>,
    #[serde(default)]
    typed: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GrantFieldBody {
    pointer: String,
    how: CoverageKind,
    #[serde(default)]
    value: Option<Value>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CoverageKind {
    Exact,
    Prefix,
    AtMost,
    Any,
}

/// The grant that somebody wants to make from a task that waits.
fn wanted(page: &Page, asked: &GrantBody, by: &str) -> Result<(Task, Grant), Response> {
    let (task, _) = waiting(page, asked.id)?;
    let wrong = |message: &str| refuse(StatusCode::UNPROCESSABLE_ENTITY, "bad-grant", message);
    let catalog = page.catalog();
    let definition = catalog.get(task.tool.as_str()).map(|subtool| &subtool.definition);
    if !definition.is_some_and(|definition| definition.grantable) {
        return Err(wrong("a yes to this subtool is not remembered"));
    }
    let mut fields = BTreeMap::new();
    for (name, value) in &task.input {
        let pointer = form::pointer(name);
        // What is not widened stays exactly as it is.
        let chosen = asked.fields.iter().find(|field| field.pointer == pointer);
        let context = chosen.and_then(|field| field.value.as_ref());
        let text = context.and_then(Value::as_str);
        let covers = match chosen.map_or(CoverageKind::Exact, |field| field.how) {
            CoverageKind::Exact => FieldCoverage::Exactly(value.clone()),
            CoverageKind::Any => FieldCoverage::Anything,
            CoverageKind::Prefix => match text {
                Some(path) if path.starts_with('/') => FieldCoverage::Below(path.to_owned()),
                _ => return Err(wrong("a path begins with `/`")),
            },
            CoverageKind::AtMost => match context.and_then(number) {
                Some(most) => FieldCoverage::AtMost(most),
                None => return Err(wrong("`at most` needs a number")),
            },
        };
        fields.insert(name.clone(), covers);
    }
    let now = clock::now();
    let (span, scope) = match asked.expires_in.as_str() {
        // Nobody tells when a session is over: its name is what it is bound to, and a working day its end.
        "session" => (Duration::from_hours(8), (task.caller.session.clone(), None)),
        text => {
            let span =
                text.parse::<protocol::duration::PositiveDuration>().map_err(|error| wrong(&error.to_string()))?;
            (span.get(), (None, task.caller.folder.clone()))
        }
    };
    if span > grant::MAX_LIFETIME {
        return Err(wrong("no grant holds longer than 30 days"));
    }
    let grant = Grant {
        id: GrantId::new(),
        tool: task.tool.clone(),
        definition_hash: task.definition_hash.clone(),
        scope: GrantScope { uid: task.caller.uid, session: scope.0, folder: scope.1 },
        fields,
        made_at: now,
        made_from: task.id,
        made_by: by.to_owned(),
        expires_at: now.checked_add(span).unwrap_or(now),
        most_uses: asked.most_uses,
        uses: 0,
        last_use: None,
        revoked_at: None,
    };
    Ok((task, grant))
}

fn number(value: &Value) -> Option<serde_json::Number> {
    match value {
        Value::Number(number) => Some(number.clone()),
        Value::String(text) => serde_json::from_str(text.trim()).ok(),
        _ => None,
    }
}

pub(super) async fn grant(State(page): PageState, Extension(visitor): CurrentVisitor, body: Bytes) -> ActionResult {
    let asked: GrantBody = read(&body)?;
    let bound = DecidedTask { id: asked.id, digest: asked.digest.clone() }.bound()?;
    let (task, grant) = wanted(&page, &asked, &visitor.0)?;
    let is_wide = |(name, covers): (&String, &FieldCoverage)| {
        *covers == FieldCoverage::Anything && !task.input.get(name).is_some_and(Value::is_boolean)
    };
    if grant.fields.iter().any(is_wide) && asked.typed.as_deref() != Some(task.tool.as_str()) {
        return Err(wants_word(&task));
    }
    is_typed(&page, asked.id, asked.typed.as_deref(), false)?;
    say_decision(&page, visitor, vec![bound], DecisionAction::Approve, Some(Box::new(grant))).await
}

pub(super) async fn preview_grant(
    State(page): PageState,
    Extension(visitor): CurrentVisitor,
    body: Bytes,
) -> ActionResult {
    const LAST: u32 = 40;
    let asked: GrantBody = read(&body)?;
    let (task, grant) = wanted(&page, &asked, &visitor.0)?;
    let lately = page.read(|records| records.recent_confirmations(task.tool.as_str(), LAST)).unwrap_or_default();
    // The one it is made from tells nothing.
    let others: Vec<_> = lately.iter().filter(|other| other.id != task.id).collect();
    let matched = others.iter().filter(|other| grant.matches(other)).count();
    Ok(Json(json!({"matched": matched, "of": others.len()})).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GrantTarget {
    id: GrantId,
}

pub(super) async fn revoke_grant(
    State(page): PageState,
    Extension(visitor): CurrentVisitor,
    body: Bytes,
) -> ActionResult {
    let GrantTarget { id } = read(&body)?;
    match page.send(PageCommand::Revoke(id), visitor.0).await {
        None => Err(gone()),
        Some(Ok(_)) => Ok(Json(json!({"id": id})).into_response()),
        Some(Err(_)) => Err(refuse(StatusCode::NOT_FOUND, "not-found", "no such grant")),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TryBody {
    tool: String,
    #[serde(default)]
    input: Map<String, Value>,
}

/// Runs a subtool for the human, the way that every caller runs one.
pub(super) async fn try_it(State(page): PageState, body: Bytes) -> ActionResult {
    const PATIENCE: Duration = Duration::from_secs(20);
    let TryBody { tool, input } = read(&body)?;
    let run = Operation::run(RunRequest { tool, input, ..RunRequest::default() });
    let caller = Caller { session: Some("page".to_owned()), ..Caller::default() };
    let unwritten = |error: std::io::Error| {
        refuse(StatusCode::SERVICE_UNAVAILABLE, "io", &format!("the request could not be written: {error}"))
    };
    let request = PendingRequest::post(&page.context.mailbox, run, caller).map_err(unwritten)?;
    match tokio::time::timeout(PATIENCE, handover::reply(&request)).await {
        Ok(Some(Reply::Accepted(id) | Reply::Answer(Answer::SameAs(id)))) => {
            Ok(Json(json!({"id": id})).into_response())
        }
        Ok(Some(Reply::Answer(Answer::Refused(error)))) => {
            let problems = error.details.get("problems").cloned();
            let body = json!({"error": error, "problems": problems});
            Err((StatusCode::UNPROCESSABLE_ENTITY, Json(body)).into_response())
        }
        Ok(_) => Err(refuse(StatusCode::INTERNAL_SERVER_ERROR, "internal", "it was answered with something else")),
        Err(_) => Err(gone()),
    }
}
