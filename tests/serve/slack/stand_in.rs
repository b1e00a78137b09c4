//! A stand-in for Slack: the methods of the Web API that the connector uses, and Socket Mode.
//!
//! It is as strict as Slack about tokens, time stamps and tickets, and keeps everything that it was told. Slack's own
//! SDKs are run against it in a test, so that it is not only our idea of Slack.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_tungstenite::tungstenite::Message;

pub(crate) const APP_TOKEN: &str = "xapp-1-A0TEST-stand-in-8a61";
pub(crate) const BOT_TOKEN: &str = "xoxb-stand-in-77b4f0";
pub(crate) const BOT_USER: &str = "U0BOT";
pub(crate) const TEAM: &str = "T0TEAM";

/// Far longer than anything takes on a busy machine; only a failing test waits this long.
const PATIENCE: Duration = Duration::from_secs(20);
/// What Slack itself refuses in an edit.
const MAX_EDIT: usize = 4000;

/// What a method answers instead of doing its work, once.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// Status 429 with `Retry-After`, in seconds.
    TooMany(u64),
    /// An answer that is not `ok`, with this error.
    Error(&'static str),
    /// Another status, without JSON.
    Status(u16),
    /// It does its work, but the connection is cut before the answer.
    Cut,
}

/// A message in a channel.
#[derive(Debug, Clone)]
pub(crate) struct StandInMessage {
    pub(crate) channel: String,
    pub(crate) ts: String,
    pub(crate) thread: Option<String>,
    pub(crate) body: Value,
    pub(crate) edits: usize,
}

impl StandInMessage {
    pub(crate) fn text(&self) -> &str {
        self.body["text"].as_str().unwrap_or_default()
    }
}

/// One call of a method.
#[derive(Debug, Clone)]
pub(crate) struct StandInCall {
    pub(crate) method: String,
    pub(crate) body: Value,
    pub(crate) at: Instant,
    /// What it answered, if it was not `ok`.
    pub(crate) error: Option<String>,
}

/// Everything that happened.
#[derive(Default)]
pub(crate) struct StandInState {
    pub(crate) messages: Vec<StandInMessage>,
    pub(crate) calls: Vec<StandInCall>,
    /// Acknowledgements: the envelope, the connection, and when.
    pub(crate) acknowledged: Vec<(String, usize, Instant)>,
    /// The connections so far, and whether they are open.
    pub(crate) connections: Vec<bool>,
    senders: Vec<mpsc::UnboundedSender<Frame>>,
    tickets: Vec<String>,
    faults: HashMap<String, VecDeque<Fault>>,
    count: u64,
}

#[derive(Debug)]
enum Frame {
    Text(String),
    Ping,
    Close,
    /// From here on it neither reads nor writes, and stays open.
    Freeze,
}

#[derive(Default)]
struct Shared {
    state: Mutex<StandInState>,
    changed: Condvar,
}

/// A running stand-in. It ends when it is dropped.
pub(crate) struct StandIn {
    shared: Arc<Shared>,
    pub(crate) port: u16,
    /// The server ends when this is dropped.
    _running: oneshot::Sender<()>,
}

impl fmt::Debug for StandInState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for StandInMessage { channel, thread, body, edits, .. } in &self.messages {
            writeln!(f, "{channel} {thread:?} ({edits} edits): {}", body["text"])?;
        }
        for StandInCall { method, body, error, .. } in &self.calls {
            writeln!(f, "{method} {error:?} {body}")?;
        }
        let acknowledged: Vec<_> = self.acknowledged.iter().map(|(id, over, _)| (id, over)).collect();
        write!(f, "acknowledged {acknowledged:?}, connections {:?}", self.connections)
    }
}

impl fmt::Debug for StandIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#?}", self.state())
    }
}

impl StandIn {
    pub(crate) fn start() -> Self {
        let (api, port) = listen();
        // Sockets have a host of their own, as Slack's have.
        let (sockets, socket_port) = listen();
        let shared = Arc::<Shared>::default();
        let server = Arc::clone(&shared);
        let (running, ended) = oneshot::channel::<()>();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            let serving = async {
                let api = TcpListener::from_std(api).expect("a socket");
                let sockets = TcpListener::from_std(sockets).expect("a socket");
                let mut connections = JoinSet::new();
                loop {
                    tokio::select! {
                        Ok((stream, _)) = api.accept() => connections.spawn(http(stream, Arc::clone(&server), socket_port)),
                        Ok((stream, _)) = sockets.accept() => connections.spawn(link(stream, Arc::clone(&server))),
                    };
                }
            };
            runtime.block_on(async {
                tokio::select! {
                    () = serving => {}
                    _ = ended => {}
                }
            });
        });
        Self { shared, port, _running: running }
    }

    pub(crate) fn api_url(&self) -> String {
        format!("http://127.0.0.1:{}/api/", self.port)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, StandInState> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `found` finds something.
    #[track_caller]
    pub(crate) fn wait<T>(&self, what: &str, mut found: impl FnMut(&StandInState) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        let mut state = self.state();
        loop {
            if let Some(found) = found(&state) {
                return found;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{what} does not happen: {state:#?}");
            let step = left.min(Duration::from_millis(200));
            state = self.shared.changed.wait_timeout(state, step).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits for a message that contains `text`.
    #[track_caller]
    pub(crate) fn message(&self, text: &str) -> StandInMessage {
        self.wait(&format!("a message `{text}`"), |state| {
            state.messages.iter().find(|message| message.text().contains(text)).cloned()
        })
    }

    /// The texts in a thread now, the oldest first.
    pub(crate) fn thread(&self, channel: &str, ts: &str) -> Vec<String> {
        let state = self.state();
        let in_thread = |message: &&StandInMessage| message.channel == channel && message.thread.as_deref() == Some(ts);
        state.messages.iter().filter(in_thread).map(|message| message.text().to_owned()).collect()
    }

    /// Waits until this many connections were opened.
    #[track_caller]
    pub(crate) fn connected(&self, count: usize) {
        self.wait(&format!("{count} connections"), |state| (state.connections.len() >= count).then_some(()));
    }

    /// The next calls of `method` fail like this.
    pub(crate) fn fail(&self, method: &str, faults: impl IntoIterator<Item = Fault>) {
        self.state().faults.entry(method.to_owned()).or_default().extend(faults);
    }

    /// Sends a frame over the newest connection.
    #[track_caller]
    pub(crate) fn send(&self, frame: &Value) {
        self.last(Frame::Text(frame.to_string()));
    }

    /// Sends a frame over the connection of this number.
    pub(crate) fn send_over(&self, connection: usize, frame: &Value) {
        drop(self.state().senders[connection].send(Frame::Text(frame.to_string())));
    }

    pub(crate) fn close(&self) {
        self.last(Frame::Close);
    }

    pub(crate) fn freeze(&self) {
        self.last(Frame::Freeze);
    }

    pub(crate) fn ping(&self) {
        self.last(Frame::Ping);
    }

    #[track_caller]
    fn last(&self, frame: Frame) {
        let state = self.state();
        state.senders.last().expect("a connection").send(frame).expect("the connection is open");
    }

    /// Sends an event that nothing acknowledged yet, and returns its envelope's id.
    pub(crate) fn event(&self, event: &Value) -> String {
        let number = self.number();
        let envelope = envelope(&format!("envelope-{number}"), &format!("Ev{number}"), event, 0);
        self.send(&envelope);
        format!("envelope-{number}")
    }

    /// Waits for the acknowledgement of an envelope, and returns when it came.
    #[track_caller]
    pub(crate) fn acknowledged(&self, envelope: &str) -> Instant {
        self.wait(&format!("an acknowledgement of {envelope}"), |state| {
            state.acknowledged.iter().find(|(id, ..)| id == envelope).map(|(.., at)| *at)
        })
    }

    fn number(&self) -> u64 {
        let mut state = self.state();
        state.count += 1;
        state.count
    }
}

/// An envelope of the Events API.
pub(crate) fn envelope(id: &str, event_id: &str, event: &Value, retry: u32) -> Value {
    json!({
        "envelope_id": id, "type": "events_api", "accepts_response_payload": false,
        "retry_attempt": retry, "retry_reason": if retry > 0 { "timeout" } else { "" },
        "payload": {
            "token": "one-long-verification-token", "team_id": TEAM, "api_app_id": "A0TEST", "type": "event_callback",
            "event": event, "event_id": event_id, "event_time": 1_700_000_000, "is_ext_shared_channel": false,
            "authorizations": [{"enterprise_id": null, "team_id": TEAM, "user_id": BOT_USER, "is_bot": true,
                                "is_enterprise_install": false}],
        },
    })
}

/// Someone mentions the app.
pub(crate) fn mention(user: &str, channel: &str, ts: &str, text: &str) -> Value {
    json!({"type": "app_mention", "user": user, "text": format!("<@{BOT_USER}> {text}"), "ts": ts, "channel": channel,
           "event_ts": ts, "team": TEAM, "client_msg_id": format!("id-{ts}")})
}

/// Someone writes a message.
pub(crate) fn message(user: &str, channel: &str, kind: &str, ts: &str, text: &str) -> Value {
    json!({"type": "message", "user": user, "text": text, "ts": ts, "channel": channel, "channel_type": kind,
           "event_ts": ts, "team": TEAM, "client_msg_id": format!("id-{ts}")})
}

/// Someone presses the first button of a message.
pub(crate) fn press(envelope_id: &str, user: &str, pressed: &StandInMessage) -> Value {
    let blocks = pressed.body["blocks"].as_array().expect("blocks");
    let actions = blocks.iter().find(|block| block["type"] == "actions").expect("buttons");
    let button = &actions["elements"][0];
    json!({
        "envelope_id": envelope_id, "type": "interactive", "accepts_response_payload": false,
        "payload": {
            "type": "block_actions", "token": "one-long-verification-token", "api_app_id": "A0TEST",
            "user": {"id": user, "username": "ann", "name": "ann", "team_id": TEAM},
            "team": {"id": TEAM, "domain": "test"}, "enterprise": null, "is_enterprise_install": false,
            "container": {"type": "message", "message_ts": pressed.ts, "channel_id": pressed.channel,
                          "is_ephemeral": false, "thread_ts": pressed.thread},
            "channel": {"id": pressed.channel, "name": "general"}, "trigger_id": "12.34.56",
            "message": {"type": "message", "ts": pressed.ts, "text": pressed.text(), "blocks": blocks},
            "response_url": "https://hooks.slack.example/actions/x", "state": {"values": {}},
            "actions": [{"type": "button", "action_id": button["action_id"], "block_id": "b1", "value": button["value"],
                         "text": button["text"], "action_ts": "1700000000.000001"}],
        },
    })
}

pub(crate) fn disconnect(reason: &str) -> Value {
    json!({"type": "disconnect", "reason": reason, "debug_info": {"host": "wss-test"}})
}

/// A listener on a free port of this machine.
fn listen() -> (std::net::TcpListener, u16) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.set_nonblocking(true).expect("a socket");
    let port = listener.local_addr().expect("bound").port();
    (listener, port)
}

/// Requests of the Web API, one after the other.
async fn http(stream: TcpStream, shared: Arc<Shared>, socket_port: u16) {
    let mut stream = BufReader::new(stream);
    loop {
        let (mut line, mut length, mut token, mut kind) = (String::new(), 0, String::new(), String::new());
        if stream.read_line(&mut line).await.is_err() || line.is_empty() {
            return;
        }
        let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
        loop {
            let mut header = String::new();
            if stream.read_line(&mut header).await.is_err() || header.trim().is_empty() {
                break;
            }
            let (name, value) = header.split_once(':').unwrap_or_default();
            match name.to_lowercase().as_str() {
                "content-length" => length = value.trim().parse().unwrap_or_default(),
                "authorization" => token = value.trim().trim_start_matches("Bearer ").to_owned(),
                "content-type" => kind = value.trim().to_owned(),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        if stream.read_exact(&mut body).await.is_err() {
            return;
        }
        let method = path.trim_start_matches("/api/").to_owned();
        let Some(answer) = shared.answer(&method, &token, parsed(&kind, &body), socket_port) else { return };
        if stream.get_mut().write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// The arguments of a call: JSON, or a form in which some values are JSON.
fn parsed(kind: &str, body: &[u8]) -> Value {
    if kind.starts_with("application/json") {
        return serde_json::from_slice(body).unwrap_or_default();
    }
    let query = String::from_utf8_lossy(body);
    let form = reqwest::Url::parse(&format!("http://form/?{query}")).expect("a form is a query");
    let fields = form.query_pairs().map(|(name, value)| {
        let value = match name.as_ref() {
            "blocks" => serde_json::from_str(&value).unwrap_or_default(),
            _ => Value::from(value.into_owned()),
        };
        (name.into_owned(), value)
    });
    Value::Object(fields.collect())
}

impl Shared {
    /// The whole answer to a call; `None` if the connection is cut.
    fn answer(&self, method: &str, token: &str, body: Value, port: u16) -> Option<String> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let fault = state.faults.get_mut(method).and_then(VecDeque::pop_front);
        let (mut status, mut more) = (200, String::new());
        let answer = match &fault {
            Some(Fault::TooMany(seconds)) => {
                (status, more) = (429, format!("retry-after: {seconds}\r\n"));
                json!({"ok": false, "error": "ratelimited"})
            }
            Some(Fault::Error(error)) => json!({"ok": false, "error": error}),
            Some(Fault::Status(other)) => {
                status = *other;
                json!("no JSON object")
            }
            Some(Fault::Cut) | None => match state.perform(method, token, &body, port) {
                Ok(answer) => answer,
                Err(error) => json!({"ok": false, "error": error}),
            },
        };
        let error = answer["error"].as_str().map(str::to_owned).or((status >= 500).then(|| status.to_string()));
        state.calls.push(StandInCall { method: method.to_owned(), body, at: Instant::now(), error });
        drop(state);
        self.changed.notify_all();
        if matches!(fault, Some(Fault::Cut)) {
            return None;
        }
        let text = answer.to_string();
        let length = text.len();
        Some(format!(
            "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n{more}content-length: {length}\r\n\r\n{text}"
        ))
    }

    fn update<T>(&self, change: impl FnOnce(&mut StandInState) -> T) -> T {
        let changed = change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
        changed
    }
}

impl StandInState {
    fn perform(&mut self, method: &str, token: &str, body: &Value, port: u16) -> Result<Value, &'static str> {
        let wanted = if method == "apps.connections.open" { APP_TOKEN } else { BOT_TOKEN };
        match token {
            "" => return Err("not_authed"),
            token if token == wanted => {}
            APP_TOKEN | BOT_TOKEN => return Err("not_allowed_token_type"),
            _ => return Err("invalid_auth"),
        }
        let word = |name: &str| body[name].as_str().filter(|word| !word.is_empty());
        match method {
            "auth.test" => {
                Ok(json!({"ok": true, "url": "https://test.slack.example/", "team": "Test", "user": "helper",
                                     "team_id": TEAM, "user_id": BOT_USER, "bot_id": "B0BOT"}))
            }
            "apps.connections.open" => {
                self.count += 1;
                let ticket = format!("ticket-{}", self.count);
                let url = format!("ws://127.0.0.1:{port}/link/?ticket={ticket}&app_id=A0TEST");
                self.tickets.push(ticket);
                Ok(json!({"ok": true, "url": url}))
            }
            "chat.postMessage" | "chat.postEphemeral" => {
                let channel = word("channel").ok_or("channel_not_found")?.to_owned();
                word("text").or(body["blocks"].as_array().map(|_| "")).ok_or("no_text")?;
                self.count += 1;
                let ts = format!("1700000000.{:06}", self.count);
                if method == "chat.postEphemeral" {
                    word("user").ok_or("user_not_in_channel")?;
                    return Ok(json!({"ok": true, "message_ts": ts}));
                }
                let thread = word("thread_ts").map(str::to_owned);
                let message =
                    StandInMessage { channel: channel.clone(), ts: ts.clone(), thread, body: body.clone(), edits: 0 };
                self.messages.push(message);
                Ok(json!({"ok": true, "channel": channel, "ts": ts,
                          "message": {"type": "message", "user": BOT_USER, "bot_id": "B0BOT", "text": body["text"], "ts": ts}}))
            }
            "chat.update" | "chat.delete" => {
                let (channel, ts) =
                    (word("channel").ok_or("channel_not_found")?, word("ts").ok_or("message_not_found")?);
                let known = self.messages.iter().position(|message| message.channel == channel && message.ts == ts);
                let known = known.ok_or("message_not_found")?;
                if method == "chat.delete" {
                    self.messages.remove(known);
                    return Ok(json!({"ok": true, "channel": channel, "ts": ts}));
                }
                let text = word("text").ok_or("no_text")?;
                if text.encode_utf16().count() > MAX_EDIT {
                    return Err("msg_too_long");
                }
                self.messages[known].body = body.clone();
                self.messages[known].edits += 1;
                Ok(json!({"ok": true, "channel": channel, "ts": ts, "text": text}))
            }
            _ => Err("unknown_method"),
        }
    }
}

/// One connection of Socket Mode.
async fn link(stream: TcpStream, shared: Arc<Shared>) {
    let mut uri = String::new();
    let opening = |request: &tokio_tungstenite::tungstenite::handshake::server::Request, response| {
        uri = request.uri().to_string();
        Ok(response)
    };
    let Ok(mut socket) = tokio_tungstenite::accept_hdr_async(stream, opening).await else { return };
    let ticket = uri.split(['=', '&']).nth(1).unwrap_or_default();
    let (sender, mut frames) = mpsc::unbounded_channel();
    let number = shared.update(|state| {
        let known = state.tickets.iter().position(|known| known == ticket)?;
        state.tickets.remove(known);
        state.connections.push(true);
        state.senders.push(sender);
        Some(state.connections.len() - 1)
    });
    // Each ticket is good for one connection.
    let Some(number) = number else { return };
    let hello = json!({"type": "hello", "connection_info": {"app_id": "A0TEST"}, "num_connections": 1,
                       "debug_info": {"host": "wss-test", "approximate_connection_time": 18060}});
    if socket.send(Message::text(hello.to_string())).await.is_err() {
        return;
    }
    loop {
        let outgoing = tokio::select! {
            frame = frames.recv() => match frame {
                Some(Frame::Text(text)) => Message::text(text),
                Some(Frame::Ping) => Message::Ping("from Slack".into()),
                Some(Frame::Freeze) => std::future::pending().await,
                Some(Frame::Close) | None => break,
            },
            frame = socket.next() => match frame {
                Some(Ok(Message::Text(text))) => {
                    let acknowledgement: Value = serde_json::from_str(&text).unwrap_or_default();
                    let id = acknowledgement["envelope_id"].as_str().unwrap_or_default().to_owned();
                    shared.update(|state| state.acknowledged.push((id, number, Instant::now())));
                    continue;
                }
                Some(Ok(Message::Pong(text))) => {
                    shared.update(|state| state.acknowledged.push((format!("pong {text:?}"), number, Instant::now())));
                    continue;
                }
                Some(Ok(_)) => continue,
                Some(Err(_)) | None => break,
            },
        };
        if socket.send(outgoing).await.is_err() {
            break;
        }
    }
    drop(socket.close(None).await);
    shared.update(|state| state.connections[number] = false);
}
