//! Many clients over HTTP. A request counts if it names our host, comes from no foreign page, and shows a key.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, RETRY_AFTER, WWW_AUTHENTICATE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use rmcp::model::ProtocolVersion;
use rmcp::transport::streamable_http_server::session::local::{LocalSessionManager, SessionConfig};
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::handler::Handler;
use super::keys::{ClientKey, KeyName};
use super::shared::Server;
use super::{ServeError, ServerSettings};
use crate::http_listener;

/// The path of the one endpoint.
const PATH: &str = "/mcp";
const SESSION_ID: &str = "mcp-session-id";
const MAX_BODY_BYTES: usize = 4 << 20;
/// The most sessions of clients before 2026-07-28; later ones have none.
const MAX_SESSIONS: usize = 256;
/// A session that is unused for this long ends.
const SESSION_IDLE: Duration = Duration::from_mins(30);
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Where to listen, and for whom.
#[derive(Debug)]
pub struct HttpBinding {
    pub address: SocketAddr,
    /// The names, with a port if it is not the usual one, under which a proxy serves it to others.
    pub public_names: Vec<String>,
    pub keys: Vec<ClientKey>,
}

/// The address can be reached from other machines, and no proxy is named.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` can be reached from other machines, and no proxy is named that encrypts what is sent to it")]
pub struct NoLoopback(pub SocketAddr);

type Answer = Response<http_body_util::combinators::BoxBody<Bytes, Infallible>>;

struct Endpoint {
    keys: Vec<ClientKey>,
    service: StreamableHttpService<Handler, LocalSessionManager>,
    sessions: Arc<LocalSessionManager>,
    /// The client of each session, which no other may use.
    owners: Mutex<HashMap<String, KeyName>>,
}

/// Serves until `ended` is cancelled.
pub(super) async fn serve(
    settings: ServerSettings,
    binding: HttpBinding,
    announce: impl FnOnce(&str),
    ended: CancellationToken,
) -> Result<(), ServeError> {
    let HttpBinding { address, public_names, keys } = binding;
    if !address.ip().is_loopback() && public_names.is_empty() {
        return Err(NoLoopback(address).into());
    }
    let listener = TcpListener::bind(address).await.map_err(|source| ServeError::Listen { address, source })?;
    let address = listener.local_addr().map_err(|source| ServeError::Listen { address, source })?;
    let endpoint = Arc::new(Endpoint::new(Server::new(settings), address, &public_names, keys, &ended));
    announce(&format!("http://{address}{PATH}"));
    http_listener::accept(listener, http_listener::MAX_CONNECTIONS, &ended, |stream, _| {
        let (endpoint, ended) = (Arc::clone(&endpoint), ended.clone());
        async move {
            let service = service_fn(move |request| {
                let endpoint = Arc::clone(&endpoint);
                async move { Ok::<_, Infallible>(endpoint.answer(request).await) }
            });
            http_listener::serve_connection(stream, service, &ended).await;
        }
    })
    .await;
    Ok(())
}

impl Endpoint {
    fn new(
        server: Arc<Server>,
        address: SocketAddr,
        public_names: &[String],
        keys: Vec<ClientKey>,
        ended: &CancellationToken,
    ) -> Self {
        let port = address.port();
        let local = ["localhost", "127.0.0.1", "[::1]"].map(|host| format!("{host}:{port}"));
        let local = local.iter().filter(|_| address.ip().is_loopback());
        let origins = local.clone().map(|host| format!("http://{host}"));
        let public_origins = public_names
            .iter()
            .map(|name| if name.contains(':') { format!("https://{name}") } else { format!("https://{name}:443") });
        let config = StreamableHttpServerConfig::default()
            .with_allowed_hosts(local.clone().chain(public_names))
            .with_allowed_origins(origins.chain(public_origins))
            .enforce_origin_validation()
            .with_max_request_body_bytes(MAX_BODY_BYTES)
            .with_cancellation_token(ended.clone());
        let mut session_config = SessionConfig::default();
        session_config.keep_alive = Some(SESSION_IDLE);
        let mut sessions = LocalSessionManager::default();
        sessions.session_config = session_config;
        let sessions = Arc::new(sessions);
        let make = move || Ok(Handler::of(Arc::clone(&server)));
        let service = StreamableHttpService::new(make, Arc::clone(&sessions), config);
        Self { keys, service, sessions, owners: Mutex::default() }
    }

    async fn answer(&self, request: Request<Incoming>) -> Answer {
        match self.admit(request).await {
            Ok((request, key)) => {
                let response = self.service.handle(request).await;
                if let Some(session) = response.headers().get(SESSION_ID).and_then(|id| id.to_str().ok()) {
                    self.own(session, key).await;
                }
                response
            }
            Err(refusal) => refusal,
        }
    }

    /// Returns a request of a client that showed its key, with its whole body.
    async fn admit(&self, request: Request<Incoming>) -> Result<(Request<Full<Bytes>>, KeyName), Answer> {
        if request.uri().path() != PATH {
            return Err(refusal(StatusCode::NOT_FOUND, "there is nothing but /mcp"));
        }
        let shown = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let shown = shown.and_then(|value| value.split_once(' '));
        let shown = shown.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, key)| key.trim());
        let Some(key) = shown.and_then(|shown| self.keys.iter().find(|key| key.is(shown))) else {
            let mut answer = refusal(StatusCode::UNAUTHORIZED, "send the key as `Authorization: Bearer KEY`");
            answer.headers_mut().insert(WWW_AUTHENTICATE, "Bearer".parse().expect("a valid header"));
            return Err(answer);
        };
        let name = KeyName(key.name().to_owned());
        match request.headers().get(SESSION_ID).map(|id| id.to_str().unwrap_or_default().to_owned()) {
            Some(session) => {
                let owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
                if owners.get(&session).is_some_and(|owner| *owner != name) {
                    return Err(refusal(StatusCode::NOT_FOUND, "Not Found: Session not found"));
                }
            }
            None if may_begin_session(&request) && self.sessions.sessions.read().await.len() >= MAX_SESSIONS => {
                let mut answer = refusal(StatusCode::SERVICE_UNAVAILABLE, "too many sessions are open");
                answer.headers_mut().insert(RETRY_AFTER, "60".parse().expect("a valid header"));
                return Err(answer);
            }
            None => {}
        }
        let (mut parts, body) = request.into_parts();
        parts.extensions.insert(name.clone());
        // The key is of no use to what follows.
        parts.headers.remove(AUTHORIZATION);
        let body = tokio::time::timeout(BODY_TIMEOUT, Limited::new(body, MAX_BODY_BYTES).collect()).await;
        let body = match body {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
                return Err(refusal(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large"));
            }
            Ok(Err(_)) => return Err(refusal(StatusCode::BAD_REQUEST, "the body could not be read")),
            Err(_) => return Err(refusal(StatusCode::REQUEST_TIMEOUT, "the body took too long")),
        };
        Ok((Request::from_parts(parts, Full::new(body)), name))
    }

    /// Records whose session it is, and forgets those that have ended.
    async fn own(&self, session: &str, key: KeyName) {
        let open = self.sessions.sessions.read().await;
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        owners.retain(|id, _| open.contains_key(id.as_str()));
        owners.insert(session.to_owned(), key);
    }
}

/// Whether a request may be the first of a session, which those of clients since 2026-07-28 never are.
fn may_begin_session(request: &Request<Incoming>) -> bool {
    let version = request.headers().get("mcp-protocol-version").and_then(|version| version.to_str().ok());
    request.method() == Method::POST && version.is_none_or(|version| version < ProtocolVersion::V_2026_07_28.as_str())
}

fn refusal(status: StatusCode, text: &'static str) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from_static(text.as_bytes())).boxed());
    *answer.status_mut() = status;
    answer
}
