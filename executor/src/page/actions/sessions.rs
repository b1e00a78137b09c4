//! Signing in and out, and the challenge before each request.

use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use protocol::code::Code;
use serde::Deserialize;
use serde_json::json;

use super::{ActionResult, CurrentSession, PageState, parse_body};
use crate::page::door::refuse;
use crate::page::session::BrowserKind;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LoginBody {
    /// The secret of a link.
    secret: String,
}

/// Whatever an earlier page of this origin has stored in the browser, a service worker too, ends at a login and at the
/// end of a session.
const CLEAR_STORAGE: (HeaderName, &str) = (HeaderName::from_static("clear-site-data"), "\"storage\"");

pub(in crate::page) async fn login(State(page): PageState, headers: HeaderMap, body: Bytes) -> ActionResult {
    let LoginBody { secret } = parse_body(&body)?;
    let user_agent = headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let Some(secrets) = page.context.sessions.log_in(&secret, BrowserKind::of(user_agent)) else {
        return Err(refuse(StatusCode::FORBIDDEN, Code::UsedLink, "this link was already used, or is too old"));
    };
    let cookie = format!("{}={}; Path=/; HttpOnly; SameSite=Strict", page.context.site.cookie_name(), secrets.cookie);
    Ok(([(header::SET_COOKIE, cookie.as_str()), CLEAR_STORAGE], Json(json!({"key": secrets.key.to_hex()})))
        .into_response())
}

/// Answers a browser's nonce, so that it knows whom it sends its next request to.
pub(in crate::page) async fn challenge(
    State(page): PageState,
    Extension(session): CurrentSession,
    Query(ChallengeQuery { nonce }): Query<ChallengeQuery>,
) -> ActionResult {
    let answer = page.context.sessions.challenge(&session.0, &nonce);
    answer.map(|answer| Json(answer).into_response()).ok_or_else(session_is_over)
}

#[derive(Deserialize)]
pub(in crate::page) struct ChallengeQuery {
    nonce: String,
}

fn session_is_over() -> Response {
    refuse(StatusCode::UNAUTHORIZED, Code::NotSignedIn, "this session has ended")
}

pub(in crate::page) async fn logout(State(page): PageState, Extension(session): CurrentSession) -> Response {
    page.context.sessions.end(&session.0);
    page.presence_changed();
    let expired = format!("{}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0", page.context.site.cookie_name());
    ([(header::SET_COOKIE, expired.as_str()), CLEAR_STORAGE], StatusCode::NO_CONTENT).into_response()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EndSessionBody {
    name: String,
}

/// Signs out another browser.
pub(in crate::page) async fn end_session(State(page): PageState, body: Bytes) -> ActionResult {
    let EndSessionBody { name } = parse_body(&body)?;
    if !page.context.sessions.end(&name) {
        return Err(refuse(StatusCode::NOT_FOUND, Code::NotFound, "this session has already ended"));
    }
    page.presence_changed();
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Signs out every browser but this one.
pub(in crate::page) async fn end_other_sessions(
    State(page): PageState,
    Extension(session): CurrentSession,
) -> Response {
    let ended = page.context.sessions.end_others(&session.0);
    page.presence_changed();
    Json(json!({"ended": ended})).into_response()
}
