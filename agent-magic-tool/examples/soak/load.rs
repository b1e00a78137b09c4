//! The load: callers that delegate mixed tasks and check how each one ends.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use protocol::caller::Caller;
use protocol::mailbox::Mailbox;
use protocol::mailbox::request::{Answer, Operation, Request, RunRequest};
use protocol::task::TaskId;
use serde_json::{Value, json};

use super::SoakWorld;

pub(crate) const CALLERS: usize = 6;
/// The pause between two tasks of one caller, which keeps the executor busy without overloading it.
const PAUSE: Duration = Duration::from_millis(50);
/// A task that takes longer is stuck.
const TASK_TIMEOUT: Duration = Duration::from_mins(2);

/// One kind of task: the subtool, its input, and the expected status.
type Kind = (&'static str, fn(u64) -> Value, &'static str);

const KINDS: &[Kind] = &[
    ("echo", |number| json!({"text": format!("number {number}")}), "succeeded"),
    ("files_read", |_| json!({"path": "note.txt"}), "succeeded"),
    ("item", |number| json!({"number": number}), "succeeded"),
    ("large", |_| json!({}), "succeeded"),
    ("fail", |_| json!({}), "failed"),
    ("nap", |_| json!({}), "cancelled"),
];

pub(crate) fn definitions(server_url: &str) -> Value {
    let program = |argv: &[&str]| {
        json!({"description": "A program.", "input": {"type": "object", "properties": {"text": {"type": "string"}}},
            "annotations": {"readOnlyHint": true}, "run": {"process": {"argv": argv}}})
    };
    json!({
        "echo": program(&["echo", "{{ text }}"]),
        "large": program(&["seq", "20000"]),
        "fail": program(&["false"]),
        "nap": program(&["sleep", "30"]),
        "item": {"description": "An item over HTTP.",
            "input": {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]},
            "annotations": {"readOnlyHint": true},
            "run": {"http": {"base_url": server_url, "path": "/items/{{ number }}"}}}
    })
}

/// How many tasks ended and how many requests were refused.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) ended: AtomicU64,
    pub(crate) refused: AtomicU64,
}

/// Delegates one task after another until `stop` is set.
pub(crate) fn call(caller: usize, world: &SoakWorld, mailbox: &Mailbox, stop: &AtomicBool, counts: &Counts) {
    let mut number = caller as u64;
    while !stop.load(Ordering::Relaxed) {
        let index = usize::try_from(number % KINDS.len() as u64).expect("less than the length");
        let (tool, input, expected) = KINDS[index];
        let id = if number.is_multiple_of(5) {
            run_program(world, tool, &input(number))
        } else {
            Some(post(mailbox, caller, world, tool, &input(number)))
        };
        // The additional step makes each caller go through every kind.
        number += CALLERS as u64 + 1;
        let Some(id) = id else {
            counts.refused.fetch_add(1, Ordering::Relaxed);
            continue;
        };
        if expected == "cancelled" {
            cancel(mailbox, id);
        }
        let status = wait_for_status(mailbox, id);
        assert_eq!(status, expected, "{tool} {id}");
        counts.ended.fetch_add(1, Ordering::Relaxed);
        thread::park_timeout(PAUSE);
    }
}

/// Delegates through the program; `None` if the executor was too busy to take the request in time.
fn run_program(world: &SoakWorld, tool: &str, input: &Value) -> Option<TaskId> {
    let output = world.command(&["run", tool, "--input", &input.to_string()]).output().expect("the program starts");
    if output.status.code() == Some(7) {
        return None;
    }
    let answer: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    Some(answer["id"].as_str().and_then(|id| id.parse().ok()).expect("an id"))
}

fn post(mailbox: &Mailbox, caller: usize, world: &SoakWorld, tool: &str, input: &Value) -> TaskId {
    let input = input.as_object().expect("an object").clone();
    let run = RunRequest { tool: tool.to_owned(), input, ..RunRequest::default() };
    let session = Some(format!("caller {caller}"));
    let request =
        Request::new(Operation::run(run), Caller { session, folder: Some(world.work()), ..Caller::default() });
    let id = TaskId::new();
    mailbox.post(id, &request).expect("posted");
    id
}

/// Cancels a task, which must not be refused: the request for it was posted before.
fn cancel(mailbox: &Mailbox, id: TaskId) {
    let request = TaskId::new();
    mailbox.post(request, &Request::new(Operation::Cancel { id, reason: None }, Caller::default())).expect("posted");
    let deadline = Instant::now() + TASK_TIMEOUT;
    let answer = loop {
        match mailbox.collect_answer(request).expect("an answer can be read") {
            Some(answer) => break answer,
            None => assert!(Instant::now() < deadline, "nobody answered the cancel of {id}"),
        }
        thread::park_timeout(Duration::from_millis(2));
    };
    let answer: Answer = serde_json::from_slice(&answer).expect("an answer");
    assert!(matches!(answer, Answer::Cancelling { id: cancelled, .. } if cancelled == id), "{answer:?}");
}

/// Waits until the task is final and returns its status.
fn wait_for_status(mailbox: &Mailbox, id: TaskId) -> String {
    let deadline = Instant::now() + TASK_TIMEOUT;
    while !mailbox.is_final(id) {
        assert!(Instant::now() < deadline, "task {id} did not end in time");
        thread::park_timeout(Duration::from_millis(2));
    }
    let file = std::fs::read(mailbox.result_file(id)).expect("a final result exists");
    let file: Value = serde_json::from_slice(&file).expect("a result file is valid JSON");
    file["status"].as_str().expect("a status").to_owned()
}

/// Starts a server of JSON documents that runs until the program ends; returns its URL.
pub(crate) fn start_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || serve(&stream));
        }
    });
    url
}

/// Answers one request after another until the client closes the connection.
fn serve(stream: &TcpStream) {
    let mut requests = BufReader::new(stream);
    let mut writer = stream;
    loop {
        let mut line = String::new();
        while requests.read_line(&mut line).is_ok_and(|read| read > 2) {}
        if line.is_empty() {
            return;
        }
        let body = json!({"request": line.lines().next(), "items": (0..50).collect::<Vec<_>>()}).to_string();
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
        if writer.write_all((head + &body).as_bytes()).is_err() {
            return;
        }
    }
}
