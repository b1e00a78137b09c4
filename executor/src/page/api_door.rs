//! The door of the API keys: how `serve` asks the page, without a browser and without a session.
//!
//! A browser cannot pass it: it sends headers of its own, and each of them is refused. Neither can a proxy that tells where
//! a request came from. So only the headers of a plain client are allowed, each once; the key is the one credential.
//! Who may not decide is told the same about every path but its own standing.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use ground::config::api_keys::ClientKey;
use ground::task::confirmation::Assurance;
use ground::task::decide_scope::{DecideScope, ScopeJudge, ScopeStatus};
use protocol::clock;
use protocol::code::Code;
use store::StoreError;
use store::sqlite::records::RecordReader;

use super::Page;
use super::actions::no_scope;
use super::door::{add_headers, check_host, refuse, single, whole};
use super::views::ViewError;

/// The path at which any valid key learns what it is.
const STANDING: &str = "/api/key";
/// How many wrong keys are answered as such in [`WRONG_KEY_WINDOW`].
const MAX_WRONG_KEYS: usize = 20;
const WRONG_KEY_WINDOW: Duration = Duration::from_mins(1);
/// What a plain client sends.
const ALLOWED: [HeaderName; 8] = [
    header::HOST,
    header::AUTHORIZATION,
    header::USER_AGENT,
    header::CONNECTION,
    header::ACCEPT,
    header::ACCEPT_ENCODING,
    header::CONTENT_TYPE,
    header::CONTENT_LENGTH,
];

/// When wrong keys came, the oldest first. A valid key is never refused for them: another program must not be able to
/// keep it out.
#[derive(Debug, Default)]
pub(super) struct WrongKeys(Mutex<VecDeque<Instant>>);

impl WrongKeys {
    /// Counts a wrong key; returns whether there were too many.
    fn count(&self, now: Instant) -> bool {
        let mut times = self.0.lock().expect("no code panics while it holds the lock");
        while times.front().is_some_and(|at| now.duration_since(*at) >= WRONG_KEY_WINDOW) {
            times.pop_front();
        }
        let is_over = times.len() >= MAX_WRONG_KEYS;
        if !is_over {
            times.push_back(now);
        }
        is_over
    }
}

/// The middleware around the routes of API keys.
pub(super) async fn check_request(State(page): State<Arc<Page>>, request: Request, next: Next) -> Response {
    let mut response = match admit(&page, request).await {
        Ok(request) => next.run(request).await,
        Err(refusal) => refusal,
    };
    add_headers(&mut response);
    response
}

/// Returns a request that counts, with its whole body and its key.
async fn admit(page: &Page, request: Request) -> Result<Request, Response> {
    check_host(page, &request)?;
    check_headers(&request)?;
    let key = verified_key(page, request.headers())?;
    let may_decide = page.may_decide(&key).map_err(|error| ViewError::from(error).into_response())?;
    if !may_decide && request.uri().path() != STANDING {
        return Err(no_scope());
    }
    let mut request = whole(request).await?.map(Body::from);
    request.extensions_mut().insert(key);
    Ok(request)
}

fn check_headers(request: &Request) -> Result<(), Response> {
    let (headers, is_post) = (request.headers(), request.method() == Method::POST);
    if let Some(name) = headers.keys().find(|name| !ALLOWED.contains(name)) {
        let message = format!("a client of this door sends no `{name}`; a browser and a proxy have no access to it");
        return Err(refuse(StatusCode::FORBIDDEN, Code::ForeignRequest, &message));
    }
    if let Some(name) = headers.keys().find(|name| single(headers, name).is_none()) {
        let message = format!("the header `{name}` must occur once");
        return Err(refuse(StatusCode::BAD_REQUEST, Code::BadRequest, &message));
    }
    if !is_post && request.method() != Method::GET {
        return Err(refuse(StatusCode::METHOD_NOT_ALLOWED, Code::BadRequest, "only GET and POST are allowed"));
    }
    if request.uri().query().is_some() {
        return Err(refuse(StatusCode::BAD_REQUEST, Code::BadRequest, "a request of this door has no query"));
    }
    if is_post && single(headers, &header::CONTENT_TYPE) != Some("application/json") {
        let message = "the content type must be application/json";
        return Err(refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, Code::BadRequest, message));
    }
    if !is_post && single(headers, &header::CONTENT_LENGTH).is_some_and(|length| length != "0") {
        return Err(refuse(StatusCode::BAD_REQUEST, Code::BadRequest, "a GET has no body"));
    }
    Ok(())
}

/// The key that the request shows. The answer to any wrong one is the same.
fn verified_key(page: &Page, headers: &HeaderMap) -> Result<ClientKey, Response> {
    let shown = single(headers, &header::AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
    if let Some(key) = shown.and_then(|shown| page.context.api_keys.verify(shown)) {
        return Ok(key);
    }
    if page.wrong_keys.count(Instant::now()) {
        let message = "too many wrong API keys; try again in a minute";
        return Err(refuse(StatusCode::TOO_MANY_REQUESTS, Code::RateLimited, message));
    }
    tracing::warn!("a request with a wrong API key");
    let message = "show a valid API key, as `Authorization: Bearer amt_…`; this one is unknown, revoked or expired";
    let mut response = refuse(StatusCode::UNAUTHORIZED, Code::BadApiKey, message);
    response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    Err(response)
}

impl Page {
    /// Whether this key may decide now. The dispatcher asks itself again at each decision.
    pub(super) fn may_decide(&self, key: &ClientKey) -> Result<bool, StoreError> {
        let (expires_at, key) = (key.expires_at, key.reference());
        let scopes = self.read(RecordReader::decide_scopes)?;
        // The human gave it to the entry that was shown.
        let scope = scopes.iter().find(|scope| scope.key == key && scope.expires_at == expires_at);
        Ok(scope.is_some_and(|scope| self.scope_status(scope) == ScopeStatus::Live))
    }

    /// Whether a scope of the record holds.
    pub(super) fn scope_status(&self, scope: &DecideScope) -> ScopeStatus {
        let keys = self.keys().keys;
        scope.status(ScopeJudge {
            instance: &self.context.site.instance,
            keys: &keys,
            is_touch_demanded: self.context.approver.assurance() >= Assurance::Touch,
            now: clock::now(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_keys_are_counted_in_a_window() {
        let (wrong, start) = (WrongKeys::default(), Instant::now());
        for _ in 0..MAX_WRONG_KEYS {
            assert!(!wrong.count(start));
        }
        assert!(wrong.count(start) && wrong.count(start + WRONG_KEY_WINDOW / 2));
        assert!(!wrong.count(start + WRONG_KEY_WINDOW), "the first ones are too long ago");
    }
}
