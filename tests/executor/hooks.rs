//! Hooks: whoever asked for it is told when a task is final, at least once, whatever befalls either side.

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

use crate::world::{World, is_alive, until};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// How a receiver treats who comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    Takes,
    Fails,
    Hangs,
    Resets,
    Redirects,
}

/// A web server that a human runs somewhere.
struct Receiver {
    address: String,
    manner: Arc<Mutex<Manner>>,
    taken: Arc<Mutex<Vec<Post>>>,
    /// Connections that it leaves open.
    held: Arc<Mutex<Vec<TcpStream>>>,
    tries: Arc<AtomicUsize>,
}

#[derive(Debug, Clone)]
struct Post {
    headers: BTreeMap<String, String>,
    body: String,
}

impl Receiver {
    fn new(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let receiver = Self {
            address: format!("http://{}/told", listener.local_addr().expect("an address")),
            manner: Arc::new(Mutex::new(manner)),
            taken: Arc::default(),
            held: Arc::default(),
            tries: Arc::default(),
        };
        let (manner, taken) = (Arc::clone(&receiver.manner), Arc::clone(&receiver.taken));
        let (held, tries) = (Arc::clone(&receiver.held), Arc::clone(&receiver.tries));
        // It ends with the test program.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("a connection");
                let Some(post) = read_post(&mut stream) else { continue };
                let answer = |mut stream: TcpStream, status: &str| {
                    let text = format!(
                        "HTTP/1.1 {status}\r\nlocation: /elsewhere\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
                    );
                    // Who asked may be gone.
                    stream.write_all(text.as_bytes()).ok();
                };
                match *manner.lock().expect("nobody panicked") {
                    Manner::Takes => {
                        taken.lock().expect("nobody panicked").push(post);
                        answer(stream, "204 No Content");
                    }
                    Manner::Fails => answer(stream, "500 Internal Server Error"),
                    Manner::Redirects => answer(stream, "307 Temporary Redirect"),
                    Manner::Hangs => held.lock().expect("nobody panicked").push(stream),
                    Manner::Resets => drop(stream),
                }
                tries.fetch_add(1, Ordering::SeqCst);
            }
        });
        receiver
    }

    fn behave(&self, manner: Manner) {
        *self.manner.lock().expect("nobody panicked") = manner;
    }

    fn tries(&self) -> usize {
        self.tries.load(Ordering::SeqCst)
    }

    fn taken(&self) -> Vec<Post> {
        self.taken.lock().expect("nobody panicked").clone()
    }

    /// The ids of the events that came, each with how often.
    fn ids(&self) -> BTreeMap<String, usize> {
        let mut ids = BTreeMap::new();
        for post in self.taken() {
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

/// A world with one webhook, and more lines of configuration for it; `before` stands before its section.
fn world(receiver: &Receiver, before: &str, hook: &str) -> World {
    let world = World::new();
    world.configure(&format!(
        "{before}\n[hooks.board]\nurl = \"{}\"\nsecret = \"secret:board\"\n{hook}\n",
        receiver.address
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
    checks.iter().find(|check| check["name"] == "hooks").expect("hooks are checked").clone()
}

fn event_of(id: &str) -> String {
    format!("{id}.final")
}

#[test]
fn a_webhook_says_what_ended_signed_and_nothing_of_what_it_was_about() {
    let receiver = Receiver::new(Manner::Takes);
    let world = world(&receiver, "", "");
    let mut command = world.command(&["run", "say", "text=input-and-data", "--wait"]);
    let ended = world.transcript(&command.env("AGENT_MAGIC_TOOL_SESSION", "mine").output().expect("it runs")).json();
    until("it is told", || !receiver.taken().is_empty());
    let Post { headers, body } = receiver.taken().remove(0);
    let id = ended["id"].as_str().expect("an id");
    let event: Value = serde_json::from_str(&body).expect("JSON");
    let expected = json!({"type": "task.final", "id": event_of(id), "timestamp": ended["finished_at"], "data": {
        "id": id, "tool": "say", "status": "succeeded", "success": true, "result_file": ended["result_file"], "session": "mine"}});
    assert_eq!(event, expected);
    assert_eq!((&headers["webhook-id"], headers["content-type"].as_str()), (&event_of(id), "application/json"));
    let age = Timestamp::now().as_second() - headers["webhook-timestamp"].parse::<i64>().expect("a second");
    assert!((0..60).contains(&age), "{headers:?}");

    // As a receiver verifies it.
    let key = STANDARD.decode(SECRET.trim_start_matches("whsec_")).expect("a key");
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).expect("a key");
    mac.update(format!("{}.{}.{body}", headers["webhook-id"], headers["webhook-timestamp"]).as_bytes());
    let signature = headers["webhook-signature"].strip_prefix("v1,").expect("version 1");
    mac.verify_slice(&STANDARD.decode(signature).expect("base64")).expect("it was signed with this secret");

    until("nothing is owed any more", || check(&world)["message"] == "1 configured, nothing to deliver");
    world.run(&["executor", "stop"]);
    let log = fs::read_to_string(world.log()).expect("a log");
    assert!(!log.contains(SECRET) && !log.contains(&SECRET[6..]), "{log}");
}

#[test]
fn a_command_gets_the_event_and_nothing_of_the_executors_environment() {
    let world = World::new();
    world.configure("[hooks.note]\ncommand = [\"sh\", \"-c\", \"cd \\\"$HOME\\\" && env > environment && cat > event.new && mv event.new event\"]\n");
    let mut start = world.command(&["executor", "start"]);
    assert_eq!(start.env("SOME_TOKEN", "hunter2hunter2").status().expect("it runs").code(), Some(0));
    let ended = world.result_of("files_list", &json!({}));
    until("it is told", || world.home().join("event").exists());
    let event: Value =
        serde_json::from_str(&fs::read_to_string(world.home().join("event")).expect("written")).expect("JSON");
    assert_eq!(event["id"], event_of(ended["id"].as_str().expect("an id")));
    assert_eq!(event["data"]["result_file"], ended["result_file"]);
    let environment = fs::read_to_string(world.home().join("environment")).expect("written");
    assert!(environment.contains("HOME=") && !environment.contains("hunter2"), "{environment}");
}

#[test]
fn a_command_that_sleeps_is_ended_with_all_that_it_started_and_run_again() {
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
    until("it was run again", || pids().len() >= 2);
    let first = pids()[0];
    until("nothing of the first attempt is left", || !is_alive(first));
    until("the doctor knows", || {
        check(&world)["found"][0].as_str().is_some_and(|line| line.ends_with("it took longer than 200ms"))
    });
}

#[test]
fn a_receiver_that_hangs_holds_up_neither_tasks_nor_the_end_of_the_executor() {
    const TASKS: usize = 20;
    let receiver = Receiver::new(Manner::Hangs);
    let world = world(&receiver, "", "timeout = \"1h\"");
    let ids: Vec<_> = (0..TASKS).map(|number| world.start("say", &json!({"text": number.to_string()}))).collect();
    let ended = world.run(&[&["wait"], ids.iter().map(String::as_str).collect::<Vec<_>>().as_slice()].concat());
    assert_eq!(ended.exit, 0, "{ended}");
    until("as many as may be are under way", || receiver.tries() >= 4);
    let began = Instant::now();
    assert_eq!(world.run(&["executor", "stop"]).exit, 0);
    assert!(began.elapsed() < Duration::from_secs(5), "it took {:?}", began.elapsed());
    assert_eq!(receiver.tries(), 4, "no more at once");
    let told = check(&world);
    assert_eq!(
        (&told["ok"], &told["message"]),
        (&json!(true), &json!("1 configured; 20 deliveries waiting, 0 given up"))
    );

    receiver.behave(Manner::Takes);
    // Any command brings an executor back that owes something.
    assert_eq!(world.run(&["tasks", "--limit=1"]).exit, 0);
    until("all are told", || receiver.ids().len() == TASKS);
    let expected: Vec<_> = ids.iter().map(|id| event_of(id)).collect();
    assert_eq!(receiver.ids().into_keys().collect::<Vec<_>>(), expected);
}

#[test]
fn what_fails_is_tried_again_under_the_same_id_until_it_is_taken() {
    for manner in [Manner::Fails, Manner::Resets, Manner::Hangs, Manner::Redirects] {
        let receiver = Receiver::new(manner);
        let world = world(&receiver, "", "timeout = \"200ms\"\nbackoff = \"50ms\"");
        let id = world.start("say", &json!({"text": "x"}));
        until("it was tried again", || receiver.tries() >= 2);
        until("the doctor knows", || check(&world)["ok"] == false);
        let found = check(&world)["found"][0].as_str().expect("a line").to_owned();
        assert!(
            found.starts_with("`board`: 1 waiting since ") && found.contains("1 of them failed, 0 given up: "),
            "{found}"
        );
        receiver.behave(Manner::Takes);
        until("it is told", || receiver.ids().contains_key(&event_of(&id)));
        until("nothing is owed any more", || check(&world)["ok"] == true);
        assert_eq!(receiver.ids(), BTreeMap::from([(event_of(&id), 1)]), "{manner:?}");
    }
}

#[test]
fn what_fails_for_too_long_is_given_up_and_told_by_the_doctor() {
    let receiver = Receiver::new(Manner::Fails);
    let world = world(&receiver, "", "give_up = \"1ms\"");
    world.start("say", &json!({"text": "x"}));
    until("it is given up", || check(&world)["message"] == "1 configured; 0 deliveries waiting, 1 given up");
    assert_eq!((check(&world)["ok"].clone(), receiver.tries()), (json!(false), 1));
    let log = fs::read_to_string(world.log()).expect("a log");
    assert!(log.contains("is given up") && log.contains("answered 500 Internal Server Error"), "{log}");
}

#[test]
fn an_executor_stays_for_an_attempt_that_comes_soon_and_not_for_a_late_one() {
    let receiver = Receiver::new(Manner::Fails);
    let world = world(&receiver, "[executor]\nidle = \"400ms\"", "backoff = \"100ms\"");
    let id = world.start("say", &json!({"text": "x"}));
    let executor = world.executor().expect("it was started");
    until("it ended by itself", || !is_alive(executor));
    let tries = receiver.tries();
    assert!(tries >= 4, "after pauses of 100, 200 and 400 ms: {tries}");
    assert_eq!(check(&world)["message"], "1 configured; 1 deliveries waiting, 0 given up");
    receiver.behave(Manner::Takes);
    assert_eq!(world.run(&["executor", "start"]).exit, 0);
    until("the next one goes on", || receiver.ids().contains_key(&event_of(&id)));
}

#[test]
fn killed_anywhere_between_the_end_and_the_acknowledgement_it_is_told_all_the_same() {
    // With how often it may be told: what was sent and not recorded as such is sent again.
    let points = [
        ("attempt.finished", 1, 1), // before its end is recorded, so that it is performed anew
        ("commit.before", 2, 1),
        ("commit.after", 2, 1),
        ("result.renamed", 2, 1),
        ("hook.send", 1, 1),
        ("hook.ack", 1, 2),
        ("commit.before", 3, 2),
        ("commit.after", 3, 1),
    ];
    for (point, nth, times) in points {
        let receiver = Receiver::new(Manner::Takes);
        let world = world(&receiver, "", "");
        let mut executor = world.command(&["executor", "run"]);
        executor.env("AGENT_MAGIC_TOOL_FAULT", format!("{point}:kill:{nth}"));
        let mut executor = executor.stderr(Stdio::null()).spawn().expect("it starts");
        let mailbox = Mailbox::open(&world.mailbox()).expect("a mailbox");
        until("it is in office", || mailbox.executor().expect("asked") == Some(executor.id()));
        let id = world.start("say", &json!({"text": "x"}));
        assert_eq!(executor.wait().expect("it ended").signal(), Some(9), "{point} was passed {nth} times");
        assert_eq!(world.run(&["executor", "start"]).exit, 0);
        until("it is told", || receiver.ids().get(&event_of(&id)).copied().unwrap_or(0) >= times);
        until("nothing is owed any more", || check(&world)["message"] == "1 configured, nothing to deliver");
        assert_eq!(receiver.ids(), BTreeMap::from([(event_of(&id), times)]), "{point} {nth}");
        let bodies: Vec<_> = receiver.taken().into_iter().map(|post| post.body).collect();
        assert!(bodies.iter().all(|body| *body == bodies[0]), "{bodies:?}");
    }
}
