//! No client reads a part of an answer twice, whatever it speaks: the commands of its message print something before the
//! answer, and the answer comes in pieces. How Slack shows it is in the crate's own tests.

use serde_json::{Value, json};

use super::echo_model::{self, PIECES};
use super::{Event, Server};
use crate::world::World;

/// What `!help` prints once.
const PRINTED: &str = "Several commands may stand in one message";

fn server() -> (World, Server) {
    let world = World::new();
    world.configure(&echo_model::configuration(&echo_model::start(), ""));
    let server = Server::start(&world);
    (world, server)
}

/// Fails if the client has read something of the answer twice, or not at all.
fn check(place: &str, mark: &str, read: &str) {
    assert_eq!(read.matches(PRINTED).count(), 1, "{place}: {read}");
    assert_eq!(read.matches(mark).count(), PIECES, "{place}: {read}");
}

/// The JSON documents of a stream: of events, or one in each line.
fn documents(body: &str) -> Vec<Value> {
    let lines = body.lines().map(|line| line.strip_prefix("data: ").unwrap_or(line));
    lines.filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// The texts at this place of the documents.
fn texts(documents: &[Value], place: &str) -> String {
    documents.iter().filter_map(|document| document.pointer(place)?.as_str()).collect()
}

/// What a protocol writes a question as.
type AskedBy<'a> = &'a dyn Fn(&str) -> Value;

#[test]
fn no_client_of_a_models_protocol_reads_a_part_twice() {
    let (_world, server) = server();
    // The path, the request, and where the text is: in each document of a stream, and in the one that is not streamed.
    let user = |mark: &str| json!([{"role": "user", "content": format!("!help\necho {mark}")}]);
    let prompt = |mark: &str| json!(format!("!help\necho {mark}"));
    let protocols: [(&str, &str, AskedBy<'_>, &str, &str); 5] = [
        ("/v1/chat/completions", "messages", &user, "/choices/0/delta/content", "/choices/0/message/content"),
        ("/v1/completions", "prompt", &prompt, "/choices/0/text", "/choices/0/text"),
        ("/v1/responses", "input", &user, "/delta", "/output/0/content/0/text"),
        ("/api/chat", "messages", &user, "/message/content", "/message/content"),
        ("/api/generate", "prompt", &prompt, "/response", "/response"),
    ];
    for (path, field, asked, streamed, whole) in protocols {
        for streams in [true, false] {
            let mark = format!("{}{streams}", path.replace('/', ""));
            let mut request = json!({"model": "agent-magic-tool", "stream": streams});
            request[field] = asked(&mark);
            let documents = documents(&server.post(path, &request).body);
            check(path, &mark, &texts(&documents, if streams { streamed } else { whole }));
            if streams && path == "/v1/responses" {
                let last = documents.last().expect("events").pointer("/response/output/0/content/0/text");
                check("the last event", &mark, last.and_then(Value::as_str).expect("a text"));
            }
        }
    }
}

#[test]
fn no_client_of_the_own_interface_reads_a_part_twice_also_if_it_comes_back() {
    let (_world, server) = server();
    let answer = server.ask("a", "!help\necho whole");
    check("the answer", "whole", answer["answer"].as_str().expect("a text"));
    let asked = server.post("/api/v1/submit", &json!({"session": "a", "message": "!help\necho events", "wait": false}));
    let place = format!("a?question={}", asked.json()["question"].as_str().expect("a question"));
    let events = server.follow(&place, None).until("done");
    let said = |events: &[Event]| -> String { events.iter().filter_map(|event| event.data["text"].as_str()).collect() };
    assert_eq!(said(&events).matches("events ").count(), PIECES, "{events:?}");
    check("the end", "events", events.last().expect("an end").data["answer"].as_str().expect("a text"));
    let state = server.get("/api/v1/session/a").json();
    check("what a client reads later", "events", state["questions"][0]["answer"].as_str().expect("a text"));
    // A client whose connection breaks after any of the events gets those that follow.
    for (number, event) in events.iter().enumerate().filter(|(_, event)| event.name == "tok") {
        let rest = server.follow(&place, Some(&event.id)).until("done");
        assert_eq!(said(&rest), said(&events[number + 1..]), "after {}", event.id);
    }
}

#[test]
fn no_other_agent_reads_a_part_twice() {
    let (_world, server) = server();
    let ask = |method: &str, mark: &str| {
        let parts = json!([{"text": format!("!help\necho {mark}")}]);
        let message = json!({"messageId": mark, "role": "ROLE_USER", "parts": parts});
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": {"message": message}});
        documents(&server.post("/a2a", &call).body)
    };
    let answered = ask("SendMessage", "whole");
    check("the task", "whole", &texts(&answered, "/result/task/artifacts/0/parts/0/text"));
    let mut read = String::new();
    for event in ask("SendStreamingMessage", "events") {
        let Some(update) = event.pointer("/result/artifactUpdate") else { continue };
        if update["append"] != true {
            read.clear();
        }
        read.push_str(update.pointer("/artifact/parts/0/text").and_then(Value::as_str).expect("a text"));
    }
    check("the events", "events", &read);
}
