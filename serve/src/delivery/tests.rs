//! What counts as delivered: each interface, over a connection that is read or broken off.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use agent_loop::model::conversation::StopReason;
use hyper::service::service_fn;
use mcp::http_listener;
use protocol::code::Code;
use protocol::error::ErrorBody;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::a2a::tests::stopped_service;
use crate::http::api;
use crate::http::stream::{self, StreamEnd};
use crate::proxy::answer::AnswerStream;
use crate::proxy::format::respond;
use crate::proxy::tests::{PlainFormat, outcome};
use crate::service::turn::{EventId, LoggedEvent, SessionEvent, TurnStream};

/// How much fits into a connection whose client does not read.
const CONNECTION_BYTES: usize = 64;

/// Answers the one request of a connection.
async fn serve_once(connection: DuplexStream, response: Response) {
    let response = Mutex::new(Some(response));
    let ended = CancellationToken::new();
    serve(connection, |stream| {
        let service = service_fn(|_| {
            let response = response.lock().expect("no panics").take().expect("one request");
            async { Ok::<_, Infallible>(response) }
        });
        http_listener::serve_connection(stream, service, &ended)
    })
    .await;
}

/// Sends a response to a client that reads it to its end, or goes away after the first bytes.
pub(crate) async fn send(response: Response, reads: bool) {
    let (server, mut client) = tokio::io::duplex(CONNECTION_BYTES);
    let serving = serve_once(server, response);
    let asking = async {
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await.expect("written");
        if reads {
            client.read_to_end(&mut Vec::new()).await.expect("read");
        } else {
            client.read_exact(&mut [0; 16]).await.expect("the head begins");
        }
        drop(client);
    };
    tokio::time::timeout(Duration::from_secs(20), async { tokio::join!(serving, asking) }).await.expect("it ends");
}

/// An answer that fits into no connection.
fn long() -> String {
    "word ".repeat(100)
}

fn done() -> SessionEvent {
    SessionEvent::Done(outcome(&long(), StopReason::Completed))
}

fn failed() -> SessionEvent {
    SessionEvent::Error { error: ErrorBody::new(Code::ModelFailed, long()) }
}

fn stopping() -> SessionEvent {
    SessionEvent::Error { error: crate::service::stopping() }
}

/// How a turn ends.
type TurnEnding = fn() -> SessionEvent;

/// The ways in which an interface answers a question, each with how its turn ends.
const DOORS: [(&str, TurnEnding); 11] = [
    ("the own API, answer", done),
    ("the own API, error", failed),
    ("the own API, events of a turn", done),
    ("the own API, all events", done),
    ("the protocols of models, answer", done),
    ("the protocols of models, error", failed),
    ("the protocols of models, streamed answer", done),
    ("the protocols of models, streamed error", failed),
    // The turn goes on after a restart, also if its client does not read that.
    ("the own API, events of a turn", stopping),
    ("the protocols of models, error", stopping),
    ("the protocols of models, streamed error", stopping),
];

async fn respond_at(door: &str, turn: TurnStream) -> Response {
    let events = |turn, end| stream::response(turn, end, || true);
    match door {
        "the own API, answer" | "the own API, error" => {
            let mut turn = turn;
            let outcome = turn.outcome().await;
            api::answer(outcome, "a".to_owned(), &turn)
        }
        "the own API, events of a turn" => events(turn, StreamEnd::WithTurn),
        "the own API, all events" => events(turn, StreamEnd::Never),
        "the protocols of models, streamed answer" | "the protocols of models, streamed error" => {
            respond(AnswerStream::new(turn, PlainFormat { end: long() }), true).await
        }
        _ => respond(AnswerStream::new(turn, PlainFormat { end: long() }), false).await,
    }
}

#[tokio::test]
async fn an_answer_is_delivered_at_every_door_if_its_client_reads_it() {
    for (door, ending) in DOORS {
        for reads in [true, false] {
            let (service, paths) = stopped_service();
            let ledger = paths.serve().join("questions/101.json");
            let question = json!({"id": uuid::Uuid::now_v7(), "asker": {}, "text": "Hi"});
            let owed = json!({"asked": [{"question": question, "turn": 1}]});
            std::fs::create_dir_all(ledger.parent().expect("a folder")).expect("made");
            std::fs::write(&ledger, owed.to_string()).expect("written");
            let (sender, received) = mpsc::unbounded_channel();
            let mut events = vec![ending()];
            if door.contains("streamed") {
                events.insert(0, SessionEvent::Text { text: long() });
            }
            for (number, event) in (1..).zip(events) {
                let id = EventId { turn: 1, load: 1, number, is_over: event.is_last() };
                sender.send(Arc::new(LoggedEvent { id, event })).expect("it is read");
            }
            drop(sender);
            let response = respond_at(door, TurnStream::of_session(received, 101, &service)).await;
            let is_delivered = || {
                let text = std::fs::read_to_string(&ledger).expect("a ledger");
                serde_json::from_str::<Value>(&text).expect("JSON")["asked"][0]["is_delivered"] == true
            };
            assert!(!is_delivered(), "{door}: nothing was sent");
            send(response, reads).await;
            let is_answer = !ending().is_stopping();
            assert_eq!(is_delivered(), reads && is_answer, "{door}, read: {reads}");
        }
    }
}

#[tokio::test]
async fn a_piece_is_delivered_before_the_stream_goes_on() {
    let is_delivered = Arc::new(AtomicBool::new(false));
    let delivered = Arc::clone(&is_delivered);
    let receipt = Receipt::new(move || delivered.store(true, Ordering::SeqCst));
    let first = futures_util::stream::iter([("x".repeat(1_000), Some(receipt))]);
    // It never ends by itself: its client goes when it has the piece.
    let body = Body::from_stream(pieces(first.chain(futures_util::stream::pending())));
    let (server, mut client) = tokio::io::duplex(CONNECTION_BYTES);
    let serving = serve_once(server, Response::new(body));
    let reading = async {
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("written");
        let mut read = Vec::new();
        while !read.ends_with(b"x\r\n") {
            assert_ne!(client.read_buf(&mut read).await.expect("read"), 0);
        }
        while !is_delivered.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
        drop(client);
    };
    tokio::time::timeout(Duration::from_secs(20), async { tokio::join!(serving, reading) }).await.expect("it ends");
}
