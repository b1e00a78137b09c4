//! The server's own API: questions, events, commands, sessions, and a human's yes on the page.

use std::io::Write as _;

use serde_json::{Value, json};

use super::{Server, world_with_model};
use crate::page::human::Human;
use crate::world::until;

#[test]
fn a_question_is_answered_with_the_events_of_its_turn() {
    let Some((world, _model)) = world_with_model("") else { return };
    let server = Server::start(&world);
    assert_eq!(server.get("/health").json()["status"], "ok");
    let pending = server.post("/api/v1/submit", &json!({"session": "api-1", "message": "Hi", "wait": false}));
    assert_eq!((pending.status, pending.json()["state"].as_str()), (202, Some("working")), "{}", pending.body);
    let mut events = server.follow("api-1", None);
    let answer = server.ask("api-1", "How many words are in it?");
    assert_eq!(answer["answer"], "There are 3 words.");
    assert_eq!((&answer["session"], &answer["id"]), (&json!(101), &json!("api-1")));
    let seen = events.until("done");
    let last = events.until("done").pop().unwrap_or_else(|| seen.last().expect("events").clone());
    assert_eq!(last.data["answer"], "There are 3 words.", "{seen:#?}");
    let all = server.follow("api-1", Some("1.0.0")).until("done");
    let names: Vec<_> = all.iter().map(|event| event.name.as_str()).collect();
    assert!(names.contains(&"tok") && names.last() == Some(&"done"), "{names:?}");
}

#[test]
fn a_stream_resumes_without_loss_and_without_repetition() {
    let Some((world, _model)) = world_with_model("") else { return };
    let server = Server::start(&world);
    server.ask("api-1", "Hi");
    let mut events = server.follow("api-1", None);
    server.post("/api/v1/submit", &json!({"session": "api-1", "message": "Tell a story", "wait": false}));
    let whole = events.until("done");
    let text = |events: &[super::Event]| -> String {
        events.iter().filter(|event| event.name == "tok").filter_map(|event| event.data["text"].as_str()).collect()
    };
    assert_eq!(text(&whole), "Once upon a time there was a tool that waited for its human, and it waited well.");
    for cut in 0..whole.len() - 1 {
        let rest = server.follow("api-1", Some(&whole[cut].id)).until("done");
        assert_eq!(rest, whole[cut + 1..], "after event {cut}");
    }
    let wrong = server.request("GET", "/api/v1/stream/api-1", "Last-Event-ID: x\r\n", "");
    assert_eq!((wrong.status, wrong.code().as_str()), (400, "invalid-input"));
}

#[test]
fn commands_are_done_in_order_and_an_unknown_one_never_reaches_the_model() {
    let Some((world, model)) = world_with_model("") else { return };
    let server = Server::start(&world);
    let answer = server.ask("api-1", "!session\n!model text\n!model\nHi");
    let text = answer["answer"].as_str().expect("text");
    assert!(
        text.starts_with("session 101 (api-1), model openai\nswitched to text\nthe current model is text"),
        "{text}"
    );
    assert!(text.ends_with("Hello."), "{text}");
    let asked = model.asked().len();
    for (message, expected) in [
        ("!help", "!preview"),
        ("!tasks", "no open tasks"),
        ("!tools count words", "count_words"),
        ("!preview 7\n!preview", "7 characters"),
        ("!usage", "this session"),
        ("!sessions", "101"),
        ("!cancel", "nothing is running"),
        ("!models", "* text"),
    ] {
        let answer = server.ask("api-1", message);
        assert!(answer["answer"].as_str().expect("text").contains(expected), "{message}: {answer}");
    }
    let nothing = server.ask("api-2", "!undo")["answer"].clone();
    assert_eq!(nothing, "there is no question to take back\n");
    let wrong = server.post("/api/v1/submit", &json!({"session": "api-1", "message": "!delete 999\nHi"}));
    assert_eq!((wrong.status, wrong.code().as_str()), (404, "not-found"), "{}", wrong.body);
    let wrong = server.post("/api/v1/submit", &json!({"session": "api-1", "message": "!nonsense\nHi"}));
    assert_eq!((wrong.status, wrong.code().as_str()), (400, "invalid-input"), "{}", wrong.body);
    assert!(wrong.body.contains("no command named `!nonsense`"), "{}", wrong.body);
    assert_eq!(model.asked().len(), asked, "no command reached the model");
    server.ask("api-1", "!reset");
    server.ask("api-1", "Hi again");
    let last = model.asked().pop().expect("asked");
    assert!(!last.to_string().contains("\"Hi\""), "the conversation started over: {last}");
}

#[test]
fn the_log_is_named_by_doctor_and_shown_by_logs() {
    let Some((world, _model)) = world_with_model("") else { return };
    assert_eq!(world.run(&["doctor"]).json()["places"]["serve_log"], Value::Null, "it does not exist yet");
    let server = Server::start(&world);
    server.ask("api-1", "Hi");
    let log = world.state().join("serve.log");
    assert_eq!(world.run(&["doctor"]).json()["places"]["serve_log"], json!(log));
    std::fs::OpenOptions::new()
        .append(true)
        .open(&log)
        .and_then(|mut file| file.write_all(b"a line of serve\n"))
        .expect("written");
    let shown = world.run(&["logs", "serve"]);
    assert!(shown.exit == 0 && shown.stdout.ends_with("a line of serve\n"), "{shown}");
    let missing = world.run(&["logs", "agent"]);
    assert_eq!((missing.exit, &missing.error()["code"]), (3, &json!("not-found")), "{missing}");
}

#[test]
fn a_task_waits_for_a_yes_on_the_page_and_is_refused_when_no_human_is_there() {
    let Some((world, _model)) = world_with_model("") else { return };
    let server = Server::start(&world);
    let refused = server.ask("api-1", "Write a note");
    assert_eq!(refused["answer"], "No one is there to approve it.");
    assert_eq!(refused["termination"], "policy_denied");
    let answer = server.ask("api-2", "run: agent-magic-tool run sub q='Write a note' --wait");
    assert!(answer["answer"].as_str().is_some(), "{answer}");
    assert_eq!(
        world.run(&["tasks", "--state", "pending"]).json(),
        json!([]),
        "a sub-agent's call does not wait either"
    );
    let human = Human::of(&world);
    let _page = human.open_page();
    let mut events = server.follow("api-1", None);
    server.post("/api/v1/submit", &json!({"session": "api-1", "message": "Write a note", "wait": false}));
    let gate = events.until("gate").pop().expect("a gate");
    assert_eq!(gate.data["subtool"], "note");
    let id = gate.data["id"].as_str().expect("an id").to_owned();
    world.decide(&id, "approve", "");
    let done = events.until("done").pop().expect("done");
    assert_eq!(done.data["answer"], "The note is written.");
    assert_eq!(std::fs::read_to_string(world.folder().join("note.txt")).expect("written"), "hello");
}

#[test]
fn sessions_are_listed_reset_and_deleted() {
    let Some((world, _model)) = world_with_model("") else { return };
    let server = Server::start(&world);
    for session in ["api-1", "api-2"] {
        server.ask(session, "Hi");
    }
    let new = server.post("/api/v1/submit", &json!({"message": "Hi"})).json();
    assert!(new["id"].as_str().is_some_and(|id| id.starts_with("api-") && id.len() == 12), "{new}");
    let numbers = |server: &Server| -> Vec<Value> {
        let listed = server.get("/api/v1/sessions").json();
        listed["sessions"].as_array().expect("a list").iter().map(|session| session["number"].clone()).collect()
    };
    assert_eq!(numbers(&server), [101, 102, 103]);
    // The terminal lists and asks the same sessions, once the server has put them down.
    assert_eq!(world.run(&["agent", "--sessions"]).json()[0]["client"]["id"], "api-1");
    assert_eq!(server.request("DELETE", "/api/v1/session/102", "", "").json()["state"], "deleted");
    assert_eq!(server.post("/api/v1/session/api-1/reset", &json!({})).json()["session"], 101);
    assert_eq!(server.get("/api/v1/stream/102").status, 404);
    drop(server);
    let server = Server::start(&world);
    assert_eq!(numbers(&server), [101, 103], "kept over a restart");
    assert_eq!(server.ask("101", "Hi")["id"], "101");
}

#[test]
fn a_repeated_submit_is_one_question() {
    let Some((world, model)) = world_with_model("") else { return };
    let server = Server::start(&world);
    let send = |key: &str, message: &str| {
        let body = json!({"message": message}).to_string();
        server.request("POST", "/api/v1/submit", &format!("Idempotency-Key: {key}\r\n"), &body)
    };
    let first = send("k1", "How many words are in it?");
    assert_eq!(first.json()["answer"], "There are 3 words.", "{}", first.body);
    let asked = model.asked().len();
    let again = send("k1", "How many words are in it?");
    assert_eq!(again.json()["answer"], "There are 3 words.", "{}", again.body);
    assert_eq!((again.json()["session"].clone(), model.asked().len()), (first.json()["session"].clone(), asked));
    assert_eq!(send("k1", "echo other").code(), "idempotency-mismatch");
    assert_ne!(send("k2", "echo other").json()["session"], first.json()["session"]);
    let state = server.get("/api/v1/session/101").json();
    assert_eq!((state["state"].as_str(), state["answer"].as_str()), (Some("idle"), Some("There are 3 words.")));
    // Also if the repetitions come at the same time.
    let asked = model.asked().len();
    std::thread::scope(|scope| {
        let repeated: Vec<_> = (0..8).map(|_| scope.spawn(|| send("k3", "echo once").json())).collect();
        for answer in repeated {
            assert_eq!(answer.join().expect("answered")["answer"], ["once"; 8].join(" "));
        }
    });
    assert_eq!(model.asked().len(), asked + 1);
}

#[test]
fn a_second_question_waits_or_stops_the_first() {
    let Some((world, _model)) = world_with_model("") else { return };
    let server = Server::start(&world);
    std::fs::write(world.folder().join("hold"), "").expect("written");
    server.post("/api/v1/submit", &json!({"session": "a", "message": "How many words?", "wait": false}));
    until("the task runs", || {
        server.ask("a", "!tasks")["answer"].as_str().is_some_and(|text| text.contains("running"))
    });
    let queued = json!({"session": "a", "message": "echo queued", "wait": false, "when_busy": "queue"});
    assert_eq!(server.post("/api/v1/submit", &queued).status, 202);
    let now = json!({"session": "a", "message": "echo now", "when_busy": "cancel"});
    let answer = server.post("/api/v1/submit", &now).json();
    assert!(answer["answer"].as_str().expect("text").contains("now"), "{answer}");
    std::fs::remove_file(world.folder().join("hold")).expect("removed");
}

#[test]
fn every_path_is_described_and_a_wrong_body_says_what_is_wrong() {
    let Some((world, _model)) = world_with_model("") else { return };
    let server = Server::start(&world);
    let document = server.get("/openapi.json").json();
    assert_eq!(document, world.run(&["serve", "openapi"]).json());
    for (path, methods) in document["paths"].as_object().expect("paths") {
        for method in methods.as_object().expect("methods").keys() {
            let path = path.replace("{session}", "none").replace("{id}", "none");
            let reply = server.request(&method.to_uppercase(), &path, "", "");
            assert!(reply.status != 405 && !reply.body.contains("there is no path"), "{method} {path}: {}", reply.body);
        }
    }
    for (body, expected) in [
        ("", "invalid-json"),
        ("{", "invalid-json"),
        ("{}", "invalid-input"),
        ("{\"message\": 5}", "invalid-input"),
        ("{\"message\": \"x\", \"mesage\": \"y\"}", "invalid-input"),
        ("{\"message\": \"x\", \"message\": \"y\"}", "invalid-json"),
        ("{\"message\": \"  \"}", "invalid-input"),
        ("{\"message\": \"x\", \"timeout\": -1}", "invalid-input"),
        ("{\"message\": \"x\", \"session\": \"../x\"}", "invalid-input"),
        ("{\"message\": \"x\", \"session\": \"999\"}", "not-found"),
        ("{\"message\": \"x\", \"model\": \"none\"}", "no-model"),
    ] {
        let reply = server.request("POST", "/api/v1/submit", "", body);
        assert_eq!(reply.code(), expected, "{body}: {}", reply.body);
        assert!(reply.json()["error"]["hint"].is_string(), "{}", reply.body);
    }
    let wrong = server.request("POST", "/api/v1/submit", "", "{}").json();
    assert_eq!(wrong["error"]["message"], "the body is not what this path takes: `message` is missing");
    for (method, path, named) in [
        ("POST", "/api/v1/session/x/cancel?tasks=1", "`tasks`"),
        ("DELETE", "/api/v1/session/x?tasks=x", "`tasks`"),
        ("GET", "/api/v1/stream/x?until=a&until=b", "`until`"),
        ("GET", "/api/v1/session/%ff", "`session`"),
        ("GET", "/api/v1/gate/%ff", "`id`"),
    ] {
        let reply = server.request(method, path, "", "");
        assert_eq!((reply.status, reply.code().as_str()), (400, "invalid-input"), "{path}: {}", reply.body);
        let message = reply.json()["error"]["message"].to_string();
        assert!(message.contains(named), "{path}: {message}");
    }
    assert_eq!(server.get("/nowhere").status, 404);
    let unknown = server.get("/api/v1/session/none").json();
    assert!(unknown["error"]["hint"].to_string().contains("GET /api/v1/sessions"), "{unknown}");
    assert_eq!(server.request("PUT", "/api/v1/submit", "", "{}").status, 405);
}

#[test]
fn a_deadline_says_that_it_has_passed() {
    let Some((world, _model)) = world_with_model("") else { return };
    let server = Server::start(&world);
    std::fs::write(world.folder().join("hold"), "").expect("written");
    let body = json!({"session": "a", "message": "How many words?", "limits": {"deadline": 0.5}});
    let stopped = server.post("/api/v1/submit", &body).json();
    assert_eq!(
        (&stopped["termination"], &stopped["truncated"]),
        (&json!("deadline_exceeded"), &json!(true)),
        "{stopped}"
    );
    std::fs::remove_file(world.folder().join("hold")).expect("removed");
}

#[test]
fn an_answer_whose_client_has_gone_begins_the_very_next_one_and_no_other() {
    let Some((world, _model)) = world_with_model("") else { return };
    let server = Server::start(&world);
    std::fs::write(world.folder().join("hold"), "").expect("written");
    let submit = |message: &str| {
        let body = json!({"session": "a", "message": message, "when_busy": "queue"}).to_string();
        server.send("POST", "/api/v1/submit", "", &body)
    };
    let gone = submit("How many words are in it?");
    until("the task runs", || server.get("/api/v1/session/a").json()["open"][0]["state"] == "running");
    let ledger = world.state().join("serve/questions/101.json");
    let others = ["echo second", "echo third", "echo fourth"].map(|message| {
        let client = submit(message);
        until("it is queued", || std::fs::read_to_string(&ledger).is_ok_and(|text| text.contains(message)));
        client
    });
    // While the first one is still worked on.
    drop(gone);
    std::fs::remove_file(world.folder().join("hold")).expect("removed");
    let answers = others.map(|mut client| {
        let mut answer = String::new();
        std::io::Read::read_to_string(&mut client, &mut answer).expect("answered");
        answer
    });
    let is_told = |answer: &String| answer.contains("(The answer to your earlier question: There are 3 words.)");
    assert_eq!(answers.each_ref().map(is_told), [true, false, false], "{answers:#?}");
}

#[test]
fn a_question_that_stops_the_current_one_leaves_those_that_are_queued() {
    let Some((world, _model)) = world_with_model("") else { return };
    let server = Server::start(&world);
    std::fs::write(world.folder().join("hold"), "").expect("written");
    let ask = |message: &str, when_busy: &str| {
        let body = json!({"session": "a", "message": message, "wait": false, "when_busy": when_busy});
        let reply = server.post("/api/v1/submit", &body).json();
        (reply["question"].as_str().expect("an id").to_owned(), reply["state"].clone())
    };
    ask("How many words are in it?", "queue");
    until("the task runs", || server.get("/api/v1/session/a").json()["open"][0]["state"] == "running");
    let (second, state) = ask("echo second", "queue");
    assert_eq!(state, "queued");
    ask("echo third", "cancel");
    let state = || server.get("/api/v1/session/a").json();
    until("all are answered", || {
        state()["questions"].as_array().is_some_and(|all| all.iter().all(|one| one["state"] == "ended"))
    });
    let ends: Vec<_> =
        state()["questions"].as_array().expect("a list").iter().map(|one| one["termination"].clone()).collect();
    assert_eq!(ends, ["cancelled", "completed", "completed"]);
    let events = server.follow(&format!("a?question={second}"), None).until("done");
    assert_eq!(events.last().expect("an end").data["answer"], ["second"; 8].join(" "));
    std::fs::remove_file(world.folder().join("hold")).expect("removed");
}

#[test]
fn a_queued_question_of_a_session_that_is_started_over_or_deleted_has_an_end() {
    let Some((world, _model)) = world_with_model("") else { return };
    let server = Server::start(&world);
    std::fs::write(world.folder().join("hold"), "").expect("written");
    let queue = |session: &str, message: &str| {
        let body = json!({"session": session, "message": message, "wait": false, "when_busy": "queue"});
        server.post("/api/v1/submit", &body).json()["question"].as_str().expect("an id").to_owned()
    };
    for (method, path) in [("POST", "/api/v1/session/a/reset"), ("DELETE", "/api/v1/session/a")] {
        queue("a", "How many words are in it?");
        until("its end is waited for", || server.get("/api/v1/session/a").json()["state"] == "waiting");
        let second = queue("a", "echo second");
        let mut stream = server.follow(&format!("a?question={second}"), None);
        assert_eq!(server.request(method, path, "", "").status, 200);
        let end = stream.until("error").pop().expect("an end");
        assert_eq!(end.data["error"]["code"], "not-found", "{method}: {end:?}");
    }
    std::fs::remove_file(world.folder().join("hold")).expect("removed");
}
