//! The gate: checks every request before it reaches a route.
//!
//! Any page in the same browser and any program of any user can send requests to a page on loopback. So a request
//! counts only with what our own page alone can send: exactly our host, exactly our origin, the session's cookie, and
//! for a POST the session's token. A GET changes nothing.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::{self, Body};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use protocol::code::Code;
use serde_json::json;

use super::Page;

/// The largest request body: a task's input with some room around it.
pub(super) const MAX_BODY_BYTES: usize = 2 << 20;
pub(super) const COOKIE: &str = "agent-magic-tool-session";
const TOKEN: HeaderName = HeaderName::from_static("x-page-token");
/// How long to wait for the whole body. Our script has it ready and sends it over loopback.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Headers on every response.
const HEADERS: [(HeaderName, &str); 9] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; \
         base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    ),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("permissions-policy"), "camera=(), microphone=(), geolocation=()"),
    (header::X_DNS_PREFETCH_CONTROL, "off"),
];

/// The name of the session that a request belongs to.
#[derive(Debug, Clone)]
pub(super) struct SessionName(pub(super) String);

/// The middleware around all routes.
pub(super) async fn check_request(State(page): State<Arc<Page>>, mut request: Request, next: Next) -> Response {
    let request = match check(&page, &mut request) {
        Ok(()) => with_whole_body(request).await,
        Err(refusal) => Err(refusal),
    };
    let mut response = match request {
        Ok(request) => {
            let session = request.extensions().get::<SessionName>().cloned();
            let mut response = next.run(request).await;
            // The server keeps connections with a session open longer.
            if let Some(session) = session {
                response.extensions_mut().insert(session);
            }
            response
        }
        Err(refusal) => refusal,
    };
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Reads the whole body; refuses one that is too large or too slow.
async fn with_whole_body(request: Request) -> Result<Request, Response> {
    let (head, stream) = request.into_parts();
    match tokio::time::timeout(BODY_TIMEOUT, body::to_bytes(stream, MAX_BODY_BYTES)).await {
        Ok(Ok(bytes)) => Ok(Request::from_parts(head, Body::from(bytes))),
        // Also if the connection was closed early; then nothing reads this answer.
        Ok(Err(_)) => Err(too_large()),
        Err(_) => Err(refuse(StatusCode::REQUEST_TIMEOUT, Code::TimedOut, "the request took too long")),
    }
}

fn check(page: &Page, request: &mut Request) -> Result<(), Response> {
    check_host(page, request)?;
    let length = single(request.headers(), &header::CONTENT_LENGTH).and_then(|length| length.parse::<usize>().ok());
    if length.is_some_and(|length| length > MAX_BODY_BYTES) {
        return Err(too_large());
    }
    let path = request.uri().path().to_owned();
    let idle = page.runner_context().config.page.idle.get();
    let session = cookie(request.headers()).and_then(|cookie| page.sessions.session_of(&cookie, idle));
    let is_login = path == "/login";
    if request.method() == Method::GET || request.method() == Method::HEAD {
        // Only our own script fetches streams and fragments.
        let site = single(request.headers(), &SEC_FETCH_SITE);
        if is_script_only(&path) && site.is_some_and(|site| site != "same-origin") {
            return Err(refuse(StatusCode::FORBIDDEN, Code::ForeignRequest, "only the page itself may request this"));
        }
    } else if request.method() == Method::POST {
        check_origin(page, request.headers())?;
        if !is_login && let Some(session) = &session {
            let token = single(request.headers(), &TOKEN).unwrap_or_default();
            if !page.sessions.is_token(session, token) {
                return Err(refuse(
                    StatusCode::FORBIDDEN,
                    Code::ProofRequired,
                    "the session token is missing or wrong",
                ));
            }
        }
    } else {
        return Err(refuse(StatusCode::METHOD_NOT_ALLOWED, Code::BadRequest, "only GET, HEAD and POST are allowed"));
    }
    match session {
        Some(session) => {
            request.extensions_mut().insert(SessionName(session));
            Ok(())
        }
        None if is_login || is_public(&path) => Ok(()),
        None if request.method() == Method::POST || is_script_only(&path) => Err(refuse(
            StatusCode::UNAUTHORIZED,
            Code::NotSignedIn,
            "not signed in; open the page with `agent-magic-tool executor page`",
        )),
        None => Err(page.login()),
    }
}

/// Whether a path answers our script rather than showing a page.
fn is_script_only(path: &str) -> bool {
    path == "/events" || path.starts_with("/card/") || path.starts_with("/question/")
}

/// Whether a path is a static file, which needs no session.
fn is_public(path: &str) -> bool {
    matches!(path, "/page.css" | "/page.js" | "/icon.svg" | "/favicon.ico") || path.starts_with("/page/")
}

/// Requires exactly our host name, which stops DNS rebinding.
fn check_host(page: &Page, request: &Request) -> Result<(), Response> {
    let misdirected =
        || refuse(StatusCode::MISDIRECTED_REQUEST, Code::ForeignRequest, "this is not the host name of the page");
    if request.version() != Version::HTTP_11 || request.uri().authority().is_some() {
        return Err(refuse(StatusCode::BAD_REQUEST, Code::BadRequest, "only HTTP/1.1 with a path is accepted"));
    }
    // A request with two lengths can be read in two ways. Hyper may show only this header of the two, and our own script
    // never sends it.
    let headers = request.headers();
    if headers.contains_key(header::TRANSFER_ENCODING) {
        return Err(refuse(StatusCode::BAD_REQUEST, Code::BadRequest, "a body needs a Content-Length header"));
    }
    match single(headers, &header::HOST) {
        Some(host) if host == format!("{}:{}", page.context.site.host, page.context.site.port) => Ok(()),
        _ => Err(misdirected()),
    }
}

/// Requires that our own page sent the request, as JSON.
fn check_origin(page: &Page, headers: &HeaderMap) -> Result<(), Response> {
    if single(headers, &header::ORIGIN) != Some(page.context.site.origin().as_str()) {
        return Err(refuse(StatusCode::FORBIDDEN, Code::ForeignRequest, "only the page itself may request this"));
    }
    if single(headers, &SEC_FETCH_SITE).is_some_and(|site| site != "same-origin") {
        return Err(refuse(StatusCode::FORBIDDEN, Code::ForeignRequest, "only the page itself may request this"));
    }
    if single(headers, &header::CONTENT_TYPE) != Some("application/json") {
        return Err(refuse(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Code::BadRequest,
            "the content type must be application/json",
        ));
    }
    Ok(())
}

/// The value of a header that occurs exactly once.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// The session cookie; `None` if it occurs twice, since one of the two was planted.
fn cookie(headers: &HeaderMap) -> Option<String> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let ours: Vec<_> = pairs.filter(|(name, _)| *name == COOKIE).map(|(_, value)| value.to_owned()).collect();
    match ours.as_slice() {
        [one] => Some(one.clone()),
        _ => None,
    }
}

fn too_large() -> Response {
    refuse(StatusCode::PAYLOAD_TOO_LARGE, Code::RequestTooLarge, "request body too large")
}

/// An error response that the page's script can read.
pub(super) fn refuse(status: StatusCode, code: Code, message: &str) -> Response {
    (status, Json(json!({"error": {"code": code, "message": message}}))).into_response()
}
