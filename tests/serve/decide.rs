//! Decisions through the API: only with the scope that a human gave on the page, and only about what was shown.

use serde_json::json;

use super::{Event, Reply, Server, world_with_model};
use crate::page::human::Human;

fn bearer(key: &str) -> String {
    format!("Authorization: Bearer {key}\r\n")
}

/// Follows a session as the client with this key.
fn gate_of(server: &Server, key: &str, session: &str) -> Event {
    let after = format!("{}Last-Event-ID: 0.0.0\r\n", bearer(key));
    server.follow_with(session, &after).until("gate").pop().expect("a gate")
}

#[test]
fn a_gate_is_answered_by_a_key_that_may_decide_and_by_no_other() {
    let Some((world, _model)) = world_with_model("") else { return };
    let human = Human::of(&world);
    let decider = world.make_deciding_key(&human, "phone");
    let asker = world.make_api_key("asker").key;
    let server = Server::start(&world);
    let request = |key: &str, method: &str, path: &str, headers: &str, body: &str| -> Reply {
        server.request(method, path, &format!("{}{headers}", bearer(key)), body)
    };
    let body = json!({"session": "s", "message": "Write a note", "wait": false}).to_string();
    assert_eq!(request(&decider, "POST", "/api/v1/submit", "", &body).status, 202);
    // No page is open: a client that may decide is there.
    let gate = gate_of(&server, &decider, "s");
    let id = gate.data["id"].as_str().expect("an id").to_owned();
    let path = format!("/api/v1/gate/{id}");
    let shown = request(&decider, "GET", &path, "", "").json();
    assert_eq!((shown["subtool"].as_str(), shown["id"].as_str()), (Some("note"), Some(id.as_str())), "{shown}");
    let digest = shown["digest"].as_str().expect("a digest").to_owned();
    let yes = |digest: &str| json!({"decision": "approve", "digest": digest}).to_string();
    let other = "0".repeat(digest.len());
    let approve = yes(&digest);
    let attempts: Vec<(&str, Reply, u16)> = vec![
        ("without a key", server.request("POST", &path, "", &approve), 403),
        ("with the scope `ask`", request(&asker, "POST", &path, "", &approve), 403),
        ("looking with the scope `ask`", request(&asker, "GET", &path, "", ""), 403),
        ("listing with the scope `ask`", request(&asker, "GET", "/api/v1/gates", "", ""), 403),
        ("with another digest", request(&decider, "POST", &path, "", &yes(&other)), 409),
        ("without a digest", request(&decider, "POST", &path, "", "{\"decision\": \"approve\"}"), 400),
        (
            "with a decision of its own",
            request(&decider, "POST", &path, "", "{\"decision\": \"always\", \"digest\": \"x\"}"),
            400,
        ),
        (
            "twice in one body",
            request(&decider, "POST", &path, "", &format!("{{\"decision\": \"deny\", {}", &approve[1..])),
            400,
        ),
        (
            "about another task",
            request(&decider, "POST", &format!("/api/v1/gate/{}", "0".repeat(32)), "", &approve),
            404,
        ),
        ("about no task", request(&decider, "POST", "/api/v1/gate/x", "", &approve), 400),
        ("from a web page", request(&decider, "POST", &path, "Origin: http://evil.example\r\n", &approve), 403),
        ("for another host", request(&decider, "POST", &path, "Host: evil.example\r\n", &approve), 421),
        ("with a shortened key", request(&decider[..50], "POST", &path, "", &approve), 401),
        ("with GET", request(&decider, "GET", &format!("{path}?decision=approve&digest={digest}"), "", ""), 200),
        ("with PUT", request(&decider, "PUT", &path, "", &approve), 405),
    ];
    for (what, reply, status) in attempts {
        assert_eq!(reply.status, status, "{what}: {}", reply.body);
    }
    // A question and a command decide nothing.
    for (message, status) in [("!approve", 400), ("yes", 200), ("I approve it", 200)] {
        let body = json!({"session": "other", "message": message}).to_string();
        assert_eq!(request(&decider, "POST", "/api/v1/submit", "", &body).status, status, "{message}");
    }
    assert_eq!(world.result_file(&id)["state"], "awaiting_confirmation");
    assert!(!world.folder().join("note.txt").exists());
    let yes = request(&decider, "POST", &path, "", &approve);
    assert_eq!(yes.status, 200, "{}", yes.body);
    assert_eq!(world.end_of(&id)["status"], "succeeded");
    assert_eq!(std::fs::read_to_string(world.folder().join("note.txt")).expect("written"), "hello");
    let replayed = request(&decider, "POST", &path, "", &approve);
    assert_eq!((replayed.status, replayed.code().as_str()), (409, "already-decided"), "{}", replayed.body);
}

#[test]
fn a_no_over_the_api_reaches_the_model() {
    let Some((world, _model)) = world_with_model("") else { return };
    let human = Human::of(&world);
    let decider = world.make_deciding_key(&human, "phone");
    let server = Server::start(&world);
    let body = json!({"session": "s", "message": "Write a note", "wait": false}).to_string();
    server.request("POST", "/api/v1/submit", &bearer(&decider), &body);
    let gate = gate_of(&server, &decider, "s");
    let path = format!("/api/v1/gate/{}", gate.data["id"].as_str().expect("an id"));
    let digest = server.request("GET", &path, &bearer(&decider), "").json()["digest"].clone();
    let no = json!({"decision": "deny", "digest": digest, "note": "not today"}).to_string();
    assert_eq!(server.request("POST", &path, &bearer(&decider), &no).status, 200);
    let after = format!("{}Last-Event-ID: 0.0.0\r\n", bearer(&decider));
    let done = server.follow_with("s", &after).until("done").pop().expect("done");
    assert_eq!(done.data["termination"], "approval_denied", "{done:?}");
    assert!(!world.folder().join("note.txt").exists());
}
