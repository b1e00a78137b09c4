//! Hooks: each matching hook is called at least once when a task ends, whatever happens to the executor or the
//! receiver.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{fs, thread};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use jiff::Timestamp;
use nix::unistd::Pid;
use protocol::mailbox::Mailbox;
use serde_json::{Value, json};
use sha2::Sha256;

use crate::world::{World, is_alive, until, wait_for_end};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// How a receiver handles requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Behavior {
    Accepts,
    Fails,
    Hangs,
    Resets,
    Redirects,
}

/// A server that receives webhooks.
struct Receiver {
    url: String,
    behavior: Arc<Mutex<Behavior>>,
    accepted: Arc<Mutex<Vec<Post>>>,
    /// Connections without a response.
    hanging: Arc<Mutex<Vec<TcpStream>>>,
    requests: Arc<AtomicUsize>,
}

#[derive(Debug, Clone)]
struct Post {
    headers: BTreeMap<String, String>,
    body: String,
}

impl Receiver {
    fn new(behavior: Behavior) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let receiver = Self {
            url: format!("http://{}/hook", listener.local_addr().expect("an address")),
            behavior: Arc::new(Mutex::new(behavior)),
            accepted: Arc::default(),
            hanging: Arc::default(),
            requests: Arc::default(),
        };
        let (behavior, accepted) = (Arc::clone(&receiver.behavior), Arc::clone(&receiver.accepted));
        let (hanging, requests) = (Arc::clone(&receiver.hanging), Arc::clone(&receiver.requests));
        // The thread ends with the test program.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("a connection");
                let Some(post) = read_post(&mut stream) else { continue };
                let answer = |mut stream: TcpStream, status: &str| {
                    let text = format!(
                        "HTTP/1.1 {status}\r\nlocation: /elsewhere\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
                    );
                    // The sender may have closed the connection.
                    stream.write_all(text.as_bytes()).ok();
                };
                match *behavior.lock().expect("no thread panicked") {
                    Behavior::Accepts => {
                        accepted.lock().expect("no thread panicked").push(post);
                        answer(stream, "204 No Content");
                    }
                    Behavior::Fails => answer(stream, "500 Internal Server Error"),
                    Behavior::Redirects => answer(stream, "307 Temporary Redirect"),
                    Behavior::Hangs => hanging.lock().expect("no thread panicked").push(stream),
                    Behavior::Resets => drop(stream),
                }
                requests.fetch_add(1, Ordering::SeqCst);
            }
        });
        receiver
    }

    fn set_behavior(&self, behavior: Behavior) {
        *self.behavior.lock().expect("no thread panicked") = behavior;
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    fn accepted(&self) -> Vec<Post> {
        self.accepted.lock().expect("no thread panicked").clone()
    }

    /// The ids of the accepted events, and how often each was accepted.
    fn ids(&self) -> BTreeMap<String, usize> {
        let mut ids = BTreeMap::new();
        for post in self.accepted() {
            *ids.entry(post.headers["webhook-id"].clone()).or_default() += 1;
        }
        ids
    }
}

fn read_post(stream: &mut TcpStream) -> Option<Post> {
    let mut bytes = Vec::new();
    let mut part = [0; 4096];
    loop {
        let read = stream.read(&mut part).ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&part[..read]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let headers: BTreeMap<_, _> = head
            .lines()
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
            .collect();
        if body.len() >= headers["content-length"].parse().expect("a number") {
            return Some(Post { headers, body: body.to_owned() });
        }
    }
}

/// A world with one webhook: `hook` is more settings for it, `before` is configuration before its section.
fn world(receiver: &Receiver, before: &str, hook: &str) -> World {
    let world = World::new();
    world.configure(&format!(
        "{before}\n[hooks.board]\nurl = \"{}\"\nsecret = \"secret:board\"\n{hook}\n",
        receiver.url
    ));
    assert_eq!(world.run_with(&["secret", "set", "board"], SECRET).exit, 0);
    world.define(
        "say.json",
        &json!({"say": {"description": "Says it.", "input": {"type": "object", "properties": {"text": {"type": "string"}}},
            "annotations": {"readOnlyHint": true}, "run": {"process": {"argv": ["echo", "{{ text }}"]}}}}),
    );
    world
}

fn check(world: &World) -> Value {
    let report = world.run(&["doctor"]).json();
    let checks = report["checks"].as_array().expect("checks");
    checks.iter().find(|check| check["name"] == "hooks").expect("the check of the hooks").clone()
}

fn event_of(id: &str) -> String {
    format!("{id}.final")
}

#[test]
fn a_webhook_is_signed_and_contains_neither_input_nor_data() {
    let receiver = Receiver::new(Behavior::Accepts);
    let world = world(&receiver, "", "");
    let mut command = world.command(&["run", "say", "text=input-and-data", "--wait"]);
    let ended = world.transcript(&command.env("AGENT_MAGIC_TOOL_SESSION", "mine").output().expect("ran")).json();
    until("the hook is called", || !receiver.accepted().is_empty());
    let Post { headers, body } = receiver.accepted().remove(0);
    let id = ended["id"].as_str().expect("an id");
    let event: Value = serde_json::from_str(&body).expect("JSON");
    let (path, file) = (world.mailbox().join(format!("results/result-{id}.json")), world.result_file(id));
    let expected = json!({"type": "task.final", "id": event_of(id), "timestamp": file["finished_at"], "data": {
        "id": id, "tool": "say", "status": "succeeded", "success": true, "result_file": path, "session": "mine"}});
    assert_eq!(event, expected);
    assert_eq!((&headers["webhook-id"], headers["content-type"].as_str()), (&event_of(id), "application/json"));
    let age = Timestamp::now().as_second() - headers["webhook-timestamp"].parse::<i64>().expect("a second");
    assert!((0..60).contains(&age), "{headers:?}");

    // Verify the signature as a receiver does.
    let key = STANDARD.decode(SECRET.trim_start_matches("whsec_")).expect("a key");
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).expect("a key");
    mac.update(format!("{}.{}.{body}", headers["webhook-id"], headers["webhook-timestamp"]).as_bytes());
    let signature = headers["webhook-signature"].strip_prefix("v1,").expect("version 1");
    mac.verify_slice(&STANDARD.decode(signature).expect("base64")).expect("a valid signature");

    until("everything is delivered", || check(&world)["message"] == "1 configured, nothing to deliver");
    world.run(&["executor", "stop"]);
    let log = fs::read_to_string(world.log()).expect("a log");
    assert!(!log.contains(SECRET) && !log.contains(&SECRET[6..]), "{log}");
}

#[test]
fn a_command_gets_the_event_but_not_the_executors_environment() {
    let world = World::new();
    world.configure("[hooks.note]\ncommand = [\"sh\", \"-c\", \"cd \\\"$HOME\\\" && env > environment && cat > event.new && mv event.new event\"]\n");
    let mut start = world.command(&["executor", "start"]);
    assert_eq!(start.env("SOME_TOKEN", "hunter2hunter2").status().expect("ran").code(), Some(0));
    let ended = world.result_of("files_list", &json!({}));
    until("the hook is called", || world.home().join("event").exists());
    let event: Value =
        serde_json::from_str(&fs::read_to_string(world.home().join("event")).expect("written")).expect("JSON");
    let id = ended["id"].as_str().expect("an id");
    assert_eq!(event["id"], event_of(id));
    assert_eq!(event["data"]["result_file"], json!(world.mailbox().join(format!("results/result-{id}.json"))));
    let environment = fs::read_to_string(world.home().join("environment")).expect("written");
    assert!(environment.contains("HOME=") && !environment.contains("hunter2"), "{environment}");
}

#[test]
fn a_command_that_times_out_is_killed_with_its_children_and_run_again() {
    let world = World::new();
    world.configure(
        "[hooks.slow]\ntimeout = \"200ms\"\nbackoff = \"50ms\"\n\
         command = [\"sh\", \"-c\", \"sleep 60 & echo $! >> \\\"$HOME/pids\\\"; wait\"]\n",
    );
    world.result_of("files_list", &json!({}));
    let pids = || -> Vec<Pid> {
        let text = fs::read_to_string(world.home().join("pids")).unwrap_or_default();
        text.lines().map(|line| Pid::from_raw(line.parse().expect("a process id"))).collect()
    };
    until("the command was run again", || pids().len() >= 2);
    let first = pids()[0];
    until("the first attempt is gone", || !is_alive(first));
    until("doctor reports the failure", || {
        check(&world)["found"][0].as_str().is_some_and(|line| line.ends_with("it took longer than 200ms"))
    });
}

#[test]
fn a_hanging_receiver_delays_neither_tasks_nor_the_stop_of_the_executor() {
    const TASKS: usize = 20;
    let receiver = Receiver::new(Behavior::Hangs);
    let world = world(&receiver, "", "timeout = \"1h\"");
    let ids: Vec<_> = (0..TASKS).map(|number| world.start("say", &json!({"text": number.to_string()}))).collect();
    let ended = world.run(&[&["wait"], ids.iter().map(String::as_str).collect::<Vec<_>>().as_slice()].concat());
    assert_eq!(ended.exit, 0, "{ended}");
    until("as many deliveries as allowed are running", || receiver.requests() >= 4);
    let start = Instant::now();
    assert_eq!(world.run(&["executor", "stop"]).exit, 0);
    assert!(start.elapsed() < Duration::from_secs(5), "the stop took {:?}", start.elapsed());
    assert_eq!(receiver.requests(), 4, "there should be at most 4 deliveries at a time");
    let check = check(&world);
    assert_eq!(
        (&check["ok"], &check["message"]),
        (&json!(true), &json!("1 configured; 20 deliveries waiting, 0 given up"))
    );

    receiver.set_behavior(Behavior::Accepts);
    // Any command starts an executor again if there are deliveries left.
    assert_eq!(world.run(&["tasks", "--limit=1"]).exit, 0);
    until("all events are delivered", || receiver.ids().len() == TASKS);
    let expected: Vec<_> = ids.iter().map(|id| event_of(id)).collect();
    assert_eq!(receiver.ids().into_keys().collect::<Vec<_>>(), expected);
}

#[test]
fn a_failed_delivery_is_retried_with_the_same_id_until_it_succeeds() {
    for behavior in [Behavior::Fails, Behavior::Resets, Behavior::Hangs, Behavior::Redirects] {
        let receiver = Receiver::new(behavior);
        let world = world(&receiver, "", "timeout = \"200ms\"\nbackoff = \"50ms\"");
        let id = world.start("say", &json!({"text": "x"}));
        until("the delivery was retried", || receiver.requests() >= 2);
        until("doctor reports the failure", || check(&world)["ok"] == false);
        let found = check(&world)["found"][0].as_str().expect("a line").to_owned();
        assert!(
            found.starts_with("`board`: 1 waiting since ") && found.contains("1 of them failed, 0 given up: "),
            "{found}"
        );
        receiver.set_behavior(Behavior::Accepts);
        until("the hook is called", || receiver.ids().contains_key(&event_of(&id)));
        until("everything is delivered", || check(&world)["ok"] == true);
        assert_eq!(receiver.ids(), BTreeMap::from([(event_of(&id), 1)]), "{behavior:?}");
    }
}

#[test]
fn a_delivery_that_fails_for_too_long_is_given_up_and_reported_by_doctor() {
    let receiver = Receiver::new(Behavior::Fails);
    let world = world(&receiver, "", "give_up = \"1ms\"");
    world.start("say", &json!({"text": "x"}));
    until("the delivery is given up", || check(&world)["message"] == "1 configured; 0 deliveries waiting, 1 given up");
    assert_eq!((check(&world)["ok"].clone(), receiver.requests()), (json!(false), 1));
    let log = fs::read_to_string(world.log()).expect("a log");
    assert!(log.contains("is given up") && log.contains("answered 500 Internal Server Error"), "{log}");
}

#[test]
fn an_idle_executor_waits_for_a_retry_that_is_due_soon_but_not_for_a_later_one() {
    let receiver = Receiver::new(Behavior::Fails);
    let world = world(&receiver, "[executor]\nidle = \"400ms\"", "backoff = \"100ms\"");
    let id = world.start("say", &json!({"text": "x"}));
    let executor = world.executor().expect("a running executor");
    until("the executor ended by itself", || !is_alive(executor));
    let requests = receiver.requests();
    assert!(requests >= 4, "{requests} requests, expected pauses of 100, 200 and 400 ms");
    assert_eq!(check(&world)["message"], "1 configured; 1 delivery waiting, 0 given up");
    receiver.set_behavior(Behavior::Accepts);
    assert_eq!(world.run(&["executor", "start"]).exit, 0);
    until("the next executor delivers the event", || receiver.ids().contains_key(&event_of(&id)));
}

#[test]
fn a_hook_is_called_even_if_the_executor_is_killed_before_the_acknowledgement() {
    // The point, its pass, and the number of deliveries: an unacknowledged delivery is sent again.
    let points = [
        ("attempt.finished", 1, 1), // before the end is recorded, so the task runs again
        ("commit.before", 2, 1),
        ("commit.after", 2, 1),
        ("result.renamed", 2, 1),
        ("hook.send", 1, 1),
        ("hook.ack", 1, 2),
        ("commit.before", 3, 2),
        ("commit.after", 3, 1),
    ];
    for (point, nth, times) in points {
        let receiver = Receiver::new(Behavior::Accepts);
        let world = world(&receiver, "", "");
        let mut executor = world.command(&["executor", "run"]);
        executor.env("AGENT_MAGIC_TOOL_FAULT", format!("{point}:kill:{nth}"));
        let mut executor = executor.stderr(Stdio::null()).spawn().expect("started");
        let mailbox = Mailbox::open(&world.mailbox()).expect("a mailbox");
        until("the executor serves", || mailbox.executor().expect("readable") == Some(executor.id()));
        let id = world.start("say", &json!({"text": "x"}));
        assert_eq!(wait_for_end(&mut executor).signal(), Some(9), "{point} was passed {nth} times");
        assert_eq!(world.run(&["executor", "start"]).exit, 0);
        until("the hook is called", || receiver.ids().get(&event_of(&id)).copied().unwrap_or(0) >= times);
        until("everything is delivered", || check(&world)["message"] == "1 configured, nothing to deliver");
        assert_eq!(receiver.ids(), BTreeMap::from([(event_of(&id), times)]), "{point} {nth}");
        let bodies: Vec<_> = receiver.accepted().into_iter().map(|post| post.body).collect();
        assert!(bodies.iter().all(|body| *body == bodies[0]), "{bodies:?}");
    }
}
