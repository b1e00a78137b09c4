//! Whose a session is, which model it has and what limits a question, over every protocol.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};

use super::{Server, world_with_model};
use crate::agent::stub::{Stub, StubAnswer};
use crate::world::{World, until};

/// A way to ask in a conversation that the client names.
const PROTOCOLS: [&str; 7] =
    ["api", "chat with a header", "chat with a user", "responses", "ollama chat", "ollama generate", "a2a"];

/// Sends a message in the conversation of this name, and returns the body of the answer.
fn send(server: &Server, headers: &str, protocol: &str, name: &str, message: &str) -> String {
    let messages = json!([{"role": "user", "content": message}]);
    let chat = json!({"model": "agent-magic-tool", "messages": messages, "stream": false});
    let with = |mut body: Value, field: &str, value: Value| {
        body[field] = value;
        body
    };
    let named = format!("X-Session-Id: {name}\r\n");
    let (path, more, body) = match protocol {
        "api" => ("/api/v1/submit", "", json!({"session": name, "message": message})),
        "chat with a header" => ("/v1/chat/completions", named.as_str(), chat),
        "chat with a user" => ("/v1/chat/completions", "", with(chat, "user", json!(name))),
        "responses" => ("/v1/responses", "", json!({"model": "m", "input": message, "conversation": {"id": name}})),
        "ollama chat" => ("/api/chat", named.as_str(), chat),
        "ollama generate" => {
            ("/api/generate", named.as_str(), json!({"model": "agent-magic-tool", "prompt": message, "stream": false}))
        }
        "a2a" => {
            let id = message_id();
            let message =
                json!({"messageId": id, "contextId": name, "role": "ROLE_USER", "parts": [{"text": message}]});
            ("/a2a", "", json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}))
        }
        other => unreachable!("{other}"),
    };
    server.request("POST", path, &format!("{headers}{more}"), &body.to_string()).body
}

/// An id that no other message has.
fn message_id() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    format!("m{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The number and the id of the session, as `!session` tells them.
fn session(server: &Server, headers: &str, protocol: &str, name: &str) -> (u32, String) {
    let body = send(server, headers, protocol, name, "!session");
    let told = body.split("session ").skip(1).find_map(|rest| {
        let (number, rest) = rest.split_once(" (")?;
        Some((number.parse().ok()?, rest.split_once(')')?.0.to_owned()))
    });
    told.unwrap_or_else(|| panic!("{protocol}: {body}"))
}

#[test]
fn the_same_name_is_another_session_for_each_key_and_for_our_own_user() {
    let Some((world, _model)) = world_with_model("") else { return };
    let key = |name: &str| {
        let made = world.run(&["serve", "key", "create", name]).json();
        format!("Authorization: Bearer {}\r\n", made["key"].as_str().expect("a key"))
    };
    let (one, other, own) = (key("one"), key("other"), String::new());
    let server = Server::start(&world);
    // Our own user may use any session, so it comes before and after the keys.
    for order in [[&own, &one, &other], [&one, &other, &own]] {
        let round = if order[0].is_empty() { "first" } else { "second" };
        for protocol in PROTOCOLS {
            let mut sessions = BTreeMap::new();
            for headers in order {
                let (number, id) = session(&server, headers, protocol, &format!("{round}-same"));
                assert_eq!(session(&server, headers, protocol, &format!("{round}-same")).0, number, "{protocol}");
                sessions.insert(number, (headers, id));
            }
            assert_eq!(sessions.len(), 3, "{protocol}: {sessions:#?}");
            for (number, (owner, id)) in &sessions {
                for headers in order.into_iter().filter(|headers| headers != owner) {
                    assert_ne!(session(&server, headers, protocol, id).0, *number, "{protocol}: named by its whole id");
                    if headers.is_empty() {
                        continue;
                    }
                    for name in [id.clone(), number.to_string()] {
                        for (method, path) in [("GET", ""), ("POST", "/reset"), ("POST", "/cancel"), ("DELETE", "")] {
                            let path = format!("/api/v1/session/{name}{path}");
                            let reply = server.request(method, &path, headers, "");
                            // Of its whole id, this key may have made a session of its own.
                            let is_own = reply.status == 200 && protocol == "api" && name != number.to_string();
                            assert!(reply.status == 404 || is_own, "{method} {path}: {}", reply.body);
                        }
                        let stream = server.request("GET", &format!("/api/v1/stream/{number}"), headers, "");
                        assert_eq!(stream.status, 404, "{}", stream.body);
                    }
                    let deleted = send(&server, headers, protocol, "deletes", &format!("!delete {number}"));
                    assert!(deleted.contains("no session"), "{protocol}: {deleted}");
                    let listed = send(&server, headers, protocol, "deletes", "!sessions");
                    assert!(!listed.contains(&format!(" {number} ")), "{protocol}: {listed}");
                }
            }
        }
    }
}

#[test]
fn a_model_that_is_named_before_a_question_answers_it_alone_and_one_that_is_switched_to_stays() {
    let Some((world, _model)) = world_with_model("") else { return };
    let mut server = Server::start(&world);
    let mut expected = "openai";
    for (number, (message, once, restarts)) in [
        ("echo a", None, false),
        ("@anthropic echo b", Some("anthropic"), false),
        ("echo c", None, false),
        ("@anthropic echo d", Some("anthropic"), true),
        ("echo e", None, false),
        ("@anthropic echo f", Some("anthropic"), false),
        ("@gemini echo g", Some("gemini"), true),
        ("!model ollama\necho h", None, true),
        ("echo i", None, false),
        ("@anthropic echo j", Some("anthropic"), false),
        ("!reset\necho k", None, false),
        ("@anthropic echo l", Some("anthropic"), false),
        ("!reset", None, true),
        ("echo m", None, false),
        ("@anthropic echo n", Some("anthropic"), false),
        ("!model anthropic\necho o", None, true),
        ("echo p", None, false),
    ]
    .into_iter()
    .enumerate()
    {
        expected = match message.split_whitespace().take(2).collect::<Vec<_>>()[..] {
            ["!model", name] => name,
            _ => expected,
        };
        let answer = server.ask("a", message);
        if message != "!reset" {
            assert_eq!(answer["model"], once.unwrap_or(expected), "{number} {message}: {answer}");
        }
        let current = server.ask("a", "!model");
        let says = format!("the current model is {expected};");
        assert!(current["answer"].as_str().expect("text").starts_with(&says), "{number} {message}: {current}");
        if restarts {
            server.kill();
            server = Server::start(&world);
        }
    }
}

/// Neither is it asked, nor does its name stand on another model's answer.
#[test]
fn a_model_that_may_not_see_a_conversation_is_refused_in_it() {
    let world = World::new();
    world.define(
        "keys.json",
        &json!({"keys": {"description": "Returns keys.", "input": {"type": "object"}, "data_class": "secret",
            "annotations": {"readOnlyHint": true}, "run": {"process": {"argv": ["echo", "data"]}}}}),
    );
    let stub = Stub::answering(|request, _| {
        if String::from_utf8_lossy(&request.body).contains("run keys") {
            StubAnswer::says("Done.")
        } else {
            StubAnswer::runs("", &["agent-magic-tool run keys --wait"])
        }
    });
    let config = stub.configuration("", "");
    world.configure(&config.replace("provider = \"gemini\"", "provider = \"gemini\"\ntrust = \"public\""));
    let server = Server::start(&world);
    assert_eq!(server.ask("a", "Read the keys")["answer"], "Done.");
    let asked = stub.received().len();
    for message in ["@gemini And?", "!model gemini"] {
        let body = json!({"session": "a", "message": message});
        let reply = server.request("POST", "/api/v1/submit", "", &body.to_string());
        assert!(
            reply.body.contains("which the model `gemini` may not get"),
            "{message}: {} {}",
            reply.status,
            reply.body
        );
        assert_eq!(stub.received().len(), asked, "{message}");
    }
    assert_eq!(server.ask("a", "And now?")["model"], "openai");
}

#[test]
fn no_client_raises_a_limit_of_the_configuration() {
    let Some((world, _model)) = world_with_model("steps = 2") else { return };
    let server = Server::start(&world);
    for (steps, requests) in [(json!(1), 2), (json!(2), 3), (json!(50), 3), (Value::Null, 3)] {
        let question = "How many words are in it?";
        let limits = json!({"steps": steps});
        let api = server.post("/api/v1/submit", &json!({"message": question, "limits": limits})).json();
        assert_eq!(
            (&api["termination"], &api["usage"]["requests"]),
            (&json!("max_iterations"), &json!(requests)),
            "{api}"
        );
        let message = json!({"messageId": format!("m{steps}"), "role": "ROLE_USER", "parts": [{"text": question}],
            "metadata": {"agent-magic-tool": {"limits": limits}}});
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}});
        let task = server.post("/a2a", &call).json();
        let told = &task["result"]["task"]["metadata"]["agent-magic-tool"];
        assert_eq!(
            (&told["termination"], &told["usage"]["requests"]),
            (&api["termination"], &json!(requests)),
            "{task:#}"
        );
    }
}

#[test]
fn a_client_that_comes_back_for_its_answer_is_told_the_earlier_ones_too() {
    let Some((world, _model)) = world_with_model("") else { return };
    let server = Server::start(&world);
    let hold = world.folder().join("hold");
    std::fs::write(&hold, "").expect("written");
    let submit = |message: &str| {
        let body = json!({"session": "a", "message": message, "when_busy": "queue"}).to_string();
        server.send("POST", "/api/v1/submit", "", &body)
    };
    let ledger = world.state().join("serve/questions/101.json");
    let recorded = || std::fs::read_to_string(&ledger).unwrap_or_default();
    let gone = submit("How many words are in it?");
    until("the task runs", || server.get("/api/v1/session/a").json()["open"][0]["state"] == "running");
    let second = submit("echo second");
    until("it is queued", || recorded().contains("echo second"));
    drop(gone);
    std::fs::remove_file(&hold).expect("removed");
    // Its answer is there, and its client reads none of it.
    until("it is answered", || server.get("/api/v1/session/a").json()["state"] == "idle");
    let question = serde_json::from_str::<Value>(&recorded()).expect("JSON")["asked"]
        .as_array()
        .and_then(|all| all.iter().find(|asked| asked["question"]["text"] == "echo second"))
        .map(|asked| asked["question"]["id"].as_str().expect("an id").to_owned());
    let earlier = "(The answer to your earlier question: There are 3 words.)";
    let question = question.unwrap_or_else(|| panic!("{}", recorded()));
    let events = server.follow(&format!("a?question={question}"), None).until("done");
    let done = events.last().expect("an end").data["answer"].as_str().expect("text").to_owned();
    assert!(done.starts_with(earlier) && done.ends_with(" second"), "{done}");
    let said: String = events.iter().filter_map(|event| event.data["text"].as_str()).collect();
    assert_eq!(said.matches(earlier).count(), 1, "{said}");
    let mut answer = String::new();
    { second }.read_to_string(&mut answer).expect("answered");
    assert!(answer.contains(earlier), "{answer}");
}
