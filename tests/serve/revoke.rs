//! A revoked key: nothing that its clients asked for goes on without them.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Reply, Server, bearer, echo_model, subtools};
use crate::agent::stub::{Stub, StubAnswer};
use crate::page::human::Human;
use crate::world::{World, until};

/// Within this, all of it has ended.
const PROMPTLY: Duration = Duration::from_secs(2);

/// A model that writes a note, and one that answers `hold` only when the file `held` is gone.
fn world() -> (World, Stub) {
    let world = World::new();
    world.define("tests.json", &subtools());
    let stub = Stub::answering(|request, _| {
        let asked = request.json()["messages"].as_array().and_then(|all| all.last().cloned()).unwrap_or_default();
        if asked["role"] == "user" && asked.to_string().contains("Write a note") {
            return StubAnswer::runs("", &["agent-magic-tool run note text=hello"]);
        }
        if asked["role"] == "user" && asked.to_string().contains("Look later") {
            return StubAnswer::runs("", &["agent-magic-tool run look --in 1h"]);
        }
        StubAnswer::says("It is under way.")
    });
    let held = echo_model::start_holding(world.folder().join("held"));
    let echo = format!("[models.echo]\nprovider = \"openai\"\nurl = \"{held}\"\n");
    world.configure(&format!("{}{echo}", stub.configuration("", "")));
    (world, stub)
}

fn submit(server: &Server, key: &str, body: &Value) -> Reply {
    server.request("POST", "/api/v1/submit", &bearer(key), &body.to_string())
}

/// Asks the model that holds its answers, without waiting for it.
fn ask(server: &Server, key: &str, session: &str, message: &str) {
    let body = json!({"session": session, "message": message, "model": "echo", "wait": false, "when_busy": "queue"});
    let reply = submit(server, key, &body);
    assert_eq!(reply.status, 202, "{}", reply.body);
}

/// What our own user sees of a session.
fn state(server: &Server, session: &str) -> Value {
    let number = server.get("/api/v1/sessions").json()["sessions"]
        .as_array()
        .expect("a list")
        .iter()
        .find(|one| one["client"] == session)
        .unwrap_or_else(|| panic!("no session `{session}`"))["number"]
        .clone();
    server.get(&format!("/api/v1/session/{number}")).json()
}

#[test]
fn the_turns_the_queue_and_the_cards_of_a_revoked_key_end_at_once_and_those_of_others_go_on() {
    let (world, _stub) = world();
    let human = Human::of(&world);
    let phone = world.make_deciding_key(&human, "phone");
    let other = world.make_api_key("other").key;
    let made = world.run(&["serve", "key", "create", "proxy", "--history=client", "--model=echo"]).json();
    let proxy = made["key"].as_str().expect("a key").to_owned();
    let server = Server::start(&world);
    let _page = human.open_page();
    let held = || fs::metadata(world.folder().join("held")).expect("it is there").len();

    let body = json!({"session": "card", "message": "Write a note", "wait": false});
    assert_eq!(submit(&server, &phone, &body).status, 202);
    let mut events = server.follow_with("card", &format!("{}Last-Event-ID: 0.0.0\r\n", bearer(&phone)));
    let card = events.until("gate").pop().expect("a gate").data["id"].as_str().expect("an id").to_owned();
    assert_eq!(world.result_file(&card)["state"], "awaiting_confirmation");
    ask(&server, &phone, "turn", "hold one");
    ask(&server, &other, "else", "hold else");
    until("both are asked", || held() == 2);
    ask(&server, &phone, "turn", "echo queued");
    let chat =
        json!({"model": "agent-magic-tool", "messages": [{"role": "user", "content": "hold proxy"}], "stream": false});
    thread::scope(|scope| {
        // Their clients wait for the answers.
        let queued = scope.spawn(|| {
            let body = json!({"session": "turn", "message": "echo waits", "model": "echo", "when_busy": "queue"});
            (submit(&server, &phone, &body), Instant::now())
        });
        let proxied = scope.spawn(|| {
            (server.request("POST", "/v1/chat/completions", &bearer(&proxy), &chat.to_string()), Instant::now())
        });
        until("all are asked", || {
            held() == 3 && state(&server, "turn")["questions"].as_array().is_some_and(|all| all.len() == 2)
        });
        let recorded = world.state().join("serve/questions");
        until("the last is queued", || {
            let files = fs::read_dir(&recorded).expect("a folder").flatten();
            files.filter_map(|file| fs::read_to_string(file.path()).ok()).any(|text| text.contains("echo waits"))
        });

        for name in ["phone", "proxy"] {
            assert_eq!(world.run(&["serve", "key", "revoke", name]).exit, 0);
        }
        let revoked_at = Instant::now();
        until("the card has ended", || world.result_file(&card)["status"] != "pending");
        until("the turn has ended", || state(&server, "turn")["state"] == "idle");
        assert!(revoked_at.elapsed() < PROMPTLY, "{:?}", revoked_at.elapsed());
        let (reply, at) = queued.join().expect("a reply");
        assert!(at.duration_since(revoked_at) < PROMPTLY, "{}", reply.body);
        assert_eq!(
            reply.json()["error"]["message"],
            "cancelled: its API key was revoked or has expired",
            "{}",
            reply.body
        );
        let (reply, at) = proxied.join().expect("a reply");
        assert!(at.duration_since(revoked_at) < PROMPTLY, "{}", reply.body);
    });
    let result = world.result_file(&card);
    assert_eq!((&result["status"], &result["error"]["code"]), (&json!("cancelled"), &json!("cancelled")), "{result}");
    let message = result["error"]["message"].as_str().expect("words");
    assert!(message.contains("its API key was revoked"), "{result}");
    assert!(!world.folder().join("note.txt").exists());
    let questions = state(&server, "turn")["questions"].clone();
    let ends: Vec<_> = questions.as_array().expect("a list").iter().map(|one| &one["termination"]).collect();
    assert_eq!(ends, ["cancelled"], "the queued one is gone: {questions}");

    assert_eq!(submit(&server, &phone, &body).status, 401);
    assert_eq!(state(&server, "else")["state"], "working", "the key of another client");
    fs::remove_file(world.folder().join("held")).expect("removed");
    until("it is answered", || state(&server, "else")["state"] == "idle");
    assert!(state(&server, "else")["answer"].as_str().is_some_and(|answer| answer.contains("else")));
}

#[test]
fn what_a_key_scheduled_does_not_start_after_its_end_and_needs_no_human_for_that() {
    let ends: [fn(&World); 2] = [
        |world| assert_eq!(world.run(&["serve", "key", "revoke", "phone"]).exit, 0),
        |world| {
            let file = world.state().join("serve/keys.json");
            let mut keys: Value = serde_json::from_slice(&fs::read(&file).expect("a file")).expect("JSON");
            let keys_of = keys["keys"].as_array_mut().expect("a list");
            let phone = keys_of.iter_mut().find(|key| key["name"] == "phone").expect("its key");
            phone["expires_at"] = "2020-01-01T00:00:00Z".into();
            fs::write(&file, keys.to_string()).expect("written");
        },
    ];
    for end in ends {
        let (world, _stub) = world();
        check_that_it_does_not_start(&world, end);
    }
}

fn check_that_it_does_not_start(world: &World, end: fn(&World)) {
    let look = json!({"description": "Looks.", "annotations": {"readOnlyHint": true}, "input": {},
        "run": {"process": {"argv": ["true"]}}});
    world.define("look.json", &json!({"look": look}));
    let (phone, other) = (world.make_api_key("phone").key, world.make_api_key("other").key);
    let server = Server::start(world);
    let scheduled = |key: &str, session: &str| {
        let body = json!({"session": session, "message": "Look later", "wait": false});
        assert_eq!(submit(&server, key, &body).status, 202);
        let mut events = server.follow_with(session, &format!("{}Last-Event-ID: 0.0.0\r\n", bearer(key)));
        events.until("task").pop().expect("a task").data["id"].as_str().expect("an id").to_owned()
    };
    let (gone, kept) = (scheduled(&phone, "gone"), scheduled(&other, "kept"));
    let status = |id: &str| world.result_file(id)["status"].clone();
    assert_eq!((status(&gone), status(&kept)), (json!("pending"), json!("pending")));
    end(world);
    until("the task has ended", || status(&gone) == "cancelled");
    assert_eq!(status(&kept), "pending", "the key of another client");
}
