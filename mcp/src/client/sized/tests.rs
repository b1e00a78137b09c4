//! An answer that is too large, over each transport.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::*;
use crate::client::call::ToolCall;
use crate::client::connection::{Connection, ConnectionSettings, Greeting, HttpEndpoint, HttpKind};
use crate::client::error::ClientError;
use crate::client::host::{CallHandle, CallHost, CallProgress, HumanAnswer, ServerQuestion};

const MAX_BYTES: usize = 10_000;

struct NoHost;

impl CallHost for NoHost {
    fn ask<'a>(&'a self, _: &'a ServerQuestion) -> BoxFuture<'a, HumanAnswer> {
        Box::pin(async { HumanAnswer::Cancel })
    }

    fn progress(&self, _: &CallProgress) {}

    fn remember(&self, _: &CallHandle) {}
}

/// What a server says to a message, if anything: its one tool answers with a text of this size.
fn answer(message: &Value, size: usize) -> Option<Value> {
    let result = match message["method"].as_str()? {
        "initialize" => json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
            "serverInfo": {"name": "large", "version": "1"}}),
        "tools/call" => json!({"content": [{"type": "text", "text": "x".repeat(size)}]}),
        _ => return None,
    };
    Some(json!({"jsonrpc": "2.0", "id": message["id"], "result": result}))
}

/// How a server answers over HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Json,
    Events,
    /// On the one stream of the transport of 2024-11-05.
    OldEvents,
}

/// Starts a server of this form; it ends with the test's process. Returns its URL.
fn start(form: Form, size: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/", listener.local_addr().expect("bound"));
    std::thread::spawn(move || {
        let mut stream_of_all: Option<mpsc::Sender<Value>> = None;
        for mut stream in listener.incoming().flatten() {
            let Some((is_get, message)) = read(&stream) else { continue };
            if is_get && form == Form::OldEvents {
                let (sender, receiver) = mpsc::channel();
                stream_of_all = Some(sender);
                std::thread::spawn(move || drop(write_events(stream, receiver)));
            } else if is_get {
                drop(stream.write_all(b"HTTP/1.1 405 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"));
            } else {
                drop(respond(&mut stream, form, answer(&message, size), stream_of_all.as_ref()));
            }
        }
    });
    url
}

fn read(stream: &TcpStream) -> Option<(bool, Value)> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let lower = head.to_ascii_lowercase();
    let length = lower.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    Some((head.starts_with("GET"), serde_json::from_slice(&body).unwrap_or_default()))
}

fn write_events(mut stream: TcpStream, messages: mpsc::Receiver<Value>) -> std::io::Result<()> {
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nevent: endpoint\ndata: /post\n\n")?;
    for message in messages {
        write!(stream, "data: {message}\n\n")?;
    }
    Ok(())
}

fn respond(
    stream: &mut TcpStream,
    form: Form,
    message: Option<Value>,
    events: Option<&mpsc::Sender<Value>>,
) -> std::io::Result<()> {
    let (kind, body) = match (form, message) {
        (Form::OldEvents, message) => {
            for (message, events) in message.into_iter().zip(events) {
                events.send(message).ok();
            }
            return stream.write_all(b"HTTP/1.1 202 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
        (_, None) => return stream.write_all(b"HTTP/1.1 202 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"),
        (Form::Json, Some(message)) => ("application/json", message.to_string()),
        (Form::Events, Some(message)) => ("text/event-stream", format!("data: {message}\n\n")),
    };
    write!(stream, "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n{body}")
}

async fn connect(form: Option<Form>, size: usize) -> Connection {
    let settings = ConnectionSettings { max_bytes: MAX_BYTES, greeting: Greeting::Initialize };
    let Some(form) = form else {
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        TaskTracker::new().spawn(async move {
            let (requests, mut answers) = tokio::io::split(theirs);
            let mut lines = tokio::io::BufReader::new(requests).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let message = serde_json::from_str(&line).expect("JSON");
                if let Some(answer) = answer(&message, size) {
                    answers.write_all(format!("{answer}\n").as_bytes()).await.expect("written");
                }
            }
        });
        let (stdout, stdin) = tokio::io::split(ours);
        return Connection::of_program(stdout, stdin, &settings).await.expect("connected");
    };
    let kind = if form == Form::OldEvents { HttpKind::Sse } else { HttpKind::Streamable };
    let (url, client) = (start(form, size), reqwest::Client::new());
    let endpoint = HttpEndpoint { url, client, headers: HashMap::new(), authorization: None, kind };
    Connection::of_url(endpoint, &settings).await.expect("connected")
}

fn large_call() -> ToolCall {
    ToolCall {
        tool: "large".to_owned(),
        arguments: Map::new(),
        handle: None,
        host: Arc::new(NoHost),
        cancel: CancellationToken::new(),
    }
}

#[tokio::test]
async fn an_answer_that_is_too_large_is_said_to_be_so_over_every_transport() {
    drop(rustls::crypto::ring::default_provider().install_default());
    for form in [None, Some(Form::Json), Some(Form::Events), Some(Form::OldEvents)] {
        for (size, is_too_large) in [(100, false), (5 * MAX_BYTES, true)] {
            let connection = connect(form, size).await;
            let called = tokio::time::timeout(Duration::from_secs(20), connection.call(large_call())).await;
            let called = called.unwrap_or_else(|_| panic!("{form:?}: it never ends"));
            let told = matches!(called, Err(ClientError::TooLarge { max_bytes: MAX_BYTES }));
            assert!(told == is_too_large && called.is_ok() != is_too_large, "{form:?}, {size}: {called:?}");
        }
    }
}

/// A server that answers calls with the status 400 and an error without an id until it was greeted `greetings` times.
fn start_refusing(greetings: usize, words: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/", listener.local_addr().expect("bound"));
    std::thread::spawn(move || {
        let mut greeted = 0;
        for mut stream in listener.incoming().flatten() {
            let Some((is_get, message)) = read(&stream) else { continue };
            greeted += usize::from(message["method"] == "initialize");
            let (status, body) = match answer(&message, 10) {
                _ if is_get => ("405 No", String::new()),
                Some(_) if message["method"] == "tools/call" && greeted < greetings => {
                    let error = json!({"code": -32000, "message": words});
                    ("400 Bad Request", json!({"jsonrpc": "2.0", "error": error, "id": null}).to_string())
                }
                Some(answer) => ("200 OK", answer.to_string()),
                None => ("202 Accepted", String::new()),
            };
            let head = format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nMcp-Session-Id: s{greeted}\r\n");
            let length = body.len();
            drop(write!(stream, "{head}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"));
        }
    });
    url
}

#[tokio::test]
async fn a_refusal_without_an_id_answers_what_was_posted_and_one_of_the_session_ends_the_connection() {
    drop(rustls::crypto::ring::default_provider().install_default());
    let lost = "Bad Request: No valid session ID provided";
    for (greetings, words, is_told) in [(1, lost, false), (2, lost, true), (2, "Bad Request: not now", true)] {
        let settings = ConnectionSettings { max_bytes: MAX_BYTES, greeting: Greeting::Initialize };
        let (url, client) = (start_refusing(greetings, words), reqwest::Client::new());
        let kind = HttpKind::Streamable;
        let endpoint = HttpEndpoint { url, client, headers: HashMap::new(), authorization: None, kind };
        let connection = Connection::of_url(endpoint, &settings).await.expect("connected");
        let called = tokio::time::timeout(Duration::from_secs(20), connection.call(large_call())).await;
        let called = called.unwrap_or_else(|_| panic!("{greetings}, {words}: it never ends"));
        assert_eq!(called.is_err(), is_told, "{greetings}, {words}: {called:?}");
        assert!(!is_told || format!("{called:?}").contains(words), "{called:?}");
        assert_eq!(connection.is_closed(), is_told && words == lost, "{greetings}, {words}");
    }
}
