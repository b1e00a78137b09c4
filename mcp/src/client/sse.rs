//! The transport of 2024-11-05: one stream of server-sent events carries all answers, and the server says on it where
//! messages are posted.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use protocol::error::innermost_cause;
use reqwest::Client;
use reqwest::header::{ACCEPT, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use rmcp::service::{RoleClient, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::auth::AuthError;
use rmcp::transport::streamable_http_client::AuthRequiredError;
use url::Url;

use super::connection::{Authorization, HttpEndpoint};
use super::error::ClientError;
use super::lines::Dropped;

/// How long a server may take to say where messages are posted.
const ENDPOINT_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection of the old kind.
pub(super) struct SseTransport {
    client: Client,
    headers: Arc<HashMap<HeaderName, HeaderValue>>,
    authorization: Option<Authorization>,
    /// Where messages are posted.
    post: Url,
    events: EventStream,
}

/// Why a message was not sent.
#[derive(Debug, thiserror::Error)]
pub(super) enum SseError {
    #[error(transparent)]
    Http(#[from] reqwest::Error),
    #[error("the server answered with status {0}")]
    Status(u16),
    #[error("a message cannot be written: {0}")]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Token(#[from] AuthError),
    #[error(transparent)]
    Challenged(#[from] AuthRequiredError),
}

impl SseTransport {
    /// Opens the stream and waits until the server has said where messages are posted.
    pub(super) async fn open(endpoint: HttpEndpoint, max_bytes: usize, dropped: Dropped) -> Result<Self, ClientError> {
        let url = Url::parse(&endpoint.url).map_err(|error| ClientError::Connect(error.to_string()))?;
        let mut request = endpoint.client.get(url.clone()).header(ACCEPT, "text/event-stream");
        for (name, value) in &endpoint.headers {
            request = request.header(name, value);
        }
        let token = token(endpoint.authorization.as_ref()).await;
        if let Some(token) = token.map_err(|error| ClientError::Connect(error.to_string()))? {
            request = request.bearer_auth(token);
        }
        let response = request.send().await.map_err(|error| ClientError::Connect(innermost_cause(&error)))?;
        let status = response.status();
        if matches!(status.as_u16(), 401 | 403) {
            return Err(ClientError::NeedsSignIn(challenge(&response)));
        }
        let kind = response.headers().get("content-type").and_then(|value| value.to_str().ok()).unwrap_or_default();
        if !status.is_success() || !kind.starts_with("text/event-stream") {
            return Err(ClientError::Connect(format!("it answered with status {} and `{kind}`", status.as_u16())));
        }
        let bytes = response.bytes_stream().map(|part| part.map(|part| part.to_vec())).boxed();
        let mut events = EventStream { bytes, buffer: Vec::new(), max_bytes, dropped };
        let first = tokio::time::timeout(ENDPOINT_TIMEOUT, events.next()).await.ok().flatten();
        let post = first.filter(|event| event.name == "endpoint").and_then(|event| url.join(event.data.trim()).ok());
        let post = post.ok_or_else(|| ClientError::Connect("it did not say where messages are posted".to_owned()))?;
        // Another server must not get our headers.
        if post.origin() != url.origin() {
            return Err(ClientError::Connect(format!(
                "it wants messages at another server, `{}`",
                post.origin().ascii_serialization()
            )));
        }
        let (client, headers, authorization) = (endpoint.client, Arc::new(endpoint.headers), endpoint.authorization);
        Ok(Self { client, headers, authorization, post, events })
    }
}

impl Transport<RoleClient> for SseTransport {
    type Error = SseError;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), SseError>> + Send + 'static {
        let (client, headers, post) = (self.client.clone(), Arc::clone(&self.headers), self.post.clone());
        let authorization = self.authorization.clone();
        async move {
            let body = serde_json::to_vec(&message)?;
            let mut request = client.post(post).header("content-type", "application/json").body(body);
            for (name, value) in headers.iter() {
                request = request.header(name, value);
            }
            if let Some(token) = token(authorization.as_ref()).await? {
                request = request.bearer_auth(token);
            }
            let response = request.send().await?;
            match response.status() {
                status if status.is_success() => Ok(()),
                status if matches!(status.as_u16(), 401 | 403) => {
                    Err(AuthRequiredError::new(challenge(&response).unwrap_or_default()).into())
                }
                status => Err(SseError::Status(status.as_u16())),
            }
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            let event = self.events.next().await?;
            if !matches!(event.name.as_str(), "" | "message") {
                continue;
            }
            match serde_json::from_str(&event.data) {
                Ok(message) => return Some(message),
                Err(error) => tracing::debug!(%error, "an event is no message"),
            }
        }
    }

    async fn close(&mut self) -> Result<(), SseError> {
        self.events.bytes = futures_util::stream::empty().boxed();
        Ok(())
    }
}

/// The access token, if there is one; without one the server says what it wants.
async fn token(authorization: Option<&Authorization>) -> Result<Option<String>, AuthError> {
    let Some(authorization) = authorization else { return Ok(None) };
    match authorization.get_access_token().await {
        Ok(token) => Ok(Some(token)),
        Err(AuthError::AuthorizationRequired) => Ok(None),
        Err(error) => Err(error),
    }
}

fn challenge(response: &reqwest::Response) -> Option<String> {
    response.headers().get(WWW_AUTHENTICATE).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

/// A server-sent event.
#[derive(Debug, Default, PartialEq, Eq)]
struct SentEvent {
    name: String,
    data: String,
}

struct EventStream {
    bytes: BoxStream<'static, reqwest::Result<Vec<u8>>>,
    buffer: Vec<u8>,
    max_bytes: usize,
    dropped: Dropped,
}

impl EventStream {
    /// The next event with data; `None` at the end of the stream, or if an event is too long, which is reported.
    async fn next(&mut self) -> Option<SentEvent> {
        let mut event = SentEvent::default();
        loop {
            while let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                let line = String::from_utf8_lossy(&line);
                let line = line.trim_end_matches(['\n', '\r']);
                if line.is_empty() {
                    if !event.data.is_empty() {
                        return Some(event);
                    }
                    event = SentEvent::default();
                }
                take_line(line, &mut event);
            }
            if self.buffer.len() + event.data.len() > self.max_bytes {
                self.dropped.report_too_long(None);
                return None;
            }
            self.buffer.extend_from_slice(&self.bytes.next().await?.ok()?);
        }
    }
}

fn take_line(line: &str, event: &mut SentEvent) {
    let (field, value) = line.split_once(':').unwrap_or((line, ""));
    let value = value.strip_prefix(' ').unwrap_or(value);
    match field {
        "event" => value.clone_into(&mut event.name),
        "data" => {
            if !event.data.is_empty() {
                event.data.push('\n');
            }
            event.data.push_str(value);
        }
        _ => {}
    }
}
