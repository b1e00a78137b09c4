//! The page's view of the API keys, and what lets one decide or no longer.
//!
//! Decides nothing: the dispatcher owns the scopes.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use dispatcher::HumanCommand;
use dispatcher::decide_scopes::ScopeChange;
use ground::base::webauthn::Assertion;
use ground::config::api_keys::ClientKey;
use ground::task::confirmation::Assurance;
use ground::task::decide_scope::{DecideScope, ScopeStatus};
use jiff::Timestamp;
use protocol::clock;
use protocol::code::Code;
use protocol::error::chain;
use serde::{Deserialize, Serialize};
use serde_json::json;
use store::sqlite::records::RecordReader;

use super::Page;
use super::actions::{ActionResult, not_decided, parse_body, stopping};
use super::door::{SessionName, refuse};
use super::views::ViewResult;
use super::wording::{DisplayTime, span};

/// One key, or a scope whose key was removed.
#[derive(Debug, Serialize)]
struct ApiKeyRow {
    name: String,
    id: Option<String>,
    hash: String,
    /// What it may do, apart from deciding.
    scopes: String,
    created: Option<DisplayTime>,
    /// Like `expires in 3 d`; empty if it does not.
    expiry: String,
    may_decide: bool,
    /// What is said of the scope `decide`.
    words: &'static str,
    can_give: bool,
    can_take: bool,
    decisions: u32,
    last_decision: Option<DisplayTime>,
}

pub(super) async fn view(State(page): State<Arc<Page>>) -> ViewResult {
    let now = clock::now();
    let (keys, problem) = match page.context.api_keys.list() {
        Ok(keys) => (keys, None),
        Err(error) => (Vec::new(), Some(chain(&error))),
    };
    let scopes = page.read(RecordReader::decide_scopes)?;
    let status = |scope: &DecideScope| page.scope_status(scope);
    let mut rows: Vec<_> = keys
        .iter()
        .map(|key| {
            let scope = scopes.iter().find(|scope| scope.key.hash == key.hash && scope.key.name == key.name);
            row(key, scope.map(|scope| (scope, status(scope))), now)
        })
        .collect();
    // A key that is removed does not decide; its scope could come back with a copy of the file.
    let is_left = |scope: &&DecideScope| {
        status(scope) == ScopeStatus::Live
            && !keys.iter().any(|key| key.hash == scope.key.hash && key.name == scope.key.name)
    };
    rows.extend(scopes.iter().filter(is_left).map(|scope| removed(scope, now)));
    let view = json!({"page": page.frame("API keys", "api-keys")?, "rows": rows, "problem": problem,
        "has_passkey": page.context.approver.assurance() >= Assurance::Touch});
    Ok(page.show("api-keys.html", &view))
}

fn row(key: &ClientKey, scope: Option<(&DecideScope, ScopeStatus)>, now: Timestamp) -> ApiKeyRow {
    let (status, is_valid) = (scope.map(|(_, status)| status), key.is_valid_at(now));
    let is_changed = scope.is_some_and(|(scope, _)| scope.expires_at != key.expires_at);
    let may_decide = is_valid && !is_changed && status == Some(ScopeStatus::Live);
    let words = match status {
        _ if !is_valid => "It has expired.",
        Some(ScopeStatus::Live) if is_changed => "It may not decide: its end was changed since that was given.",
        Some(ScopeStatus::Live) => "It may decide in your place.",
        Some(ScopeStatus::Unproved) => "It may not decide: your keys do not stand behind it.",
        Some(ScopeStatus::Expired) => "It may not decide: that was given until an earlier end of the key.",
        Some(ScopeStatus::TakenBack) | None => "It may not decide.",
    };
    let scopes = [("ask", key.scopes.ask), ("read", key.scopes.read)];
    let scopes: Vec<_> = scopes.into_iter().filter(|(_, has)| *has).map(|(scope, _)| scope).collect();
    ApiKeyRow {
        name: key.name.clone(),
        id: Some(key.id.clone()),
        hash: key.hash.clone(),
        scopes: scopes.join(" and "),
        created: Some(DisplayTime::of(key.created_at, now)),
        expiry: key
            .expires_at
            .filter(|_| is_valid)
            .map_or_else(String::new, |at| format!("expires in {}", span(at.duration_since(now).as_secs()))),
        may_decide,
        words,
        can_give: is_valid && !may_decide,
        can_take: status == Some(ScopeStatus::Live),
        decisions: scope.map_or(0, |(scope, _)| scope.decisions),
        last_decision: scope.and_then(|(scope, _)| Some(DisplayTime::of(scope.last_decision?, now))),
    }
}

fn removed(scope: &DecideScope, now: Timestamp) -> ApiKeyRow {
    ApiKeyRow {
        name: scope.key.name.clone(),
        id: None,
        hash: scope.key.hash.clone(),
        scopes: String::new(),
        created: None,
        expiry: String::new(),
        may_decide: false,
        words: "This key was removed, so it decides nothing. It could again if its entry in the file of keys came back.",
        can_give: false,
        can_take: true,
        decisions: scope.decisions,
        last_decision: scope.last_decision.map(|at| DisplayTime::of(at, now)),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GiveBody {
    /// As they were shown.
    name: String,
    hash: String,
    #[serde(default)]
    touch: Option<Assertion>,
}

/// Lets a key decide.
pub(super) async fn give(
    State(page): State<Arc<Page>>,
    Extension(session): Extension<SessionName>,
    body: Bytes,
) -> ActionResult {
    let GiveBody { name, hash, touch } = parse_body(&body)?;
    let keys = page.context.api_keys.list().unwrap_or_default();
    let found = keys.into_iter().find(|key| key.name == name && key.hash == hash && key.is_valid_at(clock::now()));
    let Some(key) = found else {
        let message = "this API key is no longer what was shown; look at it again";
        return Err(refuse(StatusCode::CONFLICT, Code::Stale, message));
    };
    let (key, expires_at) = (key.reference(), key.expires_at);
    send(&page, ScopeChange::Give { key, expires_at, session: session.0, touch }).await?;
    Ok(Json(json!({"may_decide": true})).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TakeBody {
    hash: String,
}

/// No longer lets a key decide.
pub(super) async fn take(State(page): State<Arc<Page>>, body: Bytes) -> ActionResult {
    let TakeBody { hash } = parse_body(&body)?;
    send(&page, ScopeChange::TakeBack { hash }).await?;
    Ok(Json(json!({"may_decide": false})).into_response())
}

async fn send(page: &Page, change: ScopeChange) -> Result<(), Response> {
    match page.send(HumanCommand::ChangeScope(change)).await {
        None => Err(stopping()),
        Some(Ok(_)) => Ok(()),
        Some(Err(error)) => Err(not_decided(page, error)),
    }
}
