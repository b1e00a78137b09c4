//! The page's actions: each checks what a human sent, sends a command to the daemon, and waits for the result.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use catalog::Subtool;
use dispatcher::{DecideRequest, DecisionError, HumanCommand, HumanVerdict};
use ground::base::schema::Problem;
use ground::base::webauthn::Assertion;
use ground::config::seal;
use ground::task::Task;
use ground::task::confirmation::{Confirmation, DecidedBy, Digest};
use ground::task::fingerprint::Fingerprint;
use ground::task::grant::{self, FieldCoverage, Grant, GrantId, GrantScope};
use protocol::code::Code;
use protocol::task::{State as TaskState, TaskId};
use protocol::{clock, json};
use runner::Runner as _;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::approval_word::{approval_word, check_word, word_required};
use super::card::question_of;
use super::diff::LineDiff;
use super::door::{SessionName, refuse};
use super::views::ViewError;
use super::visible::{VisibleText, line};
use super::wording::decided_words;
use super::{Page, form, hidden, keys};
use crate::attempt;

mod deny_session;
mod requests;
mod sessions;

pub(super) use deny_session::deny_session;
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
    #[serde(default)]
    touch: Option<Assertion>,
}

/// An edit that may be approved.
struct CheckedEdit {
    task: Task,
    input: Map<String, Value>,
    /// The digest of what was shown.
    shown: Digest,
    /// The files of the edited task.
    files: Vec<Fingerprint>,
    /// The digest of the edited task.
    digest: Digest,
    /// What must be typed to approve the edited task.
    word: Option<String>,
}

fn check_edit(page: &Page, edit: &EditBody) -> Result<CheckedEdit, Response> {
    let (task, confirmation) = pending_task(page, edit.id)?;
    let (_, digest) = DecidedTask { id: edit.id, digest: edit.digest.clone() }.parse()?;
    if confirmation.digest != digest {
        return Err(not_decided(page, DecisionError::Stale(edit.id)));
    }
    let catalog = page.catalog();
    let subtool = catalog.get(task.tool.as_str()).filter(|subtool| subtool.hash == task.definition_hash);
    let Some(subtool) = subtool else { return Err(not_decided(page, DecisionError::Stale(edit.id))) };
    let input = hidden::sealed_edit(page, &subtool.definition.input, &task, &edit.input)?;
    let revealed = hidden::revealed(page, &input)?;
    check_input(&subtool, &revealed)?;
    // What is known to fail is not offered for a yes.
    let invocation = attempt::invocation(&task, revealed);
    if let Err(failure) = subtool.definition.run.check_before(&invocation, &page.runner_context()) {
        let problem = failure.error.message;
        let pointer = String::new();
        return Err(invalid_input(&[Problem { pointer, problem, fields: None, did_you_mean: None, schema: None }]));
    }
    let edited = if input == task.input {
        *confirmation
    } else {
        let shown = attempt::invocation(&task, seal::shown(&input));
        let files = subtool.definition.run.files(&shown, &page.runner_context()).unwrap_or_default();
        Confirmation { files, ..*confirmation }
    };
    let edited_digest = edited.digest_of(&page.context.site.instance, &task, &input);
    let word = approval_word(&subtool.definition, &task, &input);
    Ok(CheckedEdit { task, input, shown: digest, files: edited.files, digest: edited_digest, word })
}

fn check_input(subtool: &Subtool, input: &Map<String, Value>) -> Result<(), Response> {
    let problems = subtool.schema.problems(&Value::Object(input.clone()));
    if problems.is_empty() { Ok(()) } else { Err(invalid_input(&problems)) }
}

pub(super) fn invalid_input(problems: &[Problem]) -> Response {
    let error = json!({"code": Code::InvalidInput, "message": "some fields are not valid"});
    (StatusCode::UNPROCESSABLE_ENTITY, Json(json!({"error": error, "problems": problems}))).into_response()
}

pub(super) async fn edit(State(page): PageState, body: Bytes) -> ActionResult {
    let edit: EditBody = parse_body(&body)?;
    let CheckedEdit { task, input, files, digest, word, .. } = check_edit(&page, &edit)?;
    let names = task.input.keys().chain(input.keys().filter(|name| !task.input.contains_key(*name)));
    let mut changes: Vec<_> = names
        .map(|name| (name, task.input.get(name), input.get(name)))
        .filter(|(_, before, after)| before != after)
        .map(|(name, before, after)| {
            let shown = |value: Option<&Value>| value.map(|value| VisibleText::of(&seal::shown_value(value)));
            json!({"label": line(name), "pointer": form::pointer(name), "before": shown(before), "after": shown(after),
                "diff": before.zip(after).and_then(|(before, after)| LineDiff::of(before, after))})
        })
        .collect();
    let known = task.confirmation.as_ref().map(|confirmation| confirmation.files.as_slice()).unwrap_or_default();
    for file in files.iter().filter(|file| !known.contains(file)) {
        let shown = VisibleText::text(&format!(
            "{}{}{}",
            file.leads_to.as_ref().unwrap_or(&file.path).display(),
            file.bytes.map(|bytes| format!(", {bytes} bytes")).unwrap_or_default(),
            if file.leads_to.is_some() { String::new() } else { format!(", SHA-256 {}", file.sha256) }
        ));
        changes.push(
            json!({"label": line("the file that is used"), "pointer": "", "before": null, "after": shown, "diff": null}),
        );
    }
    Ok(Json(json!({"digest": digest, "changes": changes, "word": word})).into_response())
}

pub(super) async fn decide_edit(
    State(page): PageState,
    Extension(session): CurrentSession,
    body: Bytes,
) -> ActionResult {
    let edit: EditBody = parse_body(&body)?;
    let CheckedEdit { task, input, shown, files, digest, .. } = check_edit(&page, &edit)?;
    // The decision must be about the changes that the human saw.
    if edit.edited_digest.as_deref() != Some(digest.to_string().as_str()) {
        return Err(not_decided(&page, DecisionError::Stale(edit.id)));
    }
    check_word(&page, &task, &input, edit.typed.as_deref())?;
    let action = if input == task.input {
        HumanVerdict::Approve
    } else {
        HumanVerdict::Edit { input, files, digest, reason: note(edit.reason) }
    };
    send_decision(&page, session, vec![(edit.id, shown)], action, (None, edit.touch)).await
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
    #[serde(default)]
    touch: Option<Assertion>,
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

/// Builds the grant that a human wants to make from a pending task.
fn build_grant(page: &Page, wanted: &GrantBody, session: &str) -> Result<(Task, Grant), Response> {
    let (task, confirmation) = pending_task(page, wanted.id)?;
    let invalid = |message: &str| refuse(StatusCode::UNPROCESSABLE_ENTITY, Code::BadGrant, message);
    let catalog = page.catalog();
    if !catalog.get(task.tool.as_str()).is_some_and(|subtool| subtool.definition.grantable) {
        return Err(invalid("approvals of this subtool cannot be remembered"));
    }
    let mut chosen: BTreeMap<_, _> = wanted.fields.iter().map(|field| (field.pointer.as_str(), field)).collect();
    if chosen.len() < wanted.fields.len() {
        return Err(invalid("a field is chosen twice"));
    }
    let mut fields = BTreeMap::new();
    for (name, value) in &task.input {
        // A field that the human did not widen must match exactly.
        let chosen = chosen.remove(form::pointer(name).as_str());
        let limit = chosen.and_then(|field| field.value.as_ref());
        let text = limit.and_then(Value::as_str);
        let covers = match chosen.map_or(CoverageKind::Exact, |field| field.how) {
            CoverageKind::Exact => FieldCoverage::Exactly(value.clone()),
            CoverageKind::Any => FieldCoverage::Anything,
            CoverageKind::Prefix => match text {
                Some(path) if path.starts_with('/') => FieldCoverage::Below(path.to_owned()),
                _ => return Err(invalid("a path must start with `/`")),
            },
            CoverageKind::AtMost => match limit.and_then(number) {
                Some(most) => FieldCoverage::AtMost(most),
                None => return Err(invalid("`at most` needs a number")),
            },
        };
        fields.insert(name.clone(), covers);
    }
    if let Some((pointer, _)) = chosen.pop_first() {
        return Err(invalid(&format!("the request has no field `{pointer}`")));
    }
    let now = clock::now();
    let lifetime = wanted.expires_in.parse::<protocol::duration::PositiveDuration>();
    let lifetime = lifetime.map_err(|error| invalid(&error.to_string()))?.get();
    if wanted.most_uses == Some(0) {
        return Err(invalid("a grant is for one use at least"));
    }
    if lifetime > grant::MAX_LIFETIME {
        return Err(invalid("a grant cannot last longer than 30 days"));
    }
    let grant = Grant {
        id: GrantId::new(),
        tool: task.tool.clone(),
        definition_hash: task.definition_hash.clone(),
        // A session is only a name that a program gives itself, so it limits nothing.
        scope: GrantScope {
            uid: task.caller.uid,
            client: task.caller.client().map(str::to_owned),
            folder: task.caller.folder.clone(),
        },
        files: confirmation.files,
        fields,
        rules: page.context.settings.current().policy.ask_rules(),
        made_at: now,
        made_from: task.id,
        made_by: session.to_owned(),
        expires_at: now.checked_add(lifetime).unwrap_or(now),
        most_uses: wanted.most_uses,
        uses: 0,
        last_use: None,
        revoked_at: None,
        proof: None,
    };
    if !grant.matches(&task) {
        return Err(invalid("the grant does not cover the request that it is made from"));
    }
    Ok((task, grant))
}

fn number(value: &Value) -> Option<serde_json::Number> {
    match value {
        Value::Number(number) => Some(number.clone()),
        Value::String(text) => match json::parse(text.trim().as_bytes()) {
            Ok(Value::Number(number)) => Some(number),
            _ => None,
        },
        _ => None,
    }
}

pub(super) async fn grant(State(page): PageState, Extension(session): CurrentSession, body: Bytes) -> ActionResult {
    let wanted: GrantBody = parse_body(&body)?;
    let decided = DecidedTask { id: wanted.id, digest: wanted.digest.clone() }.parse()?;
    let (task, grant) = build_grant(&page, &wanted, &session.0)?;
    if needs_word(&grant, &task) && wanted.typed.as_deref() != Some(task.tool.as_str()) {
        return Err(word_required(task.tool.as_str()));
    }
    check_approvable(&page, wanted.id, wanted.typed.as_deref(), false)?;
    let grant = Some(Box::new(grant));
    send_decision(&page, session, vec![decided], HumanVerdict::Approve, (grant, wanted.touch)).await
}

/// Whether the human has to type the subtool's name for a grant made from `task`: a field of it may be nearly anything.
fn needs_word(grant: &Grant, task: &Task) -> bool {
    grant.fields.iter().any(|(name, covers)| match covers {
        FieldCoverage::Anything => !task.input.get(name).is_some_and(Value::is_boolean),
        FieldCoverage::Below(folder) => folder.trim_matches('/').is_empty(),
        FieldCoverage::Exactly(_) | FieldCoverage::OneOf(_) | FieldCoverage::AtMost(_) => false,
    })
}

/// Counts how many of the recent requests a grant would have let run, and says whether it needs the word.
pub(super) async fn preview_grant(
    State(page): PageState,
    Extension(session): CurrentSession,
    body: Bytes,
) -> ActionResult {
    const MAX_COMPARED: u32 = 40;
    let wanted: GrantBody = parse_body(&body)?;
    let (task, grant) = build_grant(&page, &wanted, &session.0)?;
    let recent =
        page.read(|records| records.recent_confirmations(task.tool.as_str(), MAX_COMPARED)).unwrap_or_default();
    // The task that the grant is made from always matches.
    let others: Vec<_> = recent.iter().filter(|other| other.id != task.id).collect();
    let matched = others.iter().filter(|other| grant.matches(other)).count();
    Ok(Json(json!({"matched": matched, "of": others.len(), "needs_word": needs_word(&grant, &task)})).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RevokeBody {
    id: GrantId,
    #[serde(default)]
    touch: Option<Assertion>,
}

pub(super) async fn revoke_grant(State(page): PageState, body: Bytes) -> ActionResult {
    let RevokeBody { id, touch } = parse_body(&body)?;
    match page.send(HumanCommand::Revoke { grant: id, touch }).await {
        None => Err(stopping()),
        Some(Ok(_)) => Ok(Json(json!({"id": id})).into_response()),
        Some(Err(DecisionError::NotPending(_))) => Err(refuse(StatusCode::NOT_FOUND, Code::NotFound, "no such grant")),
        Some(Err(error)) => Err(not_decided(&page, error)),
    }
}
