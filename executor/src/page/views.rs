//! The page's views: what each path shows.

use std::borrow::Cow;
use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{Html, IntoResponse, Response};
use axum::{Extension, Json};
use catalog::Subtool;
use catalog::listing_cache;
use ground::config::seal;
use ground::task::confirmation::DecidedBy;
use ground::task::grant::{FieldCoverage, Grant, GrantStatus};
use ground::task::part_of::PartOf;
use ground::task::{Outcome, Task};
use jiff::Timestamp;
use listing::Listing;
use protocol::caller::Caller;
use protocol::code::Code;
use protocol::resolution::ResolvedBy;
use protocol::task::{State as TaskState, Step, TaskId};
use protocol::{clock, excerpt};
use search::{LearnedRequests, Unusable};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::StoreError;
use store::sqlite::records::{HistoryFilter, RecordReader};
use tokio::task::spawn_blocking;

use super::actions::undo_of;
use super::background::BackgroundReader;
use super::card::{Card, CardCaller, fields, question_of};
use super::door::{SessionName, refuse};
use super::touches::touches;
use super::visible::{VisibleLine, VisibleText, line};
use super::wording::{
    DisplayTime, StartTime, by_words, decided_words, effect_words, other_session, scope_words, span, state_words,
    step_words, user,
};
use super::{Page, form};
use crate::intake::policy::{PolicyCase, PolicyDecision};

mod export;
mod sessions;

pub(super) use export::{history_as_csv, history_as_jsonl};
pub(super) use sessions::sessions;

/// The most calls of a script that are shown.
const MAX_PARTS: u32 = 1000;
/// The most characters of the input of such a call.
const MAX_PART_CHARS: usize = 80;
/// The most cards on the waiting view; the script loads more as they are decided.
const MAX_CARDS: u32 = 50;
/// How many bytes the inputs of the cards on the waiting view may have, after the first card. The script loads the
/// others one by one, so that a flood of large inputs does not keep the page from opening.
const MAX_CARD_BYTES: usize = 512 << 10;
/// The most rows of a list.
const MAX_ROWS: u32 = 50;
/// The most runs shown on the page of a subtool.
const MAX_RUNS: u32 = 10;
/// The most characters of an input in a row.
const MAX_SUMMARY_CHARS: usize = 160;

const NO_LONGER_WAITING: ViewError = ViewError::NotFound("this task is no longer waiting");
/// The label of a resolution on the page of a task.
const RESOLVED: &str = "resolved";
/// Why a view cannot be shown: the record cannot be read, or there is nothing to show.
pub(super) enum ViewError {
    Record(StoreError),
    NotFound(&'static str),
}

impl From<StoreError> for ViewError {
    fn from(error: StoreError) -> Self {
        Self::Record(error)
    }
}

impl IntoResponse for ViewError {
    fn into_response(self) -> Response {
        match self {
            Self::Record(error) => {
                tracing::error!(error = protocol::error::chain(&error), "failed to read the record for the page");
                refuse(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    Code::Internal,
                    "failed to read the record of tasks; the log says why",
                )
            }
            Self::NotFound(what) => refuse(StatusCode::NOT_FOUND, Code::NotFound, what),
        }
    }
}

pub(super) type ViewResult = Result<Response, ViewError>;

pub(super) async fn waiting(State(page): State<Arc<Page>>) -> ViewResult {
    let now = clock::now();
    let mut tasks = page.read(|records| records.waiting(MAX_CARDS))?;
    // An agent that asks something can do nothing else meanwhile.
    tasks.sort_by_key(|task| !task.confirmation.as_ref().is_some_and(|confirmation| confirmation.is_question()));
    let mut bytes = 0;
    let shown = tasks.iter().take_while(|task| {
        let had = bytes;
        bytes += Value::Object(task.input.clone()).to_string().len();
        had == 0 || bytes <= MAX_CARD_BYTES
    });
    let count = shown.count();
    tasks.truncate(count);
    let frame = page.frame("Waiting", "waiting")?;
    let more = frame
        .counts
        .map_or(0, |counts| usize::try_from(counts.waiting).unwrap_or(usize::MAX).saturating_sub(tasks.len()));
    let mut backgrounds = BackgroundReader::new(&page);
    let mut cards = Vec::with_capacity(tasks.len());
    for task in &tasks {
        let background = backgrounds.of(task)?;
        cards.extend(Card::of(task, &page, now).map(|card| card.with(background)));
    }
    Ok(page.show("waiting.html", &json!({"page": frame, "cards": cards, "more": more})))
}

pub(super) async fn card(State(page): State<Arc<Page>>, Path(id): Path<String>) -> ViewResult {
    let task = task_of(&page, &id)?.filter(|task| task.state == TaskState::AwaitingConfirmation);
    let task = task.ok_or(NO_LONGER_WAITING)?;
    let background = BackgroundReader::new(&page).of(&task)?;
    let card = Card::of(&task, &page, clock::now()).ok_or(NO_LONGER_WAITING)?.with(background);
    Ok(page.show("card.html", &json!({"card": card})))
}

/// A question as JSON, for `TerminalSession`.
pub(super) async fn question(State(page): State<Arc<Page>>, Path(id): Path<String>) -> ViewResult {
    let task = task_of(&page, &id)?.filter(|task| task.state == TaskState::AwaitingConfirmation);
    let catalog = page.catalog();
    let found = task.as_ref().and_then(|task| {
        let subtool = catalog.get(task.tool.as_str()).filter(|subtool| subtool.hash == task.definition_hash)?;
        Some((task, task.confirmation.as_ref()?, question_of(&subtool, task)?))
    });
    let (task, confirmation, question) = found.ok_or(ViewError::NotFound("no question is waiting here"))?;
    Ok(Json(json!({
        "id": task.id, "tool": task.tool, "digest": confirmation.digest.to_string(), "question": question.text,
        "schema": question.schema, "wants_secrets": question.asks_for_secrets(),
    }))
    .into_response())
}

#[derive(Serialize)]
struct OpenRow {
    id: String,
    tool: String,
    state: TaskState,
    state_words: &'static str,
    ago: String,
    asked: String,
    running_for: Option<String>,
    /// When it starts, if that is not now.
    starts: Option<StartTime>,
    can_stop: bool,
}

pub(super) async fn tasks(State(page): State<Arc<Page>>) -> ViewResult {
    const MAX_TASKS: u32 = 200;
    let now = clock::now();
    let tasks = page.read(|records| records.open_tasks(MAX_TASKS))?;
    let mut rows = Vec::with_capacity(tasks.len());
    for task in tasks {
        let DisplayTime { at, ago } = DisplayTime::of(task.created_at, now);
        let is_running = task.state == TaskState::Running;
        let started = page.read(|records| if is_running { records.steps(task.id) } else { Ok(Vec::new()) })?;
        let started = started.iter().rev().find(|recorded| recorded.step == Step::Start);
        rows.push(OpenRow {
            id: task.id.to_string(),
            tool: task.tool.to_string(),
            state: task.state,
            state_words: state_words(task.state),
            ago,
            asked: at,
            running_for: started.map(|recorded| span(now.duration_since(recorded.at).as_secs())),
            starts: StartTime::of(&task, now),
            can_stop: true,
        });
    }
    Ok(page.show("tasks.html", &json!({"page": page.frame("Tasks", "tasks")?, "rows": rows})))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct HistoryQuery {
    q: String,
    state: String,
    before: String,
}

impl HistoryQuery {
    fn filter(&self) -> HistoryFilter<'_> {
        let (state, before) = (self.state.parse().ok(), self.before.parse().ok());
        HistoryFilter { text: &self.q, state, before, tool: None }
    }
}

#[derive(Serialize)]
struct EndedRow {
    id: String,
    tool: String,
    state: TaskState,
    state_words: &'static str,
    #[serde(flatten)]
    moment: DisplayTime,
    decided: Cow<'static, str>,
    /// The session that decided, if it is not the one that asks for the view.
    other_session: Option<String>,
    code: Option<String>,
    summary: VisibleLine,
    /// The subtool that undoes it, if it can be undone.
    undo: Option<String>,
}

impl EndedRow {
    fn of(task: &Task, page: &Page, session: &SessionName, now: Timestamp) -> Self {
        let end = task.end.as_ref();
        let code = end.and_then(|end| match &end.outcome {
            Outcome::Error(error) => Some(error.code.to_string()),
            Outcome::Data(_) | Outcome::File { .. } => None,
        });
        // The code `denied` adds nothing to the state.
        let code = code.filter(|code| code != task.state.as_str());
        let input = Value::Object(seal::shown(&task.input)).to_string();

        Self {
            id: task.id.to_string(),
            tool: task.tool.to_string(),
            state: task.state,
            state_words: state_words(task.state),
            moment: DisplayTime::of(end.map_or(task.created_at, |end| end.at), now),
            decided: decided_words(task.confirmation.as_deref(), task.state),
            other_session: decided_by(task).and_then(|by| other_session(by, &session.0)),
            code,
            summary: line(&excerpt::chars(&input, MAX_SUMMARY_CHARS)),
            undo: undo_of(page, task).map(|undo| undo.subtool.to_string()),
        }
    }
}

pub(super) async fn history(
    State(page): State<Arc<Page>>,
    Extension(session): Extension<SessionName>,
    Query(query): Query<HistoryQuery>,
) -> ViewResult {
    let now = clock::now();
    let tasks = page.read(|records| records.ended(&query.filter(), MAX_ROWS + 1))?;
    let (rows, more) = tasks.split_at(tasks.len().min(MAX_ROWS as usize));
    let older = rows.last().filter(|_| !more.is_empty()).map(|last| {
        let query = url::form_urlencoded::Serializer::new(String::new())
            .append_pair("q", &query.q)
            .append_pair("state", &query.state)
            .append_pair("before", &last.id.to_string())
            .finish();
        format!("/history?{query}")
    });
    let rows: Vec<_> = rows.iter().map(|task| EndedRow::of(task, &page, &session, now)).collect();
    let states: Vec<_> = TaskState::ALL.into_iter().filter(|state| state.is_final()).map(TaskState::as_str).collect();
    let view = json!({"page": page.frame("History", "history")?, "query": query.q, "state": query.state, "states": states,
        "rows": rows, "older": older});
    Ok(page.show("history.html", &view))
}

#[derive(Serialize)]
struct StoryStep {
    #[serde(flatten)]
    moment: DisplayTime,
    words: String,
    by: Option<String>,
}

pub(super) async fn task(
    State(page): State<Arc<Page>>,
    Extension(session): Extension<SessionName>,
    Path(id): Path<String>,
) -> ViewResult {
    let Some(task) = task_of(&page, &id)? else {
        return Ok(page.message(
            StatusCode::NOT_FOUND,
            "No such task",
            "It is not in the record. It may have been removed.",
        ));
    };
    let now = clock::now();
    let catalog = page.catalog();
    let subtool = catalog.get(task.tool.as_str());
    let subtool = subtool.as_deref();
    let unchanged = subtool.filter(|subtool| subtool.hash == task.definition_hash);
    let confirmation = task.confirmation.as_deref();
    let decision = confirmation.and_then(|confirmation| confirmation.decision.as_ref());
    let asked_input = decision.and_then(|decision| decision.asked_input.as_ref());
    let (result, error) = match task.end.as_ref().map(|end| &end.outcome) {
        Some(Outcome::Data(data)) => (Some(VisibleText::of(data)), None),
        Some(Outcome::File { path, content_type, bytes }) => {
            (Some(VisibleText::text(&format!("{bytes} bytes of {content_type} in {}", path.display()))), None)
        }
        Some(Outcome::Error(error)) => {
            let hint = error.hint.as_deref().map(line);
            (None, Some(json!({"code": error.code, "message": line(&error.message), "hint": hint})))
        }
        None => (None, None),
    };
    let decision_view = decision.map(|decision| {
        let DisplayTime { at, ago } = DisplayTime::of(decision.at, now);
        json!({"words": decided_words(confirmation, task.state), "by": by_words(&decision.by, &session.0), "at": at, "ago": ago,
            "note": decision.reason.as_deref().map(line), "digest": confirmation.map(|confirmation| confirmation.digest)})
    });
    let mut meta: Vec<_> =
        task.end.iter().flat_map(|end| &end.meta).map(|(name, value)| (name.as_str(), plain(value))).collect();
    if let Some(resolution) = &task.resolution {
        let what = if resolution.happened { "it happened" } else { "it did not happen" };
        let note = resolution.note.as_ref().map_or_else(String::new, |note| format!(": {note}"));
        meta.push((RESOLVED, format!("{what}{note}")));
    }
    let description = subtool.map(|subtool| subtool.definition.description.as_str());
    let files = confirmation.map_or(&[][..], |confirmation| &confirmation.files);
    let view = json!({
        "page": page.frame(task.tool.as_str(), "history")?,
        "task": {
            "id": task.id, "tool": task.tool.as_str(), "description": description, "state": task.state,
            "state_words": state_words(task.state), "effect": task.effect, "effect_words": effect_words(task.effect, subtool.map(|subtool| &*subtool.definition)),
            "touches": touches(unchanged, &Value::Null, files, &page.runner_context().config), "why": confirmation.map(|confirmation| confirmation.why.as_str()),
            "asked": CardCaller::of(&task.caller, task.created_at, now), "fields": fields(unchanged, &seal::shown(&task.input), None),
            "input_asked": asked_input.map(|input| fields(unchanged, input, None)),
        },
        "part_of": PartOf::of(&task), "parts": parts(&page, &task)?, "story": story(&page, &task, &session.0, now)?, "confirmation": decision_view, "result": result, "error": error, "meta": meta,
        "starts": StartTime::of(&task, now), "can_stop": !task.state.is_final(), "can_resolve": task.state == TaskState::Unknown && task.resolution.as_ref().is_none_or(|first| first.by == ResolvedBy::Caller),
    });
    Ok(page.show("task.html", &view))
}

/// What the calls of a script, or the steps of a task, became.
fn parts(page: &Page, whole: &Task) -> Result<Vec<Value>, ViewError> {
    let parts = page.read(|records| records.parts_of(whole, MAX_PARTS))?;
    let part = |task: &Task| {
        let place = PartOf::of(task).map(|part| match (part.call, part.step) {
            (Some(call), _) => call.to_string(),
            (None, step) => step.unwrap_or_default(),
        });
        let input = Value::Object(seal::shown(&task.input)).to_string();
        json!({"id": task.id, "place": place, "tool": task.tool.as_str(), "state": task.state,
            "state_words": state_words(task.state), "summary": line(&excerpt::chars(&input, MAX_PART_CHARS))})
    };
    Ok(parts.iter().map(part).collect())
}

fn decided_by(task: &Task) -> Option<&DecidedBy> {
    task.confirmation.as_ref()?.decision.as_ref().map(|decision| &decision.by)
}

fn story(page: &Page, task: &Task, session: &str, now: Timestamp) -> Result<Vec<StoryStep>, ViewError> {
    let by = decided_by(task).map(|by| by_words(by, session));
    let asked_by = format!("{} (uid {})", user(task.caller.uid), task.caller.uid);
    let mut steps = vec![StoryStep {
        moment: DisplayTime::of(task.created_at, now),
        words: "Accepted".to_owned(),
        by: Some(asked_by),
    }];
    for recorded in page.read(|records| records.steps(task.id))? {
        let is_decision = matches!(recorded.step, Step::Enqueue | Step::Deny) && task.confirmation.is_some();
        steps.push(StoryStep {
            moment: DisplayTime::of(recorded.at, now),
            words: step_words(recorded.step, recorded.attempt, task.confirmation.is_some()),
            by: by.clone().filter(|_| is_decision),
        });
    }
    Ok(steps)
}

pub(super) async fn grants(State(page): State<Arc<Page>>) -> ViewResult {
    let now = clock::now();
    let catalog = page.catalog();
    let mut grants = page.read(RecordReader::grants)?;
    grants.reverse();
    let rows: Vec<_> = grants
        .iter()
        .map(|grant| {
            let is_same = catalog.get(grant.tool.as_str()).is_some_and(|subtool| subtool.hash == grant.definition_hash);
            grant_row(grant, is_same, now)
        })
        .collect();
    Ok(page.show("grants.html", &json!({"page": page.frame("Grants", "grants")?, "rows": rows})))
}

fn grant_row(grant: &Grant, is_same: bool, now: Timestamp) -> Value {
    let ago = |at: Timestamp| format!("{} ago", span(now.duration_since(at).as_secs()));
    let (state, ends) = match grant.status(now) {
        GrantStatus::Revoked => ("revoked", format!("revoked {}", grant.revoked_at.map_or_else(String::new, ago))),
        GrantStatus::Expired => ("expired", ago(grant.expires_at)),
        GrantStatus::UsedUp => ("expired", "when it was used up".to_owned()),
        GrantStatus::Live if !is_same => ("void", "when its definition changed".to_owned()),
        GrantStatus::Live => ("live", format!("in {}", span(grant.expires_at.duration_since(now).as_secs()))),
    };
    let fields: Vec<_> =
        grant.fields.iter().map(|(name, covers)| json!({"label": name, "words": covers_words(covers)})).collect();
    let scope = &grant.scope;
    let scope_words = scope_words(scope.uid, scope.client.as_deref(), scope.folder.as_deref());
    json!({"id": grant.id, "tool": grant.tool, "made": ago(grant.made_at), "expires": ends, "uses": grant.uses,
        "most_uses": grant.most_uses, "last": grant.last_use.map(ago), "scope": scope_words, "fields": fields, "state": state})
}

pub(super) fn covers_words(covers: &FieldCoverage) -> String {
    match covers {
        FieldCoverage::Exactly(value) => format!("exactly {}", plain(&seal::shown_value(value))),
        FieldCoverage::OneOf(values) => format!("one of {}", values.iter().map(plain).collect::<Vec<_>>().join(", ")),
        FieldCoverage::Below(path) => format!("below {path}"),
        FieldCoverage::AtMost(most) => format!("at most {most}"),
        FieldCoverage::Anything => "anything".to_owned(),
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

pub(super) async fn subtools(State(page): State<Arc<Page>>, Query(query): Query<HistoryQuery>) -> ViewResult {
    page.refresh_catalog().await;
    let catalog = page.catalog();
    let runs = page.read(RecordReader::runs)?;
    let row = |subtool: &Subtool| {
        let (policy, why) = policy_words(&page, subtool);
        json!({"name": subtool.name, "description": subtool.definition.description,
            "effect_words": effect_words(subtool.definition.effect_class(), Some(&subtool.definition)), "policy": policy, "policy_why": why,
            "runs": runs.get(subtool.name.as_str()).copied().unwrap_or(0)})
    };
    let names = listed_names(&page, query.q.trim().to_owned()).await;
    let rows: Vec<_> = names.iter().filter_map(|name| catalog.get(name)).map(|subtool| row(&subtool)).collect();
    let view = json!({"page": page.frame("Subtools", "subtools")?, "query": query.q, "rows": rows});
    Ok(page.show("subtools.html", &view))
}

/// The names of the subtools that `query` finds, best first; without one, the first of all.
async fn listed_names(page: &Arc<Page>, query: String) -> Vec<String> {
    let (sources, cache) = (page.context.settings.current().sources.clone(), page.context.listing.clone());
    let read = move |listing: &Listing| -> Result<Vec<String>, Unusable> {
        if query.is_empty() {
            return (0..listing.count().min(4 * MAX_ROWS)).map(|number| listing.name(number)).collect();
        }
        let hits = listing.search(&query, &LearnedRequests::default())?;
        hits.iter().take(MAX_ROWS as usize).map(|hit| listing.name(hit.document)).collect()
    };
    let names = spawn_blocking(move || listing_cache::read(&sources, &cache, read)).await;
    match names {
        Ok(Ok(names)) => names,
        Ok(Err(error)) => {
            tracing::warn!(%error, "failed to read the listing");
            Vec::new()
        }
        Err(error) => {
            tracing::error!(%error, "reading the listing failed");
            Vec::new()
        }
    }
}

pub(super) async fn subtool(
    State(page): State<Arc<Page>>,
    Extension(session): Extension<SessionName>,
    Path(name): Path<String>,
) -> ViewResult {
    page.refresh_catalog().await;
    let catalog = page.catalog();
    let Some(subtool) = catalog.get(&name) else {
        return Ok(page.message(
            StatusCode::NOT_FOUND,
            "No such subtool",
            "It is not in the catalog. It may have been removed.",
        ));
    };
    let now = clock::now();
    let wanted = HistoryFilter { tool: Some(&name), ..HistoryFilter::default() };
    let runs = page.read(|records| records.ended(&wanted, MAX_RUNS))?;
    let runs: Vec<_> = runs.iter().map(|task| EndedRow::of(task, &page, &session, now)).collect();
    let definition = &subtool.definition;
    let (policy, why) = policy_words(&page, &subtool);
    let schema = serde_json::to_string_pretty(&definition.input).expect("a JSON value can be serialized");
    let view = json!({
        "page": page.frame(&name, "subtools")?,
        "subtool": {
            "name": name, "description": definition.description, "effect_words": effect_words(definition.effect_class(), Some(definition)),
            "policy": policy, "policy_why": why, "touches": touches(Some(&subtool), &Value::Null, &[], &page.runner_context().config), "tags": definition.tags,
            "requires": definition.requires, "source_file": subtool.origin.to_string(), "schema_text": schema,
            "runs": runs, "form": form::fields(&definition.input, &serde_json::Map::new()),
        },
    });
    Ok(page.show("subtool.html", &view))
}

/// What the policy says about a call without input by an unknown caller, and why.
fn policy_words(page: &Page, subtool: &Subtool) -> (&'static str, String) {
    let (input, caller) = (serde_json::Map::new(), Caller { uid: 0, ..Caller::default() });
    let case = PolicyCase {
        name: &subtool.name,
        definition: &subtool.definition,
        input: &input,
        caller: &caller,
        assurance: page.context.approver.assurance(),
    };
    let ruling = page.context.settings.current().policy.decide(case);
    let words = match ruling.decision {
        PolicyDecision::Run => "runs without asking",
        PolicyDecision::Ask => "asks you",
        PolicyDecision::Refuse | PolicyDecision::NeedsAssurance => "refused",
    };
    (words, ruling.why)
}

fn task_of(page: &Page, id: &str) -> Result<Option<Task>, ViewError> {
    let Ok(id) = id.parse::<TaskId>() else { return Ok(None) };
    Ok(page.read(|records| records.task(id))?)
}

/// The frame around a page says how many requests wait, so only a session sees it.
pub(super) async fn not_found(State(page): State<Arc<Page>>, session: Option<Extension<SessionName>>) -> Response {
    if session.is_none() {
        return StatusCode::NOT_FOUND.into_response();
    }
    page.message(StatusCode::NOT_FOUND, "Not found", "There is no page at this address.")
}

pub(super) fn html(status: StatusCode, text: String) -> Response {
    (status, Html(text)).into_response()
}
