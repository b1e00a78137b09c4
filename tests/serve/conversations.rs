//! Conversations that no client names: told apart by the history that each request has, over all protocols that send one.

use std::io::Read as _;

use serde_json::{Value, json};

use super::{Server, sdk, world_with_model};
use crate::agent::aimock::Model;
use crate::world::until;

/// The protocols, with the texts of an answer.
const PROTOCOLS: [(&str, &str, &str); 4] = [
    ("/v1/chat/completions", "messages", "/choices/0/message/content"),
    ("/v1/responses", "input", "/output/0/content/0/text"),
    ("/api/chat", "messages", "/message/content"),
    ("/v1/messages", "messages", "/content/0/text"),
];

fn message(role: &str, text: &str) -> Value {
    json!({"role": role, "content": text})
}

/// One conversation of a client, with all that was said.
struct Chat<'a> {
    server: &'a Server,
    protocol: (&'static str, &'static str, &'static str),
    said: Vec<Value>,
}

impl<'a> Chat<'a> {
    fn begin(server: &'a Server, protocol: (&'static str, &'static str, &'static str)) -> Self {
        Self { server, protocol, said: Vec::new() }
    }

    fn ask(&mut self, question: &str) -> String {
        let (path, field, place) = self.protocol;
        self.said.push(message("user", question));
        let body = json!({"model": "agent-magic-tool", "stream": false, "max_tokens": 1000, field: self.said});
        let reply = self.server.post(path, &body);
        assert_eq!(reply.status, 200, "{path}: {}", reply.body);
        let json = reply.json();
        let answer = json.pointer(place).and_then(Value::as_str).unwrap_or_else(|| panic!("{path}: {json}")).to_owned();
        self.said.push(message("assistant", &answer));
        answer
    }
}

fn last_request(model: &Model) -> String {
    json!(model.asked().last().expect("asked")).to_string()
}

fn count(server: &Server) -> usize {
    server.get("/api/v1/sessions").json()["sessions"].as_array().expect("a list").len()
}

#[test]
fn conversations_are_told_apart_by_their_history_in_every_protocol() {
    let Some((world, model)) = world_with_model("") else { return };
    let mut server = Server::start(&world);
    for protocol in PROTOCOLS {
        let before = count(&server);
        let (mut first, mut second) = (Chat::begin(&server, protocol), Chat::begin(&server, protocol));
        first.ask("echo apple");
        second.ask("echo pear");
        second.ask("echo pear-again");
        let seen = last_request(&model);
        assert!(seen.contains("echo pear") && !seen.contains("apple"), "{protocol:?}: {seen}");
        first.ask("echo apple-again");
        let seen = last_request(&model);
        assert!(seen.contains("echo apple") && !seen.contains("pear"), "{protocol:?}: {seen}");
        assert_eq!(count(&server) - before, 2, "{protocol:?}");
        // The same beginning is another conversation, and a restart changes nothing.
        let mut third = Chat::begin(&server, protocol);
        third.ask("echo apple");
        assert!(!last_request(&model).contains("apple-again"), "{protocol:?}");
        let (first, second) = (first.said, second.said);
        server.kill();
        server = Server::start(&world);
        let mut goes_on = Chat { server: &server, protocol, said: first };
        goes_on.ask("echo apple-third");
        let seen = last_request(&model);
        assert!(seen.contains("apple-again") && !seen.contains("pear"), "{protocol:?}: {seen}");
        assert_eq!(count(&server) - before, 3, "{protocol:?}: it went on in its own session");
        // An earlier question that was edited is another branch, which knows what the client sent before it.
        let mut branch = Chat { server: &server, protocol, said: second[..2].to_vec() };
        branch.ask("echo plum");
        let seen = last_request(&model);
        assert!(seen.contains("echo pear") && !seen.contains("pear-again"), "{protocol:?}: {seen}");
        branch.ask("echo plum-again");
        assert!(last_request(&model).contains("echo plum"), "{protocol:?}");
        assert_eq!(count(&server) - before, 4, "{protocol:?}: the branch is one session");
    }
}

#[test]
fn the_oldest_conversations_of_a_client_make_room() {
    let Some((world, _model)) = world_with_model("[serve]\nmax_sessions = 3\n") else { return };
    let made = world.run(&["serve", "key", "create", "few"]);
    let key = made.json()["key"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
    let server = Server::start(&world);
    let header = format!("Authorization: Bearer {key}\r\n");
    for number in 0..5 {
        let body = json!({"messages": [message("user", &format!("echo {number}"))]}).to_string();
        let reply = server.request("POST", "/v1/chat/completions", &header, &body);
        assert_eq!(reply.status, 200, "{number}: {}", reply.body);
    }
    assert_eq!(count(&server), 3);
}

#[test]
fn a_response_is_read_again_and_the_next_goes_on_from_it() {
    let Some(sdks) = sdk::openai() else { return };
    let Some((world, model)) = world_with_model("") else { return };
    let server = Server::start(&world);
    let python = sdks.iter().find(|sdk| sdk.script == "openai.py").expect("it is there");
    let chain = json!([{"api": "chain", "message": "echo apple", "then": "echo pear"}]);
    let answer = python.run(&server.url(), "none", &chain).remove(0);
    assert_eq!(answer["answer"]["previous"], true, "{answer}");
    let seen = last_request(&model);
    assert!(seen.contains("echo apple") && seen.contains("echo pear"), "{seen}");
    assert_eq!(count(&server), 1, "both are one session");
    let second = answer["answer"]["id"].as_str().expect("an id").to_owned();
    let ask = |body: &Value| server.post("/v1/responses", body);
    let third = ask(&json!({"input": "echo plum", "previous_response_id": second, "stream": true}));
    assert!(third.status == 200 && last_request(&model).contains("echo pear"), "{}", third.body);
    for (previous, code) in [(second.as_str(), "invalid-input"), ("resp_unknown", "previous_response_not_found")] {
        let refused = ask(&json!({"input": "echo x", "previous_response_id": previous}));
        let error = &refused.json()["error"];
        assert_eq!((refused.status, error["code"].as_str()), (400, Some(code)), "{}", refused.body);
        assert_eq!(error["param"], "previous_response_id", "{}", refused.body);
    }
    let unkept = ask(&json!({"input": "echo fig", "store": false})).json();
    let path = format!("/v1/responses/{}", unkept["id"].as_str().expect("an id"));
    assert_eq!(server.get(&path).status, 404, "it was not to be stored");
    // Another client does not find it, and a deleted session leaves nothing.
    let made = world.run(&["serve", "key", "create", "other"]);
    let header = format!("Authorization: Bearer {}\r\n", made.json()["key"].as_str().expect("a key"));
    let path = format!("/v1/responses/{second}");
    assert_eq!(server.request("GET", &path, &header, "").status, 404);
    assert_eq!(server.get(&path).status, 200);
    let sessions = server.get("/api/v1/sessions").json();
    let number = sessions["sessions"][0]["number"].as_u64().expect("a number");
    assert_eq!(server.request("DELETE", &format!("/api/v1/session/{number}"), "", "").status, 200);
    assert_eq!(server.get(&path).status, 404);
}

#[test]
fn two_clients_that_ask_the_same_at_once_have_two_conversations() {
    let Some((world, _model)) = world_with_model("") else { return };
    let server = Server::start(&world);
    let hold = world.folder().join("hold");
    std::fs::write(&hold, "").expect("held");
    let body = json!({"stream": true, "messages": [message("user", "How many words are in it?")]}).to_string();
    let streams = [0, 1].map(|_| server.send("POST", "/v1/chat/completions", "", &body));
    until("both are asked", || count(&server) == 2);
    std::fs::remove_file(&hold).expect("released");
    for mut stream in streams {
        let mut read = String::new();
        stream.read_to_string(&mut read).expect("answered");
        assert!(read.contains("There are 3 words."), "{read}");
    }
    assert_eq!(world.run(&["tasks"]).json().as_array().expect("a list").len(), 2);
}
