//! One connection of Socket Mode: a WebSocket that Slack sends its envelopes through.
//!
//! reqwest opens it, so proxies and certificates count as for every other request.

use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{SinkExt as _, StreamExt as _};
use ground::config::slack::SlackSettings;
use protocol::error::innermost_cause;
use reqwest::{StatusCode, Upgraded};
use serde_json::json;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_util::sync::CancellationToken;
use url::Url;

use super::contract::SlackTiming;
use super::envelope::{SlackIdentity, SocketFrame};
use super::recorder::SlackRecorder;
use super::web::{CallError, SlackToken, SlackWeb};

/// An envelope is a message, and a message has at most 40,000 characters.
const MAX_FRAME_BYTES: usize = 8 << 20;
/// How long the beginning of a connection may take.
const OPEN_TIMEOUT: Duration = Duration::from_secs(20);

/// Why another connection is needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SocketEnd {
    /// Slack asked for it, in this word; this connection goes on for a while.
    Asked(String),
    Lost(String),
}

/// An open connection.
pub(crate) struct SlackSocket {
    stream: WebSocketStream<Upgraded>,
    timing: SlackTiming,
}

/// What a connection needs of its surroundings.
#[derive(Clone, Copy)]
pub(crate) struct SocketContext<'a> {
    pub(crate) identity: &'a SlackIdentity,
    pub(crate) settings: &'a SlackSettings,
    pub(crate) recorder: &'a SlackRecorder,
    pub(crate) ended: &'a CancellationToken,
}

impl SlackSocket {
    /// Asks Slack for an address and connects to it.
    pub(crate) async fn open(web: &SlackWeb) -> Result<Self, CallError> {
        let answer = web.call(SlackToken::App, "apps.connections.open", &json!({})).await?;
        let url = answer["url"].as_str().and_then(|url| Url::parse(url).ok());
        let url = url.and_then(|url| http_url(url, web.api_url()));
        let url = url.ok_or_else(|| CallError::Temporary("Slack gave no usable address of a socket".to_owned()))?;
        let stream = timeout(OPEN_TIMEOUT, upgrade(web, url)).await;
        let stream = stream.map_err(|_| CallError::Temporary("the socket did not open in time".to_owned()))??;
        Ok(Self { stream, timing: web.timing() })
    }

    /// Reads until the connection ends. Says through `another` when another one is needed, at the latest when it ends.
    /// Returns how long Slack used the connection; `None` if it never began.
    pub(crate) async fn serve(mut self, context: SocketContext<'_>, another: oneshot::Sender<SocketEnd>) {
        let mut another = Some(another);
        let end = self.exchange(context, &mut another).await;
        if let Some(another) = another {
            // Without a receiver we are stopping.
            drop(another.send(SocketEnd::Lost(end)));
        }
        // The other side may be gone.
        drop(timeout(Duration::from_secs(1), self.stream.close(None)).await);
    }

    /// Returns why the connection ended.
    async fn exchange(
        &mut self,
        context: SocketContext<'_>,
        another: &mut Option<oneshot::Sender<SocketEnd>>,
    ) -> String {
        let timing = self.timing;
        let mut acknowledgements = FuturesUnordered::new();
        let mut heard = Instant::now();
        let mut pings = tokio::time::interval(timing.ping);
        let mut leave_at: Option<Instant> = None;
        loop {
            let silent_at = heard + timing.silence;
            let wake_at = leave_at.map_or(silent_at, |leave| leave.min(silent_at));
            let outgoing = tokio::select! {
                biased;
                () = context.ended.cancelled() => return "the server is stopping".to_owned(),
                Some(id) = acknowledgements.next() => match id {
                    Some(id) => Message::text(json!({"envelope_id": id}).to_string()),
                    None => continue,
                },
                frame = self.stream.next() => {
                    heard = Instant::now();
                    match frame {
                        None => return "Slack closed the connection".to_owned(),
                        Some(Err(error)) => return lost(&error),
                        Some(Ok(Message::Close(_))) => return "Slack closed the connection".to_owned(),
                        Some(Ok(Message::Text(text))) => {
                            match SocketFrame::parse(&text, context.identity, context.settings) {
                                Some(SocketFrame::Envelope(envelope)) => {
                                    let id = envelope.id.clone();
                                    let recorded = context.recorder.take(envelope);
                                    acknowledgements.push(acknowledged(id, recorded, timing.acknowledge));
                                }
                                Some(SocketFrame::Disconnect(reason)) => {
                                    leave_at = Some(Instant::now() + timing.overlap);
                                    if let Some(another) = another.take() {
                                        drop(another.send(SocketEnd::Asked(reason)));
                                    }
                                }
                                Some(SocketFrame::Hello) => tracing::info!("connected to Slack"),
                                None => tracing::warn!("Slack sent a frame that is not understood"),
                            }
                            continue;
                        }
                        // tungstenite answers pings itself, with the next thing that is sent.
                        Some(Ok(_)) => match self.stream.flush().await {
                            Ok(()) => continue,
                            Err(error) => return lost(&error),
                        },
                    }
                }
                _ = pings.tick() => Message::Ping(tungstenite::Bytes::new()),
                () = tokio::time::sleep_until(wake_at) => {
                    return match leave_at {
                        Some(leave) if leave <= Instant::now() => "it was replaced".to_owned(),
                        _ => format!("nothing came for {:?}", timing.silence),
                    };
                }
            };
            match timeout(timing.silence, self.stream.send(outgoing)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return lost(&error),
                Err(_) => return "nothing could be sent".to_owned(),
            }
        }
    }
}

/// Waits until an envelope is recorded, but not longer than Slack does. Returns the id to acknowledge.
async fn acknowledged(id: Option<String>, recorded: oneshot::Receiver<()>, limit: Duration) -> Option<String> {
    match timeout(limit, recorded).await {
        Ok(Ok(())) => id,
        // It could not be recorded; Slack sends it again.
        Ok(Err(_)) => None,
        // The disk is slow, but has it in its queue.
        Err(_) => id,
    }
}

fn lost(error: &tungstenite::Error) -> String {
    format!("the connection was lost: {error}")
}

/// The same address for HTTP. It must be as secret on its way as the API is.
fn http_url(mut url: Url, api_url: &Url) -> Option<Url> {
    let scheme = match (url.scheme(), api_url.scheme()) {
        ("wss", _) => "https",
        ("ws", "http") => "http",
        _ => return None,
    };
    // `Url::set_scheme` does not change a `ws` into an `http`.
    let text = format!("{scheme}{}", url.as_str().split_at(url.scheme().len()).1);
    url = Url::parse(&text).ok()?;
    Some(url)
}

/// Turns a GET into a WebSocket (RFC 6455, section 4.1).
async fn upgrade(web: &SlackWeb, url: Url) -> Result<WebSocketStream<Upgraded>, CallError> {
    let key = generate_key();
    let request = web
        .http()
        .get(url)
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", &key);
    let response = request.send().await.map_err(|error| CallError::Temporary(innermost_cause(&error)))?;
    let accepted = response.headers().get("sec-websocket-accept").and_then(|accept| accept.to_str().ok());
    if response.status() != StatusCode::SWITCHING_PROTOCOLS || accepted != Some(&derive_accept_key(key.as_bytes())) {
        return Err(CallError::Temporary(format!("the socket did not open: status {}", response.status())));
    }
    let stream = response.upgrade().await.map_err(|error| CallError::Temporary(innermost_cause(&error)))?;
    let config =
        WebSocketConfig::default().max_message_size(Some(MAX_FRAME_BYTES)).max_frame_size(Some(MAX_FRAME_BYTES));
    Ok(WebSocketStream::from_raw_socket(stream, Role::Client, Some(config)).await)
}
