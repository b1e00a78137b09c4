//! An HTTP client that reports answers which are too large, of which the SDK itself only says that their stream was closed,
//! and refusals without an id, for which it does not say whose they are.

use std::collections::HashMap;
use std::error::Error as _;
use std::sync::Arc;

use futures_util::StreamExt as _;
use reqwest::header::{HeaderName, HeaderValue};
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage};
use rmcp::transport::common::client_side_sse::BoxedSseResponse;
use rmcp::transport::streamable_http_client::{
    StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse, StreamableHttpResponseLimits,
};

use super::lines::Dropped;

type Headers = HashMap<HeaderName, HeaderValue>;

/// How the SDK's message about such an event begins; its type is private.
const TOO_LARGE: &str = "SSE event exceeded the maximum size";

#[derive(Clone)]
pub(super) struct SizedClient<C> {
    pub(super) client: C,
    pub(super) dropped: Dropped,
}

impl<C> SizedClient<C> {
    /// The stream, whose event that is too large is reported with the id of the request that it answers.
    fn watched(&self, events: BoxedSseResponse, id: Option<String>) -> BoxedSseResponse {
        let dropped = self.dropped.clone();
        let watch = move |event: &Result<_, rmcp::transport::streamable_http_client::SseError>| {
            let Err(error) = event else { return };
            let inner = error.source().map(ToString::to_string).unwrap_or_default();
            if error.to_string().contains(TOO_LARGE) || inner.contains(TOO_LARGE) {
                dropped.report_too_long(id.clone());
            }
        };
        events.inspect(watch).boxed()
    }
}

impl<C: StreamableHttpClient + Sync> StreamableHttpClient for SizedClient<C> {
    type Error = C::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        headers: Headers,
    ) -> Result<StreamableHttpPostResponse, StreamableHttpError<C::Error>> {
        let limits = StreamableHttpResponseLimits::default();
        self.post_message_with_response_limits(uri, message, session_id, auth_header, headers, limits).await
    }

    async fn post_message_with_response_limits(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        headers: Headers,
        limits: StreamableHttpResponseLimits,
    ) -> Result<StreamableHttpPostResponse, StreamableHttpError<C::Error>> {
        let id = match &message {
            JsonRpcMessage::Request(request) => Some(request.id.clone()),
            _ => None,
        };
        let has_session = session_id.is_some();
        let client = &self.client;
        let sent = client.post_message_with_response_limits(uri, message, session_id, auth_header, headers, limits);
        Ok(match sent.await? {
            StreamableHttpPostResponse::Sse(events, session) => {
                StreamableHttpPostResponse::Sse(self.watched(events, id.map(|id| id.to_string())), session)
            }
            // A refusal before the request was read has no id, and is the answer to what was posted.
            StreamableHttpPostResponse::Json(JsonRpcMessage::Error(mut refusal), session) if refusal.id.is_none() => {
                // Nothing is sent again: whether the server did something before it refused, it alone knows.
                if has_session && is_of_session(&refusal.error.message) {
                    self.dropped.report_lost_session();
                }
                refusal.id = id;
                StreamableHttpPostResponse::Json(JsonRpcMessage::Error(refusal), session)
            }
            other => other,
        })
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        auth_header: Option<String>,
        headers: Headers,
    ) -> Result<(), StreamableHttpError<C::Error>> {
        self.client.delete_session(uri, session_id, auth_header, headers).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        headers: Headers,
    ) -> Result<BoxedSseResponse, StreamableHttpError<C::Error>> {
        self.client.get_stream(uri, session_id, last_event_id, auth_header, headers).await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        headers: Headers,
        max_bytes: usize,
    ) -> Result<BoxedSseResponse, StreamableHttpError<C::Error>> {
        let opened = self.client.get_stream_with_max_sse_event_size(
            uri,
            session_id,
            last_event_id,
            auth_header,
            headers,
            max_bytes,
        );
        Ok(self.watched(opened.await?, None))
    }
}

/// Whether a refusal says that the server does not know the session any more. It should say so by the status 404, and many
/// servers answer 400 after they were started anew.
fn is_of_session(message: &str) -> bool {
    let message = message.to_lowercase();
    message.contains("session") || message.contains("not initialized")
}

#[cfg(test)]
mod tests;
