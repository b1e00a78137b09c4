//! What one API key may have at once: questions, requests and sessions.

use std::fs;
use std::process::Stdio;

use serde_json::{Value, json};

use super::{Reply, Server, echo_model, world_with_model};
use crate::world::{World, until};

/// The default of `max_turns`.
const TURNS: usize = 16;
/// The most requests of one key that are answered at once.
const REQUESTS: usize = 256;

/// A world whose model answers `hold` only when the file `held` is gone.
fn world_with_held_model(more: &str) -> World {
    let world = World::new();
    let url = echo_model::start_holding(world.folder().join("held"));
    world.configure(&echo_model::configuration(&url, more));
    world
}

/// How many questions wait for that.
fn held(world: &World) -> u64 {
    fs::metadata(world.folder().join("held")).expect("it is there").len()
}

fn release(world: &World) {
    fs::remove_file(world.folder().join("held")).expect("removed");
}

/// The header with a new key of this name.
fn key(world: &World, name: &str, more: &[&str]) -> String {
    let mut words = vec!["serve", "key", "create", name];
    words.extend(more);
    format!("Authorization: Bearer {}\r\n", world.run(&words).json()["key"].as_str().expect("a key"))
}

fn submit(server: &Server, key: &str, body: &Value) -> Reply {
    server.request("POST", "/api/v1/submit", key, &body.to_string())
}

/// Asks without waiting for the answer.
fn ask(server: &Server, key: &str, session: &str, message: &str) -> Reply {
    submit(server, key, &json!({"session": session, "message": message, "wait": false, "when_busy": "queue"}))
}

fn chat(message: &str) -> String {
    json!({"model": "agent-magic-tool", "messages": [{"role": "user", "content": message}], "stream": false})
        .to_string()
}

fn a2a_message(text: &str) -> Value {
    json!({"message": {"messageId": text, "role": "ROLE_USER", "parts": [{"text": text}]}})
}

fn a2a_call(text: &str) -> String {
    json!({"jsonrpc": "2.0", "id": 7, "method": "SendMessage", "params": a2a_message(text)}).to_string()
}

fn sessions(server: &Server, key: &str) -> usize {
    let listed = server.request("GET", "/api/v1/sessions", key, "").json();
    listed["sessions"].as_array().expect("a list").len()
}

#[test]
fn a_key_that_asks_too_much_at_once_is_refused_in_every_protocol_and_others_are_answered() {
    let world = world_with_held_model("");
    let (one, other) = (key(&world, "one", &[]), key(&world, "other", &[]));
    let server = Server::start(&world);
    // Two of them wait in one session for the first there.
    for number in 0..TURNS - 1 {
        let session = format!("s{}", number.min(TURNS - 4));
        let reply = ask(&server, &one, &session, &format!("hold {number}"));
        assert_eq!(reply.status, 202, "{}", reply.body);
    }
    // The client of this one goes away, and its turn goes on.
    let body = json!({"session": "gone", "message": "hold gone"}).to_string();
    let waiting = server.send("POST", "/api/v1/submit", &one, &body);
    let ledgers = world.state().join("serve/questions");
    until("it is recorded", || {
        let files = fs::read_dir(&ledgers).into_iter().flatten().flatten();
        files.filter_map(|file| fs::read_to_string(file.path()).ok()).any(|text| text.contains("hold gone"))
    });
    assert_eq!(sessions(&server, &one), TURNS - 2);
    drop(waiting);

    let refused = ask(&server, &one, "new", "echo one");
    assert_eq!((refused.status, refused.code().as_str()), (429, "throttled"), "{}", refused.body);
    assert_eq!(refused.headers["retry-after"], "2");
    let error = &refused.json()["error"];
    assert_eq!(error["message"], "the API key `one` may ask 16 questions at once, and that many are unanswered");
    assert!(error["hint"].as_str().expect("a hint").contains("max_turns"), "{error}");
    let queued = ask(&server, &one, "s0", "echo one");
    assert_eq!(queued.status, 429, "also in a session that it has: {}", queued.body);
    let commands = ask(&server, &one, "s0", "!delete s1\necho one");
    assert_eq!(commands.status, 429, "{}", commands.body);

    let openai = server.request("POST", "/v1/chat/completions", &one, &chat("echo one"));
    let error = &openai.json()["error"];
    assert_eq!(
        (openai.status, &error["type"], &error["code"]),
        (429, &json!("rate_limit_error"), &json!("rate_limit_exceeded"))
    );
    assert_eq!((openai.headers["retry-after"].as_str(), openai.headers["x-should-retry"].as_str()), ("2", "true"));
    let ollama = server.request("POST", "/api/chat", &one, &chat("echo one"));
    assert_eq!((ollama.status, ollama.headers["retry-after"].as_str()), (429, "2"), "{}", ollama.body);
    assert!(ollama.json()["error"].as_str().is_some_and(|error| error.contains("16 questions")), "{}", ollama.body);
    let rpc = server.request("POST", "/a2a", &one, &a2a_call("echo one"));
    assert_eq!((rpc.status, rpc.headers["retry-after"].as_str()), (429, "2"), "{}", rpc.body);
    let error = &rpc.json()["error"];
    assert_eq!((&rpc.json()["id"], &error["code"]), (&json!(7), &json!(-32000)), "{}", rpc.body);
    assert_eq!(error["data"][0]["metadata"]["code"], "throttled", "{error}");
    let rest = server.request("POST", "/a2a/message:send", &one, &a2a_message("echo one").to_string());
    assert_eq!((rest.status, rest.headers["retry-after"].as_str()), (429, "2"), "{}", rest.body);
    assert_eq!(rest.json()["error"]["status"], "RESOURCE_EXHAUSTED");

    // Nothing is left of what was refused, commands are no questions, and a repeated question is the first one.
    assert_eq!(sessions(&server, &one), TURNS - 2);
    let told = submit(&server, &one, &json!({"session": "s0", "message": "!session"})).json();
    assert!(told["answer"].as_str().is_some_and(|text| text.contains("(s0)")), "{told}");
    assert_eq!(ask(&server, &one, "s0", "hold 0").status, 202);
    // Others are answered.
    for (who, headers) in [("another key", other.as_str()), ("our own user", "")] {
        let answer = submit(&server, headers, &json!({"session": "o", "message": "echo hello"}));
        assert!(
            answer.json()["answer"].as_str().is_some_and(|text| text.starts_with("hello")),
            "{who}: {}",
            answer.body
        );
    }

    assert_eq!(ask(&server, &one, "new", "echo one").status, 429, "also those whose client has gone still count");
    release(&world);
    until("a turn has ended", || ask(&server, &one, "new", "echo one").status == 202);
    // The very message that was refused is taken.
    until("it is answered", || {
        let again = server.request("POST", "/a2a", &one, &a2a_call("echo one"));
        again.json()["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    });
    until("so is this", || server.request("POST", "/v1/chat/completions", &one, &chat("echo one")).status == 200);
}

#[test]
fn a_client_that_keeps_the_history_has_the_same_limit_and_frees_its_place_when_it_goes() {
    let world = world_with_held_model("[serve]\nmax_turns = 2\n");
    let one = key(&world, "one", &["--history=client"]);
    let server = Server::start(&world);
    let ask = |message: &str| server.request("POST", "/v1/chat/completions", &one, &chat(message));
    let mut open: Vec<_> =
        (0..2).map(|_| server.send("POST", "/v1/chat/completions", &one, &chat("hold it"))).collect();
    until("both are asked", || held(&world) == 2);
    assert_eq!(ask("echo one").status, 429);
    // The work on it is for its client alone, and stops when that has gone.
    open.pop();
    until("one has gone", || ask("echo one").status == 200);
    release(&world);
}

#[test]
fn a_turn_counts_until_it_ends_also_over_a_restart() {
    let world = world_with_held_model("[serve]\nmax_turns = 1\n");
    let one = key(&world, "one", &[]);
    let server = Server::start(&world);
    assert_eq!(ask(&server, &one, "a", "hold a").status, 202);
    assert_eq!(ask(&server, &one, "b", "echo b").status, 429);
    server.kill();
    let server = Server::start(&world);
    // Each time another question: one that is repeated is joined.
    let mut asked = 0..;
    until("the session goes on", || ask(&server, &one, "b", &format!("echo {:?}", asked.next())).status == 429);
    release(&world);
    until("its turn has ended", || ask(&server, &one, "b", "echo b").status == 202);
    // A turn that is stopped, or whose session is deleted, counts no longer.
    fs::write(world.folder().join("held"), "").expect("written");
    until("the other one has ended", || ask(&server, &one, "c", "hold c").status == 202);
    // Also if the model is not asked yet.
    assert_eq!(server.request("POST", "/api/v1/session/c/cancel", &one, "").json()["state"], "stopped");
    until("it is stopped", || ask(&server, &one, "d", "hold d").status == 202);
    assert_eq!(ask(&server, &one, "e", "echo e").status, 429);
    assert_eq!(server.request("DELETE", "/api/v1/session/d", &one, "").json()["state"], "deleted");
    until("it is deleted", || ask(&server, &one, "e", "echo e").status == 202);
    release(&world);
}

#[test]
fn a_key_has_a_number_of_sessions_also_after_a_restart() {
    let world = world_with_held_model("[serve]\nmax_sessions = 2\n");
    let (one, other) = (key(&world, "one", &[]), key(&world, "other", &[]));
    let server = Server::start(&world);
    let ask = |server: &Server, key: &str, session: &str| {
        submit(server, key, &json!({"session": session, "message": "echo x"}))
    };
    for session in ["a", "b", "a"] {
        assert_eq!(ask(&server, &one, session).status, 200);
    }
    drop(server);
    let server = Server::start(&world);
    let refused = ask(&server, &one, "c");
    assert_eq!((refused.status, refused.code().as_str()), (403, "too-many-sessions"), "{}", refused.body);
    let error = &refused.json()["error"];
    assert_eq!(error["message"], "the API key `one` may have 2 sessions, and has that many");
    let hint = error["hint"].as_str().expect("a hint");
    assert!(hint.contains("DELETE /api/v1/session/{id}") && hint.contains("!delete N"), "{hint}");
    let openai = server.request("POST", "/v1/chat/completions", &one, &chat("echo one"));
    assert_eq!((openai.status, openai.headers["x-should-retry"].as_str()), (403, "false"), "{}", openai.body);
    let rest = server.request("POST", "/a2a/message:send", &one, &a2a_message("echo one").to_string()).json();
    assert_eq!(rest["task"]["status"]["state"], "TASK_STATE_REJECTED", "{rest}");
    for (who, headers) in [("another key", other.as_str()), ("our own user", ""), ("our own user again", "")] {
        assert_eq!(ask(&server, headers, &who.replace(' ', "-")).status, 200, "{who}");
    }
    let deleted = submit(&server, &one, &json!({"session": "a", "message": "!delete b"})).json();
    assert!(deleted["answer"].as_str().is_some_and(|text| text.contains("its open tasks continue")), "{deleted}");
    assert_eq!(ask(&server, &one, "c").status, 200);
    assert_eq!(ask(&server, &one, "d").status, 403);
    assert_eq!(server.request("DELETE", "/api/v1/session/a", &one, "").status, 200);
    assert_eq!(ask(&server, &one, "d").status, 200);
}

#[test]
fn a_key_has_a_number_of_streams_at_once() {
    let world = world_with_held_model("");
    let (one, other) = (key(&world, "one", &[]), key(&world, "other", &[]));
    let server = Server::start(&world);
    for key in [&one, &other] {
        assert_eq!(submit(&server, key, &json!({"session": "a", "message": "echo x"})).status, 200);
    }
    let mut streams: Vec<_> = (0..REQUESTS).map(|_| server.follow_with("a", &one)).collect();
    let refused = server.request("GET", "/api/v1/stream/a", &one, "");
    assert_eq!((refused.status, refused.code().as_str()), (429, "throttled"), "{}", refused.body);
    assert_eq!(refused.headers["retry-after"], "2");
    assert_eq!(server.request("GET", "/v1/models", &one, "").json()["error"]["code"], "rate_limit_exceeded");
    assert_eq!(sessions(&server, &other), 1, "another key is answered");
    streams.pop();
    until("one is closed", || server.request("GET", "/api/v1/sessions", &one, "").status == 200);
}

#[test]
fn a_deleted_session_leaves_its_tasks_or_cancels_them() {
    let Some((world, _model)) = world_with_model("") else { return };
    let server = Server::start(&world);
    fs::write(world.folder().join("hold"), "").expect("written");
    let open = || world.run(&["tasks", "--state=pending"]).json();
    for query in ["?tasks=true", ""] {
        server.post("/api/v1/submit", &json!({"session": "a", "message": "How many words?", "wait": false}));
        until("the task runs", || open()[0]["state"] == "running");
        let deleted = server.request("DELETE", &format!("/api/v1/session/a{query}"), "", "");
        assert_eq!(deleted.json()["state"], "deleted", "{}", deleted.body);
        if query.is_empty() {
            assert_eq!(open()[0]["state"], "running", "it goes on");
        } else {
            until("no task is open", || open() == json!([]));
        }
    }
    fs::remove_file(world.folder().join("hold")).expect("removed");
}

#[test]
fn a_server_without_a_model_says_so_and_answers_when_it_has_one() {
    let world = World::new();
    let mut command = world.command(&["serve", "--listen=127.0.0.1:0"]);
    let errors = world.folder().join("errors");
    command.stderr(Stdio::from(fs::File::create(&errors).expect("a file")));
    let server = Server::of(command);
    let note = fs::read_to_string(&errors).expect("it is there");
    assert!(note.contains("no model is configured") && note.contains("doctor --settings"), "{note}");
    let refused = server.post("/api/v1/submit", &json!({"message": "echo x"}));
    assert_eq!(refused.code(), "no-model", "{}", refused.body);
    assert_eq!(server.get("/api/v1/sessions").json()["sessions"], json!([]), "no session that nothing answers");
    let answers = |word: &str| {
        let answer = server.ask("a", &format!("echo {word}"));
        assert!(answer["answer"].as_str().is_some_and(|text| text.starts_with(word)), "{answer}");
    };
    let good = echo_model::configuration(&echo_model::start(), "");
    let notes = |words: &str| {
        until("it is said", || fs::read_to_string(&errors).expect("it is there").contains(words));
    };
    world.configure(&good);
    answers("now");
    notes("the changed configuration is in force");
    world.configure(&format!("{good}\n[nonsense]\n"));
    answers("still");
    notes("the last good configuration stays in force: ");
}

#[test]
fn the_helps_have_examples_and_a_scope_that_is_not_given_here_says_where_it_is() {
    let world = World::new();
    for words in [&["serve", "--help"][..], &["serve", "key", "create", "--help"]] {
        let help = world.run(words).stdout;
        assert!(help.contains("Example:") && help.contains("/api/v1/submit"), "{help}");
        assert!(!help.contains("decide]"), "{help}");
    }
    let refused = world.run(&["serve", "key", "create", "x", "--scope=ask,decide"]);
    assert_eq!(refused.error()["message"], "the scope `decide` is not given here: only you give it, on the page");
    assert!(refused.error()["hint"].as_str().expect("a hint").contains("*API keys*: agent-magic-tool executor page"));
    assert_eq!(world.run(&["serve", "key", "list"]).json(), json!([]));
}
