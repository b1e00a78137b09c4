//! The gate: every request passes it, and what it cannot vouch for goes no further.
//!
//! A page on loopback is reachable by any other page in the same browser and by any program of any user,
//! so nothing counts but what only our own page can show: exactly our host, exactly our origin, a cookie,
//! and the token that our page alone holds. Reading changes nothing.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::{self, Body};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use serde_json::json;

use super::Page;

/// The largest body of a request: an input, and what comes with it.
pub(super) const MAX_BODY_BYTES: usize = 2 << 20;
pub(super) const COOKIE: &str = "agent-magic-tool-session";
const TOKEN: HeaderName = HeaderName::from_static("x-page-token");
/// A body comes over loopback from a script that has all of it.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Of every answer, whatever it says.
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

/// Who asks: the name of the session.
#[derive(Debug, Clone)]
pub(super) struct Visitor(pub(super) String);

pub(super) async fn pass(State(page): State<Arc<Page>>, mut request: Request, next: Next) -> Response {
    let request = match check(&page, &mut request) {
        Ok(()) => whole(request).await,
        Err(refusal) => Err(refusal),
    };
    let mut response = match request {
        Ok(request) => {
            let visitor = request.extensions().get::<Visitor>().cloned();
            let mut response = next.run(request).await;
            // For the server, which keeps a place for whoever has a session.
            if let Some(visitor) = visitor {
                response.extensions_mut().insert(visitor);
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

/// The request with all of its body, which is neither too large nor too slow.
async fn whole(request: Request) -> Result<Request, Response> {
    let (head, stream) = request.into_parts();
    match tokio::time::timeout(BODY_TIMEOUT, body::to_bytes(stream, MAX_BODY_BYTES)).await {
        Ok(Ok(bytes)) => Ok(Request::from_parts(head, Body::from(bytes))),
        // Or it ended too early, and nobody is there to read this.
        Ok(Err(_)) => Err(too_large()),
        Err(_) => Err(refuse(StatusCode::REQUEST_TIMEOUT, "too-slow", "the request took too long")),
    }
}

fn check(page: &Page, request: &mut Request) -> Result<(), Response> {
    is_for_us(page, request)?;
    let length = single(request.headers(), &header::CONTENT_LENGTH).and_then(|length| length.parse::<usize>().ok());
    if length.is_some_and(|length| length > MAX_BODY_BYTES) {
        return Err(too_large());
    }
    let path = request.uri().path().to_owned();
    let visitor = cookie(request.headers()).and_then(|cookie| page.sessions.of_cookie(&cookie));
    let is_login = path == "/login";
    if request.method() == Method::GET || request.method() == Method::HEAD {
        // Streams and fragments are fetched by our own page only.
        let site = single(request.headers(), &SEC_FETCH_SITE);
        let is_inner = is_inner(&path);
        if is_inner && site.is_some_and(|site| site != "same-origin") {
            return Err(refuse(StatusCode::FORBIDDEN, "cross-site", "this is for the page itself"));
        }
    } else if request.method() == Method::POST {
        is_from_us(page, request.headers())?;
        if !is_login && let Some(visitor) = &visitor {
            let token = single(request.headers(), &TOKEN).unwrap_or_default();
            if !page.sessions.is_token(visitor, token) {
                return Err(refuse(StatusCode::FORBIDDEN, "proof-required", "the token of this session is wanting"));
            }
        }
    } else {
        return Err(refuse(StatusCode::METHOD_NOT_ALLOWED, "bad-method", "only GET, HEAD and POST"));
    }
    match visitor {
        Some(visitor) => {
            request.extensions_mut().insert(Visitor(visitor));
            Ok(())
        }
        None if is_login || is_public(&path) => Ok(()),
        None if request.method() == Method::POST || is_inner(&path) => Err(refuse(
            StatusCode::UNAUTHORIZED,
            "no-session",
            "a fresh link opens the page: agent-magic-tool executor page",
        )),
        None => Err(page.login()),
    }
}

/// What is no page of its own.
fn is_inner(path: &str) -> bool {
    path == "/events" || path.starts_with("/card/") || path.starts_with("/question/")
}

/// Files that are the same for everybody.
fn is_public(path: &str) -> bool {
    matches!(path, "/page.css" | "/page.js" | "/icon.svg" | "/favicon.ico") || path.starts_with("/page/")
}

/// Exactly our name: a page elsewhere that had its name point here is refused.
fn is_for_us(page: &Page, request: &Request) -> Result<(), Response> {
    let misdirected = || refuse(StatusCode::MISDIRECTED_REQUEST, "wrong-host", "this is not the name of the page");
    if request.version() != Version::HTTP_11 || request.uri().authority().is_some() {
        return Err(refuse(StatusCode::BAD_REQUEST, "bad-request", "HTTP/1.1 with a path is spoken here"));
    }
    // Two lengths of one body are read differently by different readers; of the two hyper may show us only this
    // one, and our own script never sends it.
    let headers = request.headers();
    if headers.contains_key(header::TRANSFER_ENCODING) {
        return Err(refuse(StatusCode::BAD_REQUEST, "bad-request", "a body has its length before it"));
    }
    match single(headers, &header::HOST) {
        Some(host) if host == format!("{}:{}", page.context.site.host, page.context.site.port) => Ok(()),
        _ => Err(misdirected()),
    }
}

fn is_from_us(page: &Page, headers: &HeaderMap) -> Result<(), Response> {
    if single(headers, &header::ORIGIN) != Some(page.context.site.origin().as_str()) {
        return Err(refuse(StatusCode::FORBIDDEN, "wrong-origin", "only the page itself may ask for this"));
    }
    if single(headers, &SEC_FETCH_SITE).is_some_and(|site| site != "same-origin") {
        return Err(refuse(StatusCode::FORBIDDEN, "cross-site", "only the page itself may ask for this"));
    }
    if single(headers, &header::CONTENT_TYPE) != Some("application/json") {
        return Err(refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "bad-content-type", "application/json is spoken here"));
    }
    Ok(())
}

/// The value of a header that stands exactly once.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

fn cookie(headers: &HeaderMap) -> Option<String> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let ours: Vec<_> = pairs.filter(|(name, _)| *name == COOKIE).map(|(_, value)| value.to_owned()).collect();
    // Of two, one was put there by somebody else.
    match ours.as_slice() {
        [one] => Some(one.clone()),
        _ => None,
    }
}

fn too_large() -> Response {
    refuse(StatusCode::PAYLOAD_TOO_LARGE, "request-too-large", "no request is so large")
}

/// An error as the page's script reads it.
pub(super) fn refuse(status: StatusCode, code: &str, message: &str) -> Response {
    (status, Json(json!({"error": {"code": code, "message": message}}))).into_response()
}
