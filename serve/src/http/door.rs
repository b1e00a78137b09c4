//! The door: checks every request before it reaches a route.
//!
//! A request counts if it names our host, comes from no foreign web page, and shows an API key. Without a key it counts
//! only from a program of our own user on this machine, as the kernel says, and only if the configuration allows it.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{self, Poll};
use std::time::{Duration, Instant};

use axum::body::{self, Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use ground::config::api_keys::{ClientKey, ends_like_a_key};
use hyper::body::{Frame, SizeHint};
use protocol::code::Code;
use protocol::error::ErrorBody;
use protocol::tool_scope::ToolScope;
use tokio::sync::Semaphore;

use super::error::ApiError;
use super::model_protocol::ModelProtocol;
use super::{Bearer, HistoryKeeper, HttpClient, ServeState};
use crate::limits::ConcurrencyPermit;

/// The largest request body.
const MAX_BODY_BYTES: usize = 4 << 20;
/// How much of all bodies may arrive at once.
const MAX_ARRIVING_KILOBYTES: usize = 128 << 10;
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// What all keys begin with.
const KEY_PREFIX: &str = "amt_";
/// Fewer than a key has behind that.
const MIN_KEY_CHARS: usize = 20;
/// The header with the number of agents that started each other.
const DEPTH: HeaderName = HeaderName::from_static("x-agent-depth");
/// Where clients of other servers show their keys.
const KEY_HEADERS: [&str; 4] = ["authorization", "x-api-key", "api-key", "x-goog-api-key"];
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// With one of these, someone else sent the request than the program that connected.
const FORWARDING_HEADERS: [&str; 7] =
    ["forwarded", "via", "x-real-ip", "cf-connecting-ip", "true-client-ip", "x-client-ip", "x-original-forwarded-for"];
/// What others of these begin with.
const FORWARDED: &str = "x-forwarded-";
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// The most wrong keys of one address in a minute.
const MAX_WRONG_KEYS: u32 = 20;
const WRONG_KEYS_PERIOD: Duration = Duration::from_mins(1);
/// The most addresses that are remembered for their wrong keys.
const MAX_ADDRESSES: usize = 10_000;

/// The most requests of one API key that are answered at once, streams among them. What its questions need is far less; it
/// keeps the connections of a proxy from being used up by one client.
pub(super) const MAX_REQUESTS_OF_KEY: usize = 256;

/// Where a request came from, as the listener says.
#[derive(Debug, Clone, Copy)]
pub(super) struct Connection {
    pub(super) peer: SocketAddr,
    pub(super) local: SocketAddr,
    /// Whether the program at the other end belongs to our own user.
    pub(super) is_own: bool,
}

/// How many wrong keys each address has shown.
#[derive(Debug, Default)]
pub(super) struct WrongKeys {
    counts: Mutex<HashMap<IpAddr, (Instant, u32)>>,
}

impl WrongKeys {
    fn are_too_many(&self, address: IpAddr) -> bool {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts
            .get(&address)
            .is_some_and(|(since, count)| since.elapsed() < WRONG_KEYS_PERIOD && *count >= MAX_WRONG_KEYS)
    }

    fn count(&self, address: IpAddr) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.len() >= MAX_ADDRESSES {
            counts.retain(|_, (since, _)| since.elapsed() < WRONG_KEYS_PERIOD);
        }
        let entry = counts.entry(address).or_insert((Instant::now(), 0));
        if entry.0.elapsed() >= WRONG_KEYS_PERIOD {
            *entry = (Instant::now(), 0);
        }
        entry.1 += 1;
    }
}

/// What bounds the bodies that arrive at once.
pub(super) fn bodies() -> Semaphore {
    Semaphore::new(MAX_ARRIVING_KILOBYTES)
}

/// What a path needs of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Needed {
    Nothing,
    /// Any scope. The executor says who may decide.
    AnyScope,
    Read,
    Ask,
}

/// How a request is answered that was refused before it reached a route: in the form of its protocol. `None` if that is
/// our own.
pub(crate) type Refusal = fn(Option<ModelProtocol>, &str, StatusCode, &ErrorBody) -> Option<Response>;

/// The middleware around all routes.
pub(crate) async fn check_request(state: &ServeState, request: Request, next: Next, refusal: Refusal) -> Response {
    let origin = request.headers().get(header::ORIGIN).cloned();
    let allowed = origin.filter(|origin| is_allowed_origin(state, origin));
    let path = request.uri().path().to_owned();
    let protocol = ModelProtocol::of(&path, request.headers());
    let mut response = match Box::pin(admit(state, request)).await {
        Ok((request, _)) if is_preflight(&request) => StatusCode::NO_CONTENT.into_response(),
        Ok((request, permit)) => next.run(request).await.map(|body| Body::new(PermittedBody { body, _permit: permit })),
        Err(error) => refusal(protocol, &path, error.0, &error.1).unwrap_or_else(|| error.into_response()),
    };
    // What is left of such a body is not read: the next request needs another connection.
    let is_cut_short = response.status() == StatusCode::PAYLOAD_TOO_LARGE;
    let headers = response.headers_mut();
    if is_cut_short {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(origin) = allowed {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::VARY, HeaderValue::from_static("origin"));
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, DELETE"));
        headers
            .insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static("authorization, content-type, *"));
    }
    response
}

fn is_preflight(request: &Request) -> bool {
    request.method() == Method::OPTIONS && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

fn is_allowed_origin(state: &ServeState, origin: &HeaderValue) -> bool {
    state.settings.origins.iter().any(|allowed| allowed.as_bytes() == origin.as_bytes())
}

/// Counts a request of a client with an API key.
type RequestPermit = Option<ConcurrencyPermit<String>>;

async fn admit(state: &ServeState, mut request: Request) -> Result<(Request, RequestPermit), ApiError> {
    let connection = *request.extensions().get::<Connection>().expect("the listener adds it");
    check_host(state, &request, connection)?;
    check_origin(state, request.headers())?;
    if is_preflight(&request) {
        return Ok((request, None));
    }
    let address = client_address(state, request.headers(), connection)?;
    let needed = needed(request.method(), request.uri().path());
    let bearer = shown_key(request.headers(), request.uri().query())?;
    let client = identify(state, request.headers(), bearer, address, connection, needed)?;
    let permit = permit(state, &client)?;
    request.extensions_mut().insert(client);
    Ok((whole(&state.bodies, request).await?, permit))
}

fn permit(state: &ServeState, client: &HttpClient) -> Result<RequestPermit, ApiError> {
    let Some(key) = &client.key else { return Ok(None) };
    state.requests.try_acquire(key).map(Some).ok_or_else(|| {
        let message = format!("{MAX_REQUESTS_OF_KEY} requests of this API key are being answered, streams among them");
        let hint = "close some of them, or wait until one is answered";
        refused(StatusCode::TOO_MANY_REQUESTS, Code::Throttled, &message, hint)
    })
}

/// The body of an answer, whose request counts until all of it is sent or its client has gone.
struct PermittedBody {
    body: Body,
    _permit: RequestPermit,
}

impl HttpBody for PermittedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut task::Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Refuses a host that is not ours: a name that someone else pointed at our address.
fn check_host(state: &ServeState, request: &Request, connection: Connection) -> Result<(), ApiError> {
    let port = connection.local.port();
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let host = hosts.next().and_then(|host| host.to_str().ok()).filter(|_| hosts.next().is_none());
    let is_ours = host.is_some_and(|host| {
        let local =
            ["localhost".to_owned(), "127.0.0.1".to_owned(), "[::1]".to_owned(), address_name(connection.local)];
        let is_local = local.iter().any(|name| host == format!("{name}:{port}") || (port == 80 && host == name));
        is_local || state.settings.public_names.iter().any(|name| name == host)
    });
    // A target with a host of its own must name the same.
    let is_same = request.uri().authority().is_none_or(|authority| Some(authority.as_str()) == host);
    if is_ours && is_same {
        return Ok(());
    }
    let message = format!("the request names the host `{}`, which is not this server", host.unwrap_or_default());
    Err(refused(
        StatusCode::MISDIRECTED_REQUEST,
        Code::ForeignRequest,
        &message,
        "add it to `public_names` under [serve]",
    ))
}

fn address_name(address: SocketAddr) -> String {
    match address.ip() {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

/// Refuses the scripts of web pages that the configuration does not name.
fn check_origin(state: &ServeState, headers: &HeaderMap) -> Result<(), ApiError> {
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let is_foreign = match (origins.next(), origins.next()) {
        (Some(origin), None) => !is_allowed_origin(state, origin),
        (Some(_), Some(_)) => true,
        (None, _) => headers.get(SEC_FETCH_SITE).is_some_and(|site| site != "none" && site != "same-origin"),
    };
    if is_foreign {
        let message = "the request comes from a web page that may not send any";
        return Err(refused(
            StatusCode::FORBIDDEN,
            Code::ForeignRequest,
            message,
            "name the page in `origins` under [serve]",
        ));
    }
    Ok(())
}

/// The address of the client: what a proxy says, if the configuration names that proxy.
fn client_address(state: &ServeState, headers: &HeaderMap, connection: Connection) -> Result<IpAddr, ApiError> {
    let peer = connection.peer.ip().to_canonical();
    if !state.settings.proxies.contains(&peer) {
        return Ok(peer);
    }
    forwarded_address(headers, &state.settings.proxies).ok_or_else(|| {
        let message = "the proxy does not say who its client is";
        refused(StatusCode::BAD_REQUEST, Code::BadRequest, message, "have it set `X-Forwarded-For`")
    })
}

/// The last address in `X-Forwarded-For` that is not one of our proxies: each proxy adds the address that it saw at the
/// end, and what stands before that is whatever its client sent.
fn forwarded_address(headers: &HeaderMap, proxies: &[IpAddr]) -> Option<IpAddr> {
    for value in headers.get_all(FORWARDED_FOR).iter().rev() {
        for entry in value.to_str().ok()?.rsplit(',') {
            let address = forwarded_entry(entry.trim())?;
            if !proxies.contains(&address) {
                return Some(address);
            }
        }
    }
    None
}

/// An address that a proxy wrote, which may have a port and brackets.
fn forwarded_entry(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse().ok().or_else(|| text.parse().ok().map(|address: SocketAddr| address.ip()))?;
    Some(address.to_canonical())
}

/// What a request needs. Everything that is not listed here changes something.
fn needed(method: &Method, path: &str) -> Needed {
    match (method, path) {
        (&Method::GET | &Method::HEAD, "/" | "/health" | "/.well-known/agent-card.json") => Needed::Nothing,
        (&Method::GET | &Method::HEAD, path) if is_of_sessions(path) => Needed::Read,
        // What the protocols of others let an asker get: which models there are, its own task.
        (&Method::GET | &Method::HEAD, _) => Needed::AnyScope,
        // Ollama asks for the facts about a model with a body.
        (&Method::POST, "/api/show" | "/v1/api/show") => Needed::AnyScope,
        _ => Needed::Ask,
    }
}

/// Whether a path of the own API shows sessions, or may show them in a later version.
fn is_of_sessions(path: &str) -> bool {
    path.strip_prefix("/api/v1/")
        .is_some_and(|rest| rest != "gates" && !rest.starts_with("gates/") && !rest.starts_with("gate/"))
}

fn identify(
    state: &ServeState,
    headers: &HeaderMap,
    bearer: Option<&str>,
    address: IpAddr,
    connection: Connection,
    needed: Needed,
) -> Result<HttpClient, ApiError> {
    let client = HttpClient {
        address,
        key: None,
        bearer: None,
        history: HistoryKeeper::Server,
        model: None,
        tool_scope: ToolScope::default(),
        read_only: false,
        may_read: true,
        has_no_commands: false,
        depth: depth(headers),
    };
    // A proxy does not count as a program of our own user, even if they run it: it speaks for others.
    let is_forwarded = state.settings.proxies.contains(&connection.peer.ip().to_canonical())
        || headers
            .keys()
            .any(|name| name.as_str().starts_with(FORWARDED) || FORWARDING_HEADERS.contains(&name.as_str()));
    let is_own = connection.is_own && !is_forwarded;
    match bearer {
        Some(bearer) => {
            // A right key counts however many wrong ones came from the same place.
            let Some(key) = state.keys.verify(bearer) else {
                if state.wrong_keys.are_too_many(address) {
                    return Err(refused(
                        StatusCode::TOO_MANY_REQUESTS,
                        Code::RateLimited,
                        "too many wrong API keys came from this address",
                        "wait a minute",
                    ));
                }
                state.wrong_keys.count(address);
                return Err(wrong_key("the API key is wrong, was revoked or has expired"));
            };
            check_scope(&key, needed)?;
            let client_name = key.client();
            let ClientKey { scopes, history, model, profile, no_commands, .. } = key;
            let tool_scope = match &profile {
                Some(profile) => {
                    client.tool_scope.within_profile(profile).map_err(|error| wrong_key(&error.to_string()))?
                }
                None => client.tool_scope.clone(),
            };
            Ok(HttpClient {
                key: Some(client_name),
                bearer: Some(Bearer::new(bearer)),
                history,
                model,
                tool_scope,
                may_read: scopes.read,
                has_no_commands: no_commands,
                ..client
            })
        }
        // Clients that insist on a key send any text; it grants nothing that would be refused without it.
        None if needed == Needed::Nothing || (is_own && state.settings.keyless) => Ok(client),
        None if connection.is_own && is_forwarded => {
            Err(wrong_key("an API key is needed: the request was forwarded by a proxy"))
        }
        None => Err(wrong_key("an API key is needed")),
    }
}

/// The API key that the request shows, also in a place where other servers expect theirs: who shows one wants to be taken
/// for its client, and not for a program without a key.
fn shown_key<'a>(headers: &'a HeaderMap, query: Option<&str>) -> Result<Option<&'a str>, ApiError> {
    let has_key = |text: &str| text.to_ascii_lowercase().contains(KEY_PREFIX) || ends_like_a_key(text);
    let other_way = || wrong_key("the API key is shown in another way than a server expects");
    if headers.get_all(header::AUTHORIZATION).iter().nth(1).is_some() {
        return Err(wrong_key("several keys were shown"));
    }
    // A short word after the prefix is a client's own name for something.
    let has_long_key = |text: &str| text.split(KEY_PREFIX).skip(1).any(|rest| rest.len() >= MIN_KEY_CHARS);
    let is_misplaced = |(name, value): (&HeaderName, &HeaderValue)| {
        let text = String::from_utf8_lossy(value.as_bytes());
        let is_expected = KEY_HEADERS.contains(&name.as_str()) && value.to_str().is_ok();
        !is_expected && has_long_key(&text)
    };
    if query.is_some_and(has_key) || headers.iter().any(is_misplaced) {
        return Err(other_way());
    }
    let values = KEY_HEADERS.iter().flat_map(|name| headers.get_all(*name));
    let mut shown = None;
    for text in values.filter_map(|value| value.to_str().ok()) {
        let (scheme, rest) = text.trim().split_once(' ').unwrap_or_default();
        let key = if scheme.eq_ignore_ascii_case("bearer") { rest.trim() } else { text.trim() };
        // Without its encoding, a password may be a key.
        if scheme.eq_ignore_ascii_case("basic") || has_key(text) && !key.starts_with(KEY_PREFIX) {
            return Err(other_way());
        }
        if has_key(text) && shown.replace(key).is_some_and(|before| before != key) {
            return Err(wrong_key("several keys were shown"));
        }
    }
    Ok(shown)
}

fn check_scope(key: &ClientKey, needed: Needed) -> Result<(), ApiError> {
    let has_scope = match needed {
        Needed::Nothing => true,
        Needed::AnyScope => key.scopes.read || key.scopes.ask,
        Needed::Read => key.scopes.read,
        Needed::Ask => key.scopes.ask,
    };
    if has_scope {
        return Ok(());
    }
    let (lacks, scope) = if needed == Needed::Read { ("may not read", "read") } else { ("may only read", "ask") };
    let message = format!("the API key `{}` {lacks}", key.name);
    let hint = format!("make one with the scope `{scope}`: agent-magic-tool serve key create NAME");
    Err(refused(StatusCode::FORBIDDEN, Code::NeedsScope, &message, &hint))
}

/// How many agents started each other; a header that is no number counts as the largest one.
fn depth(headers: &HeaderMap) -> u8 {
    let depths = headers.get_all(DEPTH).iter().map(|value| value.to_str().ok().and_then(|text| text.parse().ok()));
    depths.map(|depth| depth.unwrap_or(u8::MAX)).max().unwrap_or_default()
}

/// The request with its whole body, within a limit of bytes and of time. `bodies` bounds what arrives at once.
async fn whole(bodies: &Semaphore, request: Request) -> Result<Request, ApiError> {
    let (head, body) = request.into_parts();
    let kilobytes = body.size_hint().exact().map_or(MAX_BODY_BYTES, |bytes| {
        usize::try_from(bytes).map_or(MAX_BODY_BYTES, |bytes| bytes.min(MAX_BODY_BYTES))
    }) >> 10;
    let kilobytes = u32::try_from(kilobytes).unwrap_or(u32::MAX);
    let room = tokio::time::timeout(BODY_TIMEOUT, bodies.acquire_many(kilobytes)).await;
    let Ok(Ok(_room)) = room else {
        let message = "too many large requests arrive at once";
        return Err(refused(StatusCode::SERVICE_UNAVAILABLE, Code::Throttled, message, "send the request again later"));
    };
    let too_large = || {
        let message = format!("the body is larger than {MAX_BODY_BYTES} bytes");
        refused(StatusCode::PAYLOAD_TOO_LARGE, Code::RequestTooLarge, &message, "send less, or a reference to it")
    };
    match tokio::time::timeout(BODY_TIMEOUT, body::to_bytes(body, MAX_BODY_BYTES)).await {
        Ok(Ok(bytes)) => Ok(Request::from_parts(head, Body::from(bytes))),
        Ok(Err(_)) => Err(too_large()),
        Err(_) => Err(refused(
            StatusCode::REQUEST_TIMEOUT,
            Code::BadRequest,
            "the body did not arrive in time",
            "send the request again",
        )),
    }
}

fn wrong_key(message: &str) -> ApiError {
    let hint = "send `Authorization: Bearer KEY`; to make a key: agent-magic-tool serve key create NAME";
    refused(StatusCode::UNAUTHORIZED, Code::BadApiKey, message, hint)
}

fn refused(status: StatusCode, code: Code, message: &str, hint: &str) -> ApiError {
    ApiError(status, ErrorBody::new(code, message).hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_a_key_wherever_it_is_shown() {
        let shown = |pairs: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.append(*name, HeaderValue::from_static(value));
            }
            shown_key(&headers, None).map(|key| key.map(str::to_owned)).map_err(|ApiError(status, _)| status)
        };
        for pair in [
            ("authorization", "Bearer amt_1"),
            ("authorization", "bearer  amt_1 "),
            ("authorization", "amt_1"),
            ("x-api-key", "amt_1"),
            ("api-key", "amt_1"),
        ] {
            assert_eq!(shown(&[pair]), Ok(Some("amt_1".to_owned())), "{pair:?}");
        }
        assert_eq!(shown(&[]), Ok(None));
        assert_eq!(shown(&[("authorization", "Bearer none"), ("x-api-key", "none")]), Ok(None));
        assert_eq!(shown(&[("authorization", "Bearer amt_1"), ("x-api-key", "amt_1")]), Ok(Some("amt_1".to_owned())));
        for pairs in [
            [("authorization", "Bearer amt_1"), ("x-api-key", "amt_2")],
            [("authorization", "Bearer a"), ("authorization", "Bearer b")],
            [("authorization", "Basic eDphbXRfMQ=="), ("x-api-key", "none")],
            [("authorization", "Token amt_1"), ("x-api-key", "amt_1")],
            [("authorization", "Bearer none"), ("api-key", "AMT_1")],
        ] {
            assert_eq!(shown(&pairs), Err(StatusCode::UNAUTHORIZED), "{pairs:?}");
        }
        assert!(shown_key(&HeaderMap::new(), Some("session=1")).is_ok_and(|key| key.is_none()));
        shown_key(&HeaderMap::new(), Some("key=amt_1")).expect_err("a key");
        let long = "amt_0123456789abcdef0123456789";
        for (name, value) in [("cookie", format!("token={long}")), ("proxy-authorization", format!("Bearer {long}"))] {
            assert_eq!(shown(&[(name, value.leak())]), Err(StatusCode::UNAUTHORIZED), "{name}");
        }
        let mut headers = HeaderMap::new();
        let stray = [long.as_bytes(), b"\xe9"].concat();
        headers.insert("x-api-key", HeaderValue::from_bytes(&stray).expect("a header"));
        shown_key(&headers, None).expect_err("a key with a stray byte");
        assert_eq!(shown(&[("x-session-id", "amt_team")]), Ok(None), "no key");
    }

    #[test]
    fn the_last_address_that_is_not_a_proxy_of_ours_is_the_client() {
        let proxies: Vec<IpAddr> = ["10.0.0.1", "10.0.0.2", "fd00::1"].map(|ip| ip.parse().expect("an address")).into();
        let cases: [(&[&str], Option<&str>); 20] = [
            (&["1.2.3.4"], Some("1.2.3.4")),
            (&["9.9.9.9, 1.2.3.4"], Some("1.2.3.4")),
            (&["127.0.0.1, 10.0.0.1, 1.2.3.4"], Some("1.2.3.4")),
            (&["9.9.9.9", "1.2.3.4"], Some("1.2.3.4")),
            (&["9.9.9.9, 8.8.8.8", "7.7.7.7,1.2.3.4"], Some("1.2.3.4")),
            (&["9.9.9.9 ,  1.2.3.4 "], Some("1.2.3.4")),
            (&["9.9.9.9, 1.2.3.4, 10.0.0.2"], Some("1.2.3.4")),
            (&["9.9.9.9, 1.2.3.4", "10.0.0.2, ::ffff:10.0.0.1"], Some("1.2.3.4")),
            (&["1.2.3.4, fd00::1"], Some("1.2.3.4")),
            (&["9.9.9.9:1, 1.2.3.4:5678"], Some("1.2.3.4")),
            (&["9.9.9.9, 2001:db8::7"], Some("2001:db8::7")),
            (&["9.9.9.9, [2001:db8::7]"], Some("2001:db8::7")),
            (&["9.9.9.9, [2001:db8::7]:443"], Some("2001:db8::7")),
            (&["::ffff:1.2.3.4"], Some("1.2.3.4")),
            (&["1.2.3.4, unknown"], None),
            (&["1.2.3.4, _hidden"], None),
            (&["1.2.3.4,"], None),
            (&["1.2.3.4", ""], None),
            (&["10.0.0.2"], None),
            (&[], None),
        ];
        for (values, expected) in cases {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(FORWARDED_FOR, HeaderValue::from_str(value).expect("a header"));
            }
            let address = forwarded_address(&headers, &proxies).map(|address| address.to_string());
            assert_eq!(address.as_deref(), expected, "{values:?}");
        }
        let mut headers = HeaderMap::new();
        headers.append(FORWARDED_FOR, HeaderValue::from_static("1.2.3.4"));
        headers.append(FORWARDED_FOR, HeaderValue::from_bytes(b"8.8.8.8, \xe9").expect("a header"));
        assert_eq!(forwarded_address(&headers, &proxies), None, "not what stands before it");
    }

    #[tokio::test]
    async fn a_body_is_read_whole_up_to_the_limit() {
        let arrives = async |bytes: usize| whole(&bodies(), Request::new(Body::from(vec![b'x'; bytes]))).await;
        assert!(arrives(MAX_BODY_BYTES).await.is_ok());
        let ApiError(status, error) = arrives(MAX_BODY_BYTES + 1).await.expect_err("too large");
        assert_eq!((status, error.code), (StatusCode::PAYLOAD_TOO_LARGE, Code::RequestTooLarge));
    }
}
