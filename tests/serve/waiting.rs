//! A call that waits for its result does not hide the human whom its task waits for, whatever the client speaks.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpStream;

use serde_json::{Value, json};

use super::a2a::clients::waiting_task;
use super::{Server, world_with_model};
use crate::page::human::Human;
use crate::world::World;

/// The ways to wait within a call.
pub(crate) const WAITS: [&str; 3] = ["--wait", "--wait=50s", "--wait --jq ."];

/// A question that makes the model call `note` and wait for it.
pub(crate) fn question(wait: &str) -> String {
    format!("run: agent-magic-tool run note text=hello {wait}")
}

/// Path, body, and what tells that a human is waited for.
fn doors(model: &str, question: &str) -> [(&'static str, Value, &'static str); 5] {
    let messages = json!([{"role": "user", "content": question}]);
    let decision = "waits for your decision";
    let message = json!({"messageId": question, "role": "ROLE_USER", "parts": [{"text": question}]});
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": {"message": message}});
    [
        ("/v1/chat/completions", json!({"model": model, "messages": messages, "stream": true}), decision),
        ("/v1/responses", json!({"model": model, "input": question, "stream": true}), decision),
        ("/v1/messages", json!({"model": model, "messages": messages, "stream": true}), decision),
        ("/api/chat", json!({"model": model, "messages": messages}), decision),
        ("/a2a", call, "INPUT_REQUIRED"),
    ]
}

/// Reads a stream up to the line with `text`.
fn read_until(stream: &mut BufReader<TcpStream>, text: &str) -> String {
    let mut read = String::new();
    while !read.contains(text) {
        let count = stream.read_line(&mut read).unwrap_or_else(|error| panic!("no `{text}`: {error}: {read}"));
        assert!(count > 0, "the stream ended before `{text}`: {read}");
    }
    read
}

fn approve(world: &World) {
    world.decide(&waiting_task(world), "approve", "");
}

#[test]
fn a_call_that_waits_for_a_human_says_so_in_every_protocol() {
    let Some((world, _model)) = world_with_model("") else { return };
    let server = Server::start(&world);
    let human = Human::of(&world);
    let _page = human.open_page();
    let model = server.get("/v1/models").json()["data"][0]["id"].as_str().expect("a model").to_owned();
    let mut notes = String::new();
    let mut note_is_written = |place: &str| {
        notes.push_str("hello");
        let written = std::fs::read_to_string(world.folder().join("note.txt")).unwrap_or_default();
        assert_eq!(written, notes, "{place}: it ran once, before the answer");
    };
    server.ask("api-1", "Hi");
    for wait in WAITS {
        let mut events = server.follow("api-1", None);
        server.post("/api/v1/submit", &json!({"session": "api-1", "message": question(wait), "wait": false}));
        let told: Vec<_> = events.until("gate").into_iter().map(|event| event.name).collect();
        assert!(told.iter().any(|name| name == "task"), "{wait}: {told:?}");
        approve(&world);
        events.until("done");
        note_is_written(wait);
        for (path, body, told) in doors(&model, &question(wait)) {
            let mut stream = BufReader::new(server.send("POST", path, "", &body.to_string()));
            read_until(&mut stream, told);
            approve(&world);
            let mut rest = String::new();
            stream.read_to_string(&mut rest).unwrap_or_else(|error| panic!("{path} {wait}: {error}"));
            note_is_written(&format!("{path} {wait}"));
        }
    }
}

#[test]
fn a_task_whose_waiting_call_is_stopped_goes_on_and_its_end_is_told() {
    let Some((world, _model)) = world_with_model("") else { return };
    let server = Server::start(&world);
    let human = Human::of(&world);
    let _page = human.open_page();
    server.ask("api-1", "Hi");
    for wait in WAITS {
        let mut events = server.follow("api-1", None);
        server.post("/api/v1/submit", &json!({"session": "api-1", "message": question(wait), "wait": false}));
        events.until("gate");
        assert_eq!(server.post("/api/v1/session/api-1/cancel", &json!({})).status, 200, "{wait}");
        let stopped = events.until("done").pop().expect("done");
        assert_eq!(stopped.data["termination"], "cancelled", "{wait}");
        approve(&world);
        while events.until("task").last().is_none_or(|event| event.data["state"] != "succeeded") {}
        // The model is told as well, and answers.
        let done = events.until("done").pop().expect("done");
        assert_eq!(done.data["answer"], "The note is written.", "{wait}");
    }
}
