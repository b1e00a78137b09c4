//! Our runner, which asks agents made with the SDKs, and servers that are not as they should be.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use super::{Peer, SDKS, Sdk, define_agent};
use crate::world::{World, until};

/// A server that answers each request as it is told, and keeps what it got. An answer whose status is `200 OPEN` leaves
/// the connection open.
struct Script {
    address: String,
    got: Arc<Mutex<Vec<String>>>,
}

impl Script {
    /// `answer` gets the request line with the body, and returns the whole response.
    fn start(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let got = Arc::<Mutex<Vec<String>>>::default();
        let kept = Arc::clone(&got);
        let answer = Arc::new(answer);
        let open = Arc::<Mutex<Vec<TcpStream>>>::default();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let (kept, answer, open) = (Arc::clone(&kept), Arc::clone(&answer), Arc::clone(&open));
                std::thread::spawn(move || {
                    let request = read(&mut stream);
                    kept.lock().unwrap_or_else(PoisonError::into_inner).push(request.clone());
                    let reply = answer(&request);
                    // The client may have gone.
                    stream.write_all(reply.as_bytes()).ok();
                    if reply.starts_with("HTTP/1.1 200 OPEN") {
                        open.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
                    }
                });
            }
        });
        Self { address, got }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn got(&self, words: &str) -> Vec<String> {
        let got = self.got.lock().unwrap_or_else(PoisonError::into_inner);
        got.iter().filter(|request| request.contains(words)).cloned().collect()
    }
}

/// A whole request.
fn read(stream: &mut TcpStream) -> String {
    let (mut bytes, mut part) = (Vec::new(), [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.to_ascii_lowercase();
            let length = length.split("content-length: ").nth(1).and_then(|rest| rest.lines().next()?.parse().ok());
            if body.len() >= length.unwrap_or(0) {
                return text;
            }
        }
        match stream.read(&mut part) {
            Ok(count @ 1..) => bytes.extend_from_slice(&part[..count]),
            Ok(0) | Err(_) => return text,
        }
    }
}

fn json_reply(status: &str, body: &Value) -> String {
    let body = body.to_string();
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

fn not_found() -> String {
    json_reply("404 Not Found", &json!({"error": {"code": "not-found", "message": "no such path"}}))
}

fn error_of(result: &Value) -> (&str, &str) {
    let text = |name: &str| result["error"][name].as_str().unwrap_or_default();
    (text("code"), text("message"))
}

#[test]
fn agents_of_both_sdks_and_versions_answer_fail_and_ask() {
    for sdk in SDKS {
        for flags in [[].as_slice(), &["--legacy"]] {
            let what = format!("{sdk:?} {flags:?}");
            let Some((_server, url)) = Peer::server(sdk, flags) else { return };
            let world = World::new();
            define_agent(&world, &url, &json!({}), &json!({}));
            let asked = |message: &str| world.result_of("ask_remote", &json!({"message": message}));
            let echoed = asked("echo good morning");
            assert_eq!(
                (&echoed["status"], &echoed["data"]),
                (&json!("succeeded"), &json!("good morning")),
                "{what} {echoed:#}"
            );
            assert_eq!(
                (&echoed["_meta"]["protocol"], &echoed["_meta"]["termination"]),
                (&json!("a2a"), &json!("completed"))
            );
            assert_eq!(asked("reply friend")["data"], "you said friend", "{what}");
            let failed = asked("fail");
            assert_eq!(failed["status"], "failed", "{what} {failed:#}");
            let (code, message) = error_of(&failed);
            assert!(code == "model-failed" && message.contains("it did not work"), "{what} {failed:#}");
            let asks = asked("ask");
            assert!(asks["data"].as_str().is_some_and(|text| text.starts_with("Which one?")), "{what} {asks:#}");
            assert_eq!(asks["_meta"]["termination"], "input_required", "{what}");
        }
    }
}

#[test]
fn the_session_is_the_callers_own_and_the_depth_and_the_limits_travel() {
    let Some((_server, url)) = Peer::server(Sdk::Python, &[]) else { return };
    let world = World::new();
    define_agent(&world, &url, &json!({"steps": 3, "cost": 0.5}), &json!({"timeout": "30s"}));
    let who = |session: Option<&str>, input: &Value| {
        let mut command = world.command(&["run", "ask_remote", "--wait", "--input", &input.to_string()]);
        if let Some(session) = session {
            command.env("AGENT_MAGIC_TOOL_SESSION", session);
        }
        let result = world.transcript(&command.output().expect("it runs")).json();
        result["data"].as_str().unwrap_or_else(|| panic!("{result:#}")).to_owned()
    };
    let input = json!({"message": "who"});
    let first = who(Some("a"), &input);
    let context = first.split(' ').next().expect("a context").to_owned();
    assert!(context.starts_with("swarm-") && context.len() == 14, "{first}");
    assert!(first.contains("'depth': 1") && first.contains("'steps': 3") && first.contains("'cost': 0.5"), "{first}");
    // What is left of the time, and the time for which a human may be waited for.
    let deadline: f64 = first
        .split("'deadline': ")
        .nth(1)
        .and_then(|rest| rest.split(['}', ',']).next()?.parse().ok())
        .expect("a number");
    assert!((3_600.0..3_630.0).contains(&deadline), "{deadline}");
    assert!(who(Some("a"), &input).starts_with(&context), "the same caller, the same session");
    assert!(!who(Some("b"), &input).starts_with(&context), "another caller, another session");
    assert!(who(Some("b"), &json!({"message": "who", "session": "mine"})).starts_with("mine "));
}

#[test]
fn a_cancelled_task_stops_the_agent() {
    let Some((_server, url)) = Peer::server(Sdk::Python, &[]) else { return };
    let world = World::new();
    define_agent(&world, &url, &json!({}), &json!({}));
    let id = world.start("ask_remote", &json!({"message": "wait"}));
    until("the agent is at work", || {
        world.result_file(&id)["progress"]["message"].as_str().is_some_and(|text| text.contains("I begin"))
    });
    assert_eq!(world.run(&["cancel", &id]).exit, 0);
    let ended = world.end_of(&id);
    assert_eq!(ended["status"], "cancelled", "{ended:#}");
    let told = world.result_of("ask_remote", &json!({"message": "who"}));
    let told = told["data"].as_str().expect("text");
    assert!(!told.ends_with("[]"), "the agent was told to stop: {told}");
}

#[test]
fn an_agent_that_dies_hangs_or_makes_no_sense_is_an_error() {
    if let Some((_server, url)) = Peer::server(Sdk::Python, &[]) {
        let world = World::new();
        define_agent(&world, &url, &json!({}), &json!({}));
        let died = world.result_of("ask_remote", &json!({"message": "die"}));
        let (code, message) = error_of(&died);
        assert_eq!((&died["status"], code), (&json!("unknown"), "unknown-outcome"), "{died:#}");
        assert!(message.contains("was lost while it was at work"), "{message}");
        assert_eq!(died["error"]["details"]["cause"], "connection-lost", "{died:#}");
        // Now that it is gone, nothing is sent.
        let gone = world.result_of("ask_remote", &json!({"message": "echo x"}));
        assert_eq!(error_of(&gone).0, "unreachable", "{gone:#}");
        assert!(gone["error"]["hint"].is_null(), "{gone:#}");
    }
    let world = World::new();
    // Without a card it is our own API that is tried.
    let garbage = Script::start(|request| {
        if request.starts_with("POST /api/v1/submit") {
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\n<htm>".to_owned()
        } else {
            not_found()
        }
    });
    define_agent(&world, &garbage.url(), &json!({}), &json!({}));
    let answered = world.result_of("ask_remote", &json!({"message": "x"}));
    assert_eq!(answered["error"]["details"]["cause"], "bad-response", "{answered:#}");
    assert_eq!(garbage.got("POST /api/v1/submit").len(), 1, "it is not asked again");
    let hanging =
        Script::start(
            |request| {
                if request.starts_with("POST") { "HTTP/1.1 200 OPEN\r\n".to_owned() } else { not_found() }
            },
        );
    define_agent(&world, &hanging.url(), &json!({}), &json!({"timeout": "1s"}));
    let late = world.result_of("ask_remote", &json!({"message": "x"}));
    assert_eq!((&late["status"], error_of(&late).0), (&json!("unknown"), "unknown-outcome"), "{late:#}");
    assert!(!hanging.got("/cancel").is_empty(), "it was told to stop");
}

#[test]
fn our_own_api_is_spoken_and_what_it_refuses_is_said() {
    let world = World::new();
    let server = Script::start(|request| {
        let answer = json!({"session": 101, "id": "x", "answer": "Two.", "termination": "max_iterations", "truncated": true,
            "model": "m", "usage": {"requests": 3, "input_tokens": 5, "cached_tokens": 0, "output_tokens": 7, "cost": 0.25}});
        if request.contains("too deep") {
            let error = json!({"code": "too-deep", "message": "2 agents called each other", "hint": "do it yourself"});
            return json_reply("403 Forbidden", &json!({"error": error}));
        }
        if request.contains("earn") {
            let usage = json!({"requests": -3, "input_tokens": -1_000_000, "output_tokens": "7", "cost": -100.0});
            let answer = json!({"answer": if request.contains("silently") { "" } else { "Yes." }, "usage": usage});
            return json_reply("200 OK", &answer);
        }
        if request.starts_with("POST /api/v1/submit") { json_reply("200 OK", &answer) } else { not_found() }
    });
    assert_eq!(world.run_with(&["secret", "set", "there"], "k-0123456789abcdef").exit, 0);
    define_agent(&world, &server.url(), &json!({"key": "secret:there", "tokens": 9, "model": "fast"}), &json!({}));
    let result = world.result_of("ask_remote", &json!({"message": "how many?", "session": "s1"}));
    let whole = "Two.\n\n[This answer is incomplete: the remote agent stopped at a limit (max_iterations).]";
    assert_eq!(result["data"], whole, "{result:#}");
    let meta = &result["_meta"];
    assert_eq!((&meta["usage"]["cost"], &meta["model"], &meta["session"]), (&json!(0.25), &json!("m"), &json!("s1")));
    let sent = server.got("POST /api/v1/submit").remove(0);
    let (head, body) = sent.split_once("\r\n\r\n").expect("a body");
    let head = head.to_ascii_lowercase();
    for header in
        ["authorization: bearer k-0123456789abcdef", "x-agent-depth: 1", "x-agent-session: s1", "idempotency-key: "]
    {
        assert!(head.contains(header), "{header}: {head}");
    }
    let body: Value = serde_json::from_str(body).expect("JSON");
    assert_eq!(
        (&body["session"], &body["model"], &body["limits"]["tokens"]),
        (&json!("s1"), &json!("fast"), &json!(9))
    );
    assert!(!server.got("GET /.well-known").iter().any(|card| card.contains("k-0123456789")), "the card is public");
    let nothing = json!({"requests": 0, "input_tokens": 0, "output_tokens": 0, "cost": 0.0});
    let earned = world.result_of("ask_remote", &json!({"message": "earn"}));
    assert_eq!(earned["_meta"]["usage"], nothing, "{earned:#}");
    let silent = world.result_of("ask_remote", &json!({"message": "earn silently"}));
    assert_eq!(silent["error"]["details"]["usage"], nothing, "{silent:#}");
    let refused = world.result_of("ask_remote", &json!({"message": "too deep"}));
    assert_eq!(
        (error_of(&refused).0, &refused["error"]["hint"]),
        ("too-deep", &json!("do it yourself")),
        "{refused:#}"
    );
}

#[test]
fn while_a_remote_human_is_waited_for_the_clock_stands_still_and_the_result_says_so() {
    let world = World::new();
    let (go, count) = (Arc::new(AtomicBool::new(false)), AtomicUsize::new(0));
    let may_answer = Arc::clone(&go);
    let server = Script::start(move |request| {
        if request.starts_with("GET /api/v1/stream") {
            let gate = json!({"type": "gate", "id": "t1", "subtool": "note", "message": "note waits for a yes"});
            return format!(
                "HTTP/1.1 200 OPEN\r\nContent-Type: text/event-stream\r\n\r\nevent: gate\ndata: {gate}\n\n"
            );
        }
        if request.starts_with("POST /api/v1/submit") {
            if count.fetch_add(1, Ordering::Relaxed) == 0 {
                return json_reply("202 Accepted", &json!({"session": 101, "id": "x", "state": "working"}));
            }
            until("the human has decided", || may_answer.load(Ordering::Relaxed));
            return json_reply("200 OK", &json!({"session": 101, "answer": "Noted.", "termination": "completed"}));
        }
        not_found()
    });
    define_agent(&world, &server.url(), &json!({"protocol": "api"}), &json!({"timeout": "5s"}));
    let id = world.start("ask_remote", &json!({"message": "write a note"}));
    until("the result says what is waited for", || {
        world.result_file(&id)["progress"]["message"].as_str().is_some_and(|text| text.contains("note waits for a yes"))
    });
    let since = std::time::Instant::now();
    until("more time than the attempt has is over", || since.elapsed() > std::time::Duration::from_secs(6));
    assert_eq!(world.result_file(&id)["status"], "pending");
    go.store(true, Ordering::Relaxed);
    let ended = world.end_of(&id);
    assert_eq!(ended["data"], "Noted.", "{ended:#}");
    let keys: std::collections::BTreeSet<_> = server
        .got("POST /api/v1/submit")
        .iter()
        .filter_map(|request| {
            request.to_ascii_lowercase().split("idempotency-key: ").nth(1)?.lines().next().map(str::to_owned)
        })
        .collect();
    assert_eq!(keys.len(), 1, "it is one message");
}

#[test]
fn a_delegated_agent_reaches_no_remote_one() {
    let server = Script::start(|_| not_found());
    let world = World::new();
    define_agent(&world, &server.url(), &json!({}), &json!({}));
    for session in [None, Some("other")] {
        let input = json!({"message": "x", "session": session});
        let output = world
            .command(&["run", "ask_remote", "--input", &input.to_string()])
            .env("AGENT_MAGIC_TOOL_DEPTH", "1")
            .output()
            .expect("it runs");
        assert_eq!(world.transcript(&output).error()["code"], "too-deep");
    }
    assert!(server.got("").is_empty(), "nothing was sent");
}

#[test]
fn a_card_cannot_lead_the_key_to_another_server() {
    let other = Script::start(|_| not_found());
    let elsewhere = other.url();
    let server = Script::start(move |request| {
        if request.starts_with("GET /.well-known/agent-card.json") {
            let interface = json!({"url": elsewhere, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"});
            json_reply("200 OK", &json!({"name": "x", "supportedInterfaces": [interface]}))
        } else {
            not_found()
        }
    });
    let world = World::new();
    define_agent(&world, &server.url(), &json!({}), &json!({}));
    let refused = world.result_of("ask_remote", &json!({"message": "x"}));
    assert_eq!(error_of(&refused).0, "rejected", "{refused:#}");
    assert!(other.got("").is_empty(), "nothing was sent there");
    // An address from the input leads to no private one.
    define_agent(&world, "{{ message }}", &json!({}), &json!({}));
    let guarded = world.result_of("ask_remote", &json!({"message": server.url()}));
    assert_eq!(error_of(&guarded).0, "forbidden-address", "{guarded:#}");
}
