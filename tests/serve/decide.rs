//! Decisions through the API: only with the scope that a human gave on the page, and only about what was shown.

use std::thread;

use ground::config::api_keys::ApiKeys;
use serde_json::{Value, json};

use super::{Event, Reply, Server, bearer, world_with_model};
use crate::page::human::Human;
use crate::world::until;

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
    let _page = human.open_page();
    let body = json!({"session": "s", "message": "Write a note", "wait": false}).to_string();
    assert_eq!(request(&asker, "POST", "/api/v1/submit", "", &body).status, 202);
    let gate = gate_of(&server, &asker, "s");
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
    let asker = world.make_api_key("asker").key;
    let server = Server::start(&world);
    let _page = human.open_page();
    let body = json!({"session": "s", "message": "Write a note", "wait": false}).to_string();
    server.request("POST", "/api/v1/submit", &bearer(&asker), &body);
    let gate = gate_of(&server, &asker, "s");
    let path = format!("/api/v1/gate/{}", gate.data["id"].as_str().expect("an id"));
    let digest = server.request("GET", &path, &bearer(&decider), "").json()["digest"].clone();
    let no = json!({"decision": "deny", "digest": digest, "note": "not today"}).to_string();
    assert_eq!(server.request("POST", &path, &bearer(&decider), &no).status, 200);
    let after = format!("{}Last-Event-ID: 0.0.0\r\n", bearer(&asker));
    let done = server.follow_with("s", &after).until("done").pop().expect("done");
    assert_eq!(done.data["termination"], "approval_denied", "{done:?}");
    assert!(!world.folder().join("note.txt").exists());
}

#[test]
fn a_key_never_approves_what_it_asked_for_itself() {
    let Some((world, _model)) = world_with_model("") else { return };
    let human = Human::of(&world);
    let (phone, tablet) = (world.make_deciding_key(&human, "phone"), world.make_deciding_key(&human, "tablet"));
    let server = Server::start(&world);
    let _page = human.open_page();
    let post = |key: &str, path: &str, body: &Value| server.request("POST", path, &bearer(key), &body.to_string());
    let gates = |key: &str| server.request("GET", "/api/v1/gates", &bearer(key), "").json()["gates"].clone();
    let model = server.get("/v1/models").json()["data"][0]["id"].as_str().expect("a model").to_owned();
    // By every protocol in which it can ask; a call that was denied is not asked again for a while.
    for (path, number) in [("/api/v1/submit", 1), ("/v1/chat/completions", 2), ("/api/chat", 3), ("/a2a", 4)] {
        let message = format!("run: agent-magic-tool run note text={number}");
        let messages = json!([{"role": "user", "content": message}]);
        let parts = json!({"messageId": path, "role": "ROLE_USER", "parts": [{"text": message}]});
        let body = match number {
            1 => json!({"message": message, "wait": false}),
            4 => json!({"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": {"message": parts}}),
            _ => json!({"model": model, "messages": messages, "stream": true}),
        };
        let _stream = server.send("POST", path, &bearer(&phone), &body.to_string());
        until("it waits", || gates(&phone)[0].is_object());
        let shown = gates(&phone)[0].clone();
        assert_eq!(shown["own"], true, "{path}: {shown}");
        let gate = format!("/api/v1/gate/{}", shown["id"].as_str().expect("an id"));
        let decision = |word: &str| json!({"decision": word, "digest": shown["digest"]});
        let refused = post(&phone, &gate, &decision("approve"));
        assert_eq!((refused.status, refused.code().as_str()), (403, "needs-scope"), "{path}: {}", refused.body);
        assert!(refused.body.contains("asked with the same API key"), "{path}: {}", refused.body);
        let id = shown["id"].as_str().expect("an id");
        assert_eq!(world.result_file(id)["state"], "awaiting_confirmation", "{path}");
        // Another key is a second pair of eyes, and to deny lets nothing happen.
        let other = gates(&tablet)[0].clone();
        assert_eq!((&other["own"], &other["digest"]), (&Value::Null, &shown["digest"]), "{path}");
        let (key, verdict, end) =
            if number % 2 == 0 { (&phone, "deny", "denied") } else { (&tablet, "approve", "succeeded") };
        assert_eq!(post(key, &gate, &decision(verdict)).status, 200, "{path}");
        assert_eq!(world.end_of(id)["status"], end, "{path}");
    }
}

#[test]
fn a_client_that_decides_sees_what_waits_at_once_and_calls_wait_for_it() {
    let Some((world, _model)) = world_with_model("") else { return };
    let human = Human::of(&world);
    let (phone, asker) = (world.make_deciding_key(&human, "phone"), world.make_api_key("asker").key);
    let server = Server::start(&world);
    let ask = |key: &str, number: u32| {
        let message = format!("run: agent-magic-tool run note text={number}");
        let body = json!({"session": format!("s{number}"), "message": message});
        server.request("POST", "/api/v1/submit", &bearer(key), &body.to_string()).json()["answer"].clone()
    };
    for key in [None, Some(&asker)] {
        let refused =
            server.request("GET", "/api/v1/gates/stream", &key.map(|key| bearer(key)).unwrap_or_default(), "");
        assert_eq!((refused.status, refused.code().as_str()), (403, "needs-scope"), "{}", refused.body);
    }
    assert_eq!(ask(&asker, 0), "No one is there to approve it.");
    let mut gates = server.events("/api/v1/gates/stream", &bearer(&phone));
    // It follows, but not for what it asks itself.
    assert_eq!(ask(&phone, 1), "No one is there to approve it.");
    thread::scope(|scope| {
        let answer = scope.spawn(|| ask(&asker, 2));
        let gate = gates.next().expect("a gate");
        assert_eq!((gate.name.as_str(), &gate.data["type"]), ("gate", &json!("gate")), "{gate:?}");
        assert_eq!((&gate.data["subtool"], &gate.data["fields"][0]["value"]["text"]), (&json!("note"), &json!("2")));
        let id = gate.data["id"].as_str().expect("an id");
        let asked_by = gate.data["asked_by"]["key"].as_str().expect("a key");
        assert_eq!(asked_by, format!("asker.{}", asker.split('_').nth(1).expect("an id")));
        let yes = json!({"decision": "approve", "digest": gate.data["digest"]}).to_string();
        assert_eq!(server.request("POST", &format!("/api/v1/gate/{id}"), &bearer(&phone), &yes).status, 200);
        let gone = gates.next().expect("an event");
        assert_eq!((gone.name.as_str(), &gone.data), ("gone", &json!({"type": "gone", "id": id})));
        assert_eq!(answer.join().expect("an answer"), "The note is written.");
    });
    // A stream has everything that waits, whoever asked, and ends with the scope.
    let waiting = world.start("note", &json!({"text": "3"}));
    assert_eq!(gates.next().expect("a gate").data["id"], *waiting);
    let mut second = server.events("/api/v1/gates/stream", &bearer(&phone));
    assert_eq!(second.next().expect("what waits").data["id"], *waiting);
    let hash = ApiKeys::of(&world.paths()).list().expect("readable").into_iter().find(|key| key.name == "phone");
    let taken = human.post("/api-keys/take", &json!({"hash": hash.expect("the key").hash}));
    assert_eq!(taken.status, 200, "{}", taken.body);
    // The executor looks again when something changes.
    world.start("note", &json!({"text": "4"}));
    for mut stream in [gates, second] {
        let last = std::iter::from_fn(|| stream.next()).last().expect("an event");
        assert_eq!((last.name.as_str(), &last.data["error"]["code"]), ("error", &json!("needs-scope")), "{last:?}");
    }
    assert_eq!(ask(&asker, 5), "No one is there to approve it.");
}

#[test]
fn a_task_waits_for_a_key_as_long_as_the_window_and_for_the_page_longer() {
    let Some((world, _model)) = world_with_model("[serve]\ngate_window = \"1s\"\n") else { return };
    let human = Human::of(&world);
    let phone = world.make_deciding_key(&human, "phone");
    let server = Server::start(&world);
    let ask = |number: u32| {
        let message = format!("run: agent-magic-tool run note text={number}");
        server.ask(&format!("s{number}"), &message)["answer"].clone()
    };
    let mut gates = server.events("/api/v1/gates/stream", &bearer(&phone));
    let told = ask(1);
    let waited = gates.next().expect("a gate");
    assert_eq!(waited.name, "gate");
    assert_eq!(gates.next().expect("an event").name, "gone");
    let ended = world.result_file(waited.data["id"].as_str().expect("an id"));
    assert_eq!(
        (&ended["status"], &ended["error"]["message"]),
        (&json!("expired"), &json!("no human answered within 1s")),
        "{told}"
    );
    // With the page open, it waits for the human.
    let _page = human.open_page();
    thread::scope(|scope| {
        let answer = scope.spawn(|| ask(2));
        let gate = gates.next().expect("a gate");
        let expires =
            gate.data["expires_at"].as_str().and_then(|at| at.parse::<jiff::Timestamp>().ok()).expect("a time");
        assert!(expires.duration_since(jiff::Timestamp::now()).as_secs() > 60, "{}", gate.data);
        let id = gate.data["id"].as_str().expect("an id");
        let yes = json!({"decision": "approve", "digest": gate.data["digest"]}).to_string();
        assert_eq!(server.request("POST", &format!("/api/v1/gate/{id}"), &bearer(&phone), &yes).status, 200);
        assert_eq!(answer.join().expect("an answer"), "The note is written.");
    });
}
