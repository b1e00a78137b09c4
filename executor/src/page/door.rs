//! The door: checks every request of a browser before it reaches a route.
//!
//! Any page in the same browser can send requests to a page on loopback. So a request counts only with what our own
//! page alone can send: exactly our host, exactly our origin, the session's cookie, and a proof of the session's key
//! (`proof.rs`). Without the proof, a browser with the cookie gets an empty page, whose script asks again with it. A
//! GET changes nothing. What shows an API key instead has a door of its own (`api_door.rs`).

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::{self, Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use ground::page_client::proof::{PROOF, ProvenRequest};
use protocol::code::Code;
use serde_json::json;

use super::Page;

/// The largest request body: a task's input with some room around it.
pub(super) const MAX_BODY_BYTES: usize = 2 << 20;
/// The path that answers a browser's nonce.
const CHALLENGE: &str = "/challenge";
/// The event stream; its proof is in the query, since a browser sends no header of ours with it.
const EVENTS: &str = "/events";
/// How long to wait for the whole body. Our script has it ready and sends it over loopback.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");
const SERVICE_WORKER: HeaderName = HeaderName::from_static("service-worker");

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

/// The middleware around all routes but those of API keys.
pub(super) async fn check_request(State(page): State<Arc<Page>>, request: Request, next: Next) -> Response {
    let mut response = match admit(&page, request).await {
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
    add_headers(&mut response);
    response
}

/// Adds what every response has.
pub(super) fn add_headers(response: &mut Response) {
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
}

/// Returns a request that counts, with its whole body and, unless it needs none, its session.
async fn admit(page: &Page, request: Request) -> Result<Request, Response> {
    check_host(page, &request)?;
    check_sender(page, &request)?;
    let path = request.uri().path().to_owned();
    if is_public(&path) || path == "/login" {
        return Ok(whole(request).await?.map(Body::from));
    }
    let idle = page.runner_context().config.page.idle.get();
    let session = cookie(page, request.headers()).and_then(|cookie| page.context.sessions.session_of(&cookie, idle));
    let is_view = request.method() != Method::POST && !is_script_only(&path);
    let session = match session {
        Some(session) => session,
        None if is_view => return Err(page.login()),
        None => {
            return Err(refuse(
                StatusCode::UNAUTHORIZED,
                Code::NotSignedIn,
                "not signed in; open the page with `agent-magic-tool executor page`",
            ));
        }
    };
    let mut request = if path == CHALLENGE {
        request.map(|_| Body::empty())
    } else {
        match proof(&request) {
            None if is_view => return Err(page.opening()),
            None => return Err(unproven()),
            Some(proof) => proven(page, &session, &proof, request).await?,
        }
    };
    request.extensions_mut().insert(SessionName(session));
    Ok(request)
}

/// The proof of a request, if it has one.
fn proof(request: &Request) -> Option<String> {
    if request.uri().path() == EVENTS {
        return request.uri().query()?.strip_prefix("proof=").map(str::to_owned);
    }
    single(request.headers(), &HeaderName::from_static(PROOF)).map(str::to_owned)
}

/// Requires that the session's key proves the request with its whole body.
async fn proven(page: &Page, session: &str, proof: &str, request: Request) -> Result<Request, Response> {
    let request = whole(request).await?;
    let uri = request.uri();
    let target = uri.path_and_query().filter(|_| uri.path() != EVENTS).map_or(uri.path(), |target| target.as_str());
    let given = ProvenRequest { method: request.method().as_str(), target, body: request.body() };
    if page.context.sessions.is_proven(session, given, proof) { Ok(request.map(Body::from)) } else { Err(unproven()) }
}

fn unproven() -> Response {
    refuse(StatusCode::FORBIDDEN, Code::ProofRequired, "the proof of the session's key is missing or wrong")
}

/// Reads the whole body; refuses one that is too large or too slow.
pub(super) async fn whole(request: Request) -> Result<axum::http::Request<Bytes>, Response> {
    let length = single(request.headers(), &header::CONTENT_LENGTH).and_then(|length| length.parse::<usize>().ok());
    if length.is_some_and(|length| length > MAX_BODY_BYTES) {
        return Err(too_large());
    }
    let (head, stream) = request.into_parts();
    match tokio::time::timeout(BODY_TIMEOUT, body::to_bytes(stream, MAX_BODY_BYTES)).await {
        Ok(Ok(bytes)) => Ok(Request::from_parts(head, bytes)),
        // Also if the connection was closed early; then nothing reads this answer.
        Ok(Err(_)) => Err(too_large()),
        Err(_) => Err(refuse(StatusCode::REQUEST_TIMEOUT, Code::TimedOut, "the request took too long")),
    }
}

/// Requires what our own page sends: for a GET that a script sends, and for each POST, that it comes from the page.
fn check_sender(page: &Page, request: &Request) -> Result<(), Response> {
    let headers = request.headers();
    // A service worker would stay in the browser and answer in our place.
    let is_worker = single(headers, &SEC_FETCH_DEST).is_some_and(|dest| dest.ends_with("worker"));
    if is_worker || headers.contains_key(SERVICE_WORKER) {
        return Err(refuse(StatusCode::FORBIDDEN, Code::ForeignRequest, "this page has no workers"));
    }
    if request.method() == Method::POST {
        return check_origin(page, headers);
    }
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return Err(refuse(StatusCode::METHOD_NOT_ALLOWED, Code::BadRequest, "only GET, HEAD and POST are allowed"));
    }
    // Only our own script fetches streams and fragments.
    let site = single(headers, &SEC_FETCH_SITE);
    if is_script_only(request.uri().path()) && site.is_some_and(|site| site != "same-origin") {
        return Err(refuse(StatusCode::FORBIDDEN, Code::ForeignRequest, "only the page itself may request this"));
    }
    Ok(())
}

/// Whether a path answers our script rather than showing a page.
fn is_script_only(path: &str) -> bool {
    [EVENTS, CHALLENGE].contains(&path) || path.starts_with("/card/") || path.starts_with("/question/")
}

/// Whether a path is a static file, which needs no session.
fn is_public(path: &str) -> bool {
    matches!(path, "/page.css" | "/page.js" | "/icon.svg" | "/icon-waiting.svg" | "/favicon.ico")
        || path.starts_with("/page/")
}

/// Requires exactly our host name, which stops DNS rebinding.
pub(super) fn check_host(page: &Page, request: &Request) -> Result<(), Response> {
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
pub(super) fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// The session cookie; `None` if it occurs twice, since one of the two was planted.
fn cookie(page: &Page, headers: &HeaderMap) -> Option<String> {
    let cookie_name = page.context.site.cookie_name();
    // As bytes: other programs on this host may have left cookies that are not ASCII.
    let cookies = headers.get_all(header::COOKIE).iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b';'));
    let ours: Vec<_> = cookies
        .map(<[u8]>::trim_ascii)
        .filter_map(|pair| pair.strip_prefix(cookie_name.as_bytes())?.strip_prefix(b"="))
        .map(String::from_utf8_lossy)
        .collect();
    match ours.as_slice() {
        [one] => Some(one.clone().into_owned()),
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
