//! The server's own HTTP API: questions, streams of events, decisions of those who may decide, sessions.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use ground::page_client::api_client::{Gate, GateDecision, GateList, PageApiError};
use protocol::code::Code;
use protocol::error::ErrorBody;
use protocol::task::TaskId;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::error::ApiError;
use super::extract::{ApiPath, ApiQuery};
use super::stream::{self, StreamEnd};
use super::{HttpClient, ServeState, openapi, waiting_stream};
use crate::delivery;
use crate::json_input;
use crate::service::SessionInfo;
use crate::service::turn::{EventId, Question, QuestionLimits, TurnOutcome, TurnStream, TurnUsage, WhenBusy};

/// How long `submit` waits for an answer unless it says otherwise.
const DEFAULT_TIMEOUT: Duration = Duration::from_mins(10);
/// The longest time that `submit` waits.
const MAX_TIMEOUT: Duration = Duration::from_hours(24);

type Api = State<Arc<ServeState>>;
type Client = Extension<HttpClient>;

/// A question for a session.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SubmitRequest {
    /// The question. Lines that begin with `!word` are commands: `!help` lists them.
    pub message: String,
    /// The session: an id of your choice, or the number of a session. Without it a new session begins.
    #[serde(default)]
    pub session: Option<String>,
    /// A model of the configuration that answers this question only.
    #[serde(default)]
    pub model: Option<String>,
    /// Whether the answer is waited for. What commands alone print is always answered at once.
    #[serde(default = "default_true")]
    pub wait: bool,
    /// How many seconds the answer is waited for: 600 unless you say otherwise. The work goes on after that.
    #[serde(default)]
    pub timeout: Option<f64>,
    /// Whether lines that begin with `!` are commands; a key may rule them out for all of its messages.
    #[serde(default = "default_true")]
    pub commands: bool,
    /// What happens while the session answers another question.
    #[serde(default)]
    pub when_busy: WhenBusy,
    #[serde(default)]
    pub limits: SubmitLimits,
}

/// Limits of one question. They only lower those of the configuration.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SubmitLimits {
    /// The most requests to the model.
    #[serde(default)]
    pub steps: Option<u32>,
    /// The most tokens, in and out.
    #[serde(default)]
    pub tokens: Option<u64>,
    /// The highest cost, in the currency of the configured prices.
    #[serde(default)]
    pub cost: Option<f64>,
    /// The most calls of subtools, by whatever makes them.
    #[serde(default)]
    pub calls: Option<u32>,
    /// After how many seconds the work is stopped.
    #[serde(default)]
    pub deadline: Option<f64>,
}

/// The answer to a question.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SubmitAnswer {
    /// The session's number.
    pub session: u32,
    /// The session's id.
    pub id: String,
    pub answer: String,
    /// `completed`, or why the work stopped: `max_iterations`, `budget_exhausted`, `truncated`, `refused`, `policy_denied`,
    /// `approval_denied`, `cancelled`, `deadline_exceeded`.
    pub termination: String,
    /// A limit cut the work short.
    pub truncated: bool,
    pub model: String,
    pub usage: TurnUsage,
}

/// A question whose answer is not there yet: read the session's state, or follow its stream.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SubmitPending {
    pub session: u32,
    pub id: String,
    /// The question, by which the session's state and its stream know it; only commands have none.
    #[schemars(with = "Option<String>")]
    pub question: Option<Uuid>,
    /// `working`, or `queued` while the work on others goes on.
    pub state: &'static str,
}

/// The sessions of a client.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SessionList {
    /// The oldest first.
    pub sessions: Vec<SessionInfo>,
}

/// What was done to a session.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SessionChange {
    pub session: u32,
    /// `deleted`, `reset`, `stopped` or `idle`.
    pub state: &'static str,
}

/// The state of a task after a decision.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DecisionAnswer {
    pub id: String,
    pub state: String,
}

/// Whether the server works.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Health {
    /// Always `ok`.
    pub status: &'static str,
    pub version: &'static str,
}

#[derive(Debug, Default, Deserialize)]
struct StreamQuery {
    /// Follows this question alone, from the beginning of its turn, and ends with it.
    #[serde(default)]
    question: Option<Uuid>,
    /// `turn` has the current turn, or else the last one, from its beginning (or from `Last-Event-ID` on) to its end.
    #[serde(default)]
    until: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
struct TasksQuery {
    /// Whether the open tasks are cancelled as well.
    #[serde(default)]
    tasks: bool,
}

fn default_true() -> bool {
    true
}

/// The routes.
pub fn router() -> Router<Arc<ServeState>> {
    Router::new()
        .route("/health", get(health))
        .route("/openapi.json", get(async || Json(openapi::document())))
        .route("/api/v1/submit", post(submit))
        .route("/api/v1/stream/{session}", get(follow))
        .route("/api/v1/gates", get(waiting))
        .route("/api/v1/gates/stream", get(waiting_stream::follow))
        .route("/api/v1/gate/{id}", get(waiting_task).post(decide))
        .route("/api/v1/sessions", get(sessions))
        .route("/api/v1/session/{session}", get(session_state).delete(delete_session))
        .route("/api/v1/session/{session}/reset", post(reset_session))
        .route("/api/v1/session/{session}/cancel", post(cancel_session))
        .fallback(async |uri: Uri| unknown_path(uri.path()))
        .method_not_allowed_fallback(async || wrong_method())
}

async fn health() -> Json<Health> {
    Json(Health { status: "ok", version: env!("CARGO_PKG_VERSION") })
}

async fn submit(
    State(state): Api,
    Extension(client): Client,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, ApiError> {
    let request: SubmitRequest = parse(&body)?;
    let timeout = seconds("timeout", request.timeout)?.unwrap_or(DEFAULT_TIMEOUT).min(MAX_TIMEOUT);
    let limits = QuestionLimits {
        steps: request.limits.steps,
        tokens: request.limits.tokens,
        cost: request.limits.cost,
        calls: request.limits.calls,
        deadline: seconds("limits.deadline", request.limits.deadline)?,
    };
    let repeat_key = headers.get("idempotency-key").and_then(|key| key.to_str().ok()).map(str::to_owned);
    let id = request.session.unwrap_or_else(|| new_session(&client, repeat_key.as_deref()));
    let mut asker = client.asker("api", id.clone());
    asker.has_no_commands |= !request.commands;
    let question = Question {
        model: request.model,
        when_busy: request.when_busy,
        limits,
        answers_again: repeat_key.is_some(),
        repeat_key,
        is_polled: !request.wait,
        ..Question::new(asker, request.message)
    };
    let mut turn = state.service.ask(question).await?;
    let session = turn.session();
    let question = turn.question();
    let pending = async |id| {
        let state = match question {
            Some(question) if state.service.is_queued(session, question).await => "queued",
            _ => "working",
        };
        (StatusCode::ACCEPTED, Json(SubmitPending { session, id, question, state })).into_response()
    };
    // Commands alone have printed what they print already.
    if !request.wait && question.is_some() {
        return Ok(pending(id).await);
    }
    match tokio::time::timeout(timeout, turn.outcome()).await {
        Err(_) => {
            turn.polled()?;
            Ok(pending(id).await)
        }
        Ok(outcome) => Ok(answer(outcome, id, &turn)),
    }
}

/// The answer to a question whose turn has ended.
pub(crate) fn answer(outcome: Result<TurnOutcome, ErrorBody>, id: String, turn: &TurnStream) -> Response {
    let (status, body) = match outcome {
        Ok(outcome) => (StatusCode::OK, json!(SubmitAnswer::of(outcome, id))),
        Err(error) => (super::status_of(error.code), json!({ "error": error })),
    };
    delivery::whole((status, Json(body)).into_response(), turn.receipt())
}

/// The id of a new session. A repeated request without a session finds the one that it made before.
fn new_session(client: &HttpClient, repeat_key: Option<&str>) -> String {
    let digits = match repeat_key {
        None => Uuid::new_v4().simple().to_string(),
        Some(key) => protocol::digest::hex(&Sha256::digest(format!("{:?} {key}", client.key))),
    };
    format!("api-{}", &digits[..8])
}

impl SubmitAnswer {
    fn of(outcome: TurnOutcome, id: String) -> Self {
        let TurnOutcome { answer, termination, truncated, session, model, usage, .. } = outcome;
        Self { session, id, answer, termination: termination.to_owned(), truncated, model, usage }
    }
}

async fn follow(
    State(state): Api,
    Extension(client): Client,
    ApiPath(session): ApiPath<String>,
    ApiQuery(query): ApiQuery<StreamQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let after = headers.get("last-event-id").map(|id| id.to_str().unwrap_or_default().parse::<EventId>());
    let after = after.transpose().map_err(|error| {
        ErrorBody::new(Code::InvalidInput, error.to_string())
            .hint("leave `Last-Event-ID` out to begin with what happens next")
    })?;
    let end = match query.until.as_deref() {
        None => StreamEnd::Never,
        Some("turn") => StreamEnd::WithTurn,
        Some(_) => {
            return Err(ErrorBody::new(Code::InvalidInput, "`until` is not known")
                .hint("write until=turn, or leave it out")
                .into());
        }
    };
    let asker = client.asker("api", session.clone());
    let (turn, end) = match query.question {
        None if end == StreamEnd::WithTurn && after.is_none() => {
            (state.service.follow_turn(&session, &asker).await?, end)
        }
        None => (state.service.follow(&session, &asker, after).await?, end),
        Some(question) => {
            (state.service.follow_question(&session, &asker, question, after).await?, StreamEnd::WithTurn)
        }
    };
    let may_listen = move || client.bearer.as_ref().is_none_or(|bearer| state.keys.verify(bearer.expose()).is_some());
    Ok(stream::response(turn, end, may_listen))
}

async fn waiting(State(state): Api, Extension(client): Client) -> Result<Json<GateList>, ApiError> {
    let bearer = bearer(&client)?;
    Ok(Json(state.page.waiting(bearer).await.map_err(page_error)?))
}

async fn waiting_task(
    State(state): Api,
    Extension(client): Client,
    ApiPath(id): ApiPath<String>,
) -> Result<Json<Gate>, ApiError> {
    let id = task_id(&id)?;
    Ok(Json(state.page.waiting_task(bearer(&client)?, id).await.map_err(page_error)?))
}

async fn decide(
    State(state): Api,
    Extension(client): Client,
    ApiPath(id): ApiPath<String>,
    body: Bytes,
) -> Result<Json<DecisionAnswer>, ApiError> {
    let (id, decision) = (task_id(&id)?, parse::<GateDecision>(&body)?);
    let decided = state.page.decide(bearer(&client)?, id, decision).await.map_err(page_error)?;
    Ok(Json(DecisionAnswer { id: id.to_string(), state: decided.to_string() }))
}

async fn sessions(State(state): Api, Extension(client): Client) -> Json<SessionList> {
    Json(SessionList { sessions: state.service.sessions(&client.asker("api", String::new())).await })
}

async fn session_state(
    State(state): Api,
    Extension(client): Client,
    ApiPath(session): ApiPath<String>,
) -> Result<Response, ApiError> {
    let (session_state, receipt) = state.service.state(&session, &client.asker("api", session.clone())).await?;
    Ok(delivery::whole(Json(session_state).into_response(), receipt))
}

async fn delete_session(
    State(state): Api,
    Extension(client): Client,
    ApiPath(session): ApiPath<String>,
    ApiQuery(query): ApiQuery<TasksQuery>,
) -> Result<Json<SessionChange>, ApiError> {
    let asker = client.asker("api", session.clone());
    let session = state.service.delete(&session, &asker, query.tasks).await?;
    Ok(Json(SessionChange { session, state: "deleted" }))
}

async fn reset_session(
    State(state): Api,
    Extension(client): Client,
    ApiPath(session): ApiPath<String>,
) -> Result<Json<SessionChange>, ApiError> {
    let session = state.service.reset(&session, &client.asker("api", session.clone())).await?;
    Ok(Json(SessionChange { session, state: "reset" }))
}

async fn cancel_session(
    State(state): Api,
    Extension(client): Client,
    ApiPath(session): ApiPath<String>,
    ApiQuery(query): ApiQuery<TasksQuery>,
) -> Result<Json<SessionChange>, ApiError> {
    let asker = client.asker("api", session.clone());
    let (session, was_busy) = state.service.cancel(&session, &asker, query.tasks).await?;
    Ok(Json(SessionChange { session, state: if was_busy { "stopped" } else { "idle" } }))
}

pub(super) fn bearer(client: &HttpClient) -> Result<&str, ApiError> {
    client.bearer.as_ref().map(super::Bearer::expose).ok_or_else(|| {
        ErrorBody::new(
            Code::NeedsScope,
            "only an API key with the scope `decide` may see and decide what waits for a human",
        )
        .hint("decide on the page: agent-magic-tool executor page")
        .into()
    })
}

pub(super) fn page_error(error: PageApiError) -> ApiError {
    let status = StatusCode::from_u16(error.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    ApiError(status, ErrorBody::new(error.code, error.message))
}

fn task_id(word: &str) -> Result<TaskId, ApiError> {
    word.parse().map_err(|_| {
        ErrorBody::new(Code::InvalidInput, format!("`{word}` is not the id of a task"))
            .hint("take it from the event `gate`, or from /api/v1/gates")
            .into()
    })
}

fn seconds(name: &str, value: Option<f64>) -> Result<Option<Duration>, ApiError> {
    let duration = value.map(Duration::try_from_secs_f64).transpose();
    duration.map_err(|error| {
        ErrorBody::new(Code::InvalidInput, format!("`{name}` is not a time: {error}"))
            .hint("write a number of seconds")
            .into()
    })
}

/// A body of JSON, without duplicate keys.
fn parse<T: DeserializeOwned>(body: &Bytes) -> Result<T, ApiError> {
    let invalid = |code, reason: &str| {
        ErrorBody::new(code, format!("the body is not what this path takes: {reason}"))
            .hint("the description of all paths: GET /openapi.json")
    };
    let value: Value = protocol::json::parse(body).map_err(|error| invalid(Code::InvalidJson, &error.to_string()))?;
    Ok(json_input::read(value).map_err(|reason| invalid(Code::InvalidInput, &reason))?)
}

fn unknown_path(path: &str) -> Response {
    const OF_OPENAI: [&str; 4] = ["/chat/completions", "/responses", "/completions", "/models"];
    let hint = if OF_OPENAI.iter().any(|end| path.ends_with(end)) {
        "clients of OpenAI's protocol need a base URL that ends with `/v1`, like http://127.0.0.1:8790/v1"
    } else {
        "the description of all paths: GET /openapi.json"
    };
    let error = ErrorBody::new(Code::NotFound, format!("there is no path `{path}`")).hint(hint);
    ApiError(StatusCode::NOT_FOUND, error).into_response()
}

fn wrong_method() -> Response {
    let error = json!({"error": ErrorBody::new(Code::BadRequest, "this path does not take that method")
        .hint("the description of all paths: GET /openapi.json")});
    (StatusCode::METHOD_NOT_ALLOWED, Json(error)).into_response()
}
