//! The transport of 2024-11-05: one stream of server-sent events carries all answers, and the server says on it where
//! messages are posted.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
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
use crate::event_stream::{EventStream, EventStreamError, SentEvent};

/// How long a server may take to say where messages are posted.
const ENDPOINT_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection of the old kind.
pub(super) struct SseTransport {
    client: Client,
    headers: Arc<HashMap<HeaderName, HeaderValue>>,
    authorization: Option<Authorization>,
    /// Where messages are posted.
    post: Url,
    events: EventStream<reqwest::Error>,
    dropped: Dropped,
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
        let chunks = response.bytes_stream().map(|chunk| chunk.map(|bytes| bytes.to_vec()));
        let mut events = EventStream::new(chunks, max_bytes);
        let first = tokio::time::timeout(ENDPOINT_TIMEOUT, next(&mut events, &dropped)).await.ok().flatten();
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
        Ok(Self { client, headers, authorization, post, events, dropped })
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
            let event = next(&mut self.events, &self.dropped).await?;
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
        self.events = EventStream::new(futures_util::stream::empty(), 0);
        Ok(())
    }
}

/// The next event; `None` at the end of the stream, or if an event is too long, which is reported.
async fn next(events: &mut EventStream<reqwest::Error>, dropped: &Dropped) -> Option<SentEvent> {
    let next = events.next().await;
    if let Err(EventStreamError::TooLong) = &next {
        dropped.report_too_long(None);
    }
    next.ok().flatten()
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
