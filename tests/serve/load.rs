//! Many clients at once: nothing is mixed up, memory stays small, and a pass-through adds little.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use super::{Server, echo_model};
use crate::free_port::free_port;
use crate::skip::skip;
use crate::world::{World, until};

/// Sessions that stream at once.
const STREAMING: usize = 100;
/// Sessions that exist without work.
const IDLE: usize = 1_000;
/// Sessions that are made before the memory is measured.
const FIRST: usize = 100;
/// What an idle session may cost, far above what its entry in the index needs.
const MAX_IDLE_BYTES: u64 = 32 << 10;

/// It does not start without one.
const LITELLM_KEY: &str = "sk-0123456789abcdef0123456789abcdef";

/// Whether the long form of a test is asked for.
fn is_long() -> bool {
    std::env::var_os("AGENT_MAGIC_TOOL_TEST_ALL").is_some_and(|value| value == "1")
}

#[test]
fn a_hundred_sessions_stream_at_once_and_no_token_reaches_another() {
    let world = World::new();
    world.configure(&echo_model::configuration(&echo_model::start(), "[serve]\nidle = \"1s\"\n"));
    let server = Server::start(&world);
    let rounds = if is_long() { 88 } else { 3 };
    let clients: Vec<_> = (0..STREAMING)
        .map(|client| {
            let address = server.address.clone();
            thread::spawn(move || (0..rounds).map(|round| stream_one(&address, client, round)).collect::<Vec<_>>())
        })
        .collect();
    let mut times: Vec<Duration> =
        clients.into_iter().flat_map(|client| client.join().expect("no mark of another")).collect();
    times.sort_unstable();
    let (requests, p99) = (times.len(), times[times.len() * 99 / 100]);
    println!(
        "{requests} streamed turns of {STREAMING} sessions at once: p50 {:?}, p99 {p99:?}",
        times[times.len() / 2]
    );
    assert_eq!(requests, STREAMING * rounds);
}

/// Asks a session to repeat its own mark, and returns how long the whole stream took.
fn stream_one(address: &str, client: usize, round: usize) -> Duration {
    let began = Instant::now();
    let mark = format!("mark-{client}-{round}");
    let body = json!({"session": format!("load-{client}"), "message": format!("echo {mark}")}).to_string();
    let mut stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(Duration::from_mins(2))).expect("set");
    let head = format!(
        "POST /api/v1/submit HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("answered");
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    let expected = format!("{mark} ").repeat(echo_model::PIECES);
    assert!(text.contains(expected.trim_end()), "{text}");
    assert_eq!(text.matches("mark-").count(), echo_model::PIECES, "only its own mark: {text}");
    began.elapsed()
}

#[test]
fn idle_sessions_cost_memory_for_their_index_alone() {
    let world = World::new();
    world.configure(&echo_model::configuration(&echo_model::start(), "[serve]\nidle = \"1s\"\n"));
    let server = Server::start(&world);
    let sessions = if is_long() { IDLE } else { IDLE / 5 };
    // What the process needs for its first work is not counted.
    ask_all(&server, 0..FIRST);
    let before = settled_memory(&server);
    ask_all(&server, FIRST..FIRST + sessions);
    let after = settled_memory(&server);
    let each = after.saturating_sub(before) / sessions as u64;
    println!("{sessions} idle sessions: {} KiB before, {} KiB after, {each} bytes each", before >> 10, after >> 10);
    assert!(each < MAX_IDLE_BYTES, "{each} bytes each");
    assert_eq!(server.get("/api/v1/sessions").json()["sessions"].as_array().map(Vec::len), Some(FIRST + sessions));
    let answer = server.ask("idle-150", "echo again");
    assert!(answer["answer"].as_str().expect("text").starts_with("again"), "it is loaded again: {answer}");
}

fn ask_all(server: &Server, sessions: std::ops::Range<usize>) {
    const CLIENTS: usize = 8;
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let sessions = sessions.clone();
            scope.spawn(move || {
                for session in sessions.filter(|session| session % CLIENTS == client) {
                    server.ask(&format!("idle-{session}"), "echo x");
                }
            });
        }
    });
}

/// The memory of the server once it has put its sessions down.
fn settled_memory(server: &Server) -> u64 {
    let id = server.process_id();
    let journals = || {
        let files = std::fs::read_dir(format!("/proc/{id}/fd")).expect("it runs").flatten();
        files
            .filter_map(|file| std::fs::read_link(file.path()).ok())
            .filter(|path| path.extension().is_some_and(|end| end == "jsonl"))
            .count()
    };
    until("no session is loaded", || journals() == 0);
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().expect("a number") << 10
}

/// Beside `LiteLLM` in the same run: both pass a question through to the same model.
#[test]
fn a_pass_through_adds_less_than_litellm_does() {
    let Some(litellm) = std::env::var_os("AGENT_MAGIC_TOOL_TEST_LITELLM") else {
        return skip("AGENT_MAGIC_TOOL_TEST_LITELLM does not name PyPI's `litellm`");
    };
    let url = echo_model::start();
    let world = World::new();
    world.configure(&echo_model::configuration(&url, ""));
    let made = world.run(&["serve", "key", "create", "proxy", "--history=client"]).json();
    let key = made["key"].as_str().expect("a key").to_owned();
    let server = Server::start(&world);
    let peer = LiteLlm::start(&world, &litellm, &url);
    let model = url.trim_start_matches("http://");
    let direct = measure(model, "/chat/completions", "");
    let ours = measure(&server.address, "/v1/chat/completions", &key);
    let theirs = measure(&peer.address, "/v1/chat/completions", LITELLM_KEY);
    println!(
        "to the first token: the model alone {:?}, ours {:?}, LiteLLM {:?}",
        direct.first, ours.first, theirs.first
    );
    println!(
        "requests/s with 8 clients: the model alone {:.0}, ours {:.0}, LiteLLM {:.0}",
        direct.rate, ours.rate, theirs.rate
    );
    assert!(ours.first < theirs.first && ours.rate > theirs.rate);
}

struct PassThrough {
    /// The median time to the first token.
    first: Duration,
    /// Requests a second.
    rate: f64,
}

fn measure(address: &str, path: &str, key: &str) -> PassThrough {
    const CLIENTS: u32 = 8;
    const REQUESTS: u32 = 50;
    for _ in 0..5 {
        first_token(address, path, key);
    }
    let mut firsts: Vec<_> = (0..REQUESTS).map(|_| first_token(address, path, key)).collect();
    firsts.sort_unstable();
    let began = Instant::now();
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                for _ in 0..REQUESTS {
                    first_token(address, path, key);
                }
            });
        }
    });
    let rate = f64::from(CLIENTS * REQUESTS) / began.elapsed().as_secs_f64();
    PassThrough { first: firsts[firsts.len() / 2], rate }
}

/// Asks for a stream, reads it whole, and returns how long the first token took.
fn first_token(address: &str, path: &str, key: &str) -> Duration {
    let body =
        json!({"model": "echo", "stream": true, "messages": [{"role": "user", "content": "echo mark"}]}).to_string();
    let began = Instant::now();
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_mins(1))).expect("set");
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).expect("sent");
    let mut lines = BufReader::new(stream);
    let mut first = None;
    let mut line = String::new();
    let mut whole = String::new();
    while {
        line.clear();
        lines.read_line(&mut line).is_ok_and(|count| count > 0)
    } {
        if first.is_none() && line.contains("mark") {
            first = Some(began.elapsed());
        }
        whole.push_str(&line);
        if line.contains("[DONE]") {
            break;
        }
    }
    first.unwrap_or_else(|| panic!("{address} sent no token: {whole}"))
}

/// `LiteLLM`'s proxy before the same model.
struct LiteLlm {
    process: Child,
    address: String,
}

impl LiteLlm {
    fn start(world: &World, program: &std::ffi::OsStr, model: &str) -> Self {
        let config = world.folder().join("litellm.yaml");
        let text = format!(
            "model_list:\n  - model_name: echo\n    litellm_params:\n      model: openai/echo\n      api_base: {model}\n      api_key: unused\n"
        );
        std::fs::write(&config, text).expect("written");
        let port = free_port();
        let process = Command::new(program)
            .args(["--config", config.to_str().expect("a path"), "--host", "127.0.0.1", "--port", &port.to_string()])
            .env("HOME", world.home())
            .env("LITELLM_MASTER_KEY", LITELLM_KEY)
            .env("LITELLM_TELEMETRY", "False")
            .env("LITELLM_LOCAL_MODEL_COST_MAP", "True")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("LiteLLM starts");
        let address = format!("127.0.0.1:{port}");
        let deadline = Instant::now() + Duration::from_mins(3);
        while TcpStream::connect(&address).is_err() {
            assert!(Instant::now() < deadline, "LiteLLM does not listen");
            thread::park_timeout(Duration::from_millis(50));
        }
        Self { process, address }
    }
}

impl Drop for LiteLlm {
    fn drop(&mut self) {
        // An error means that the process has already ended.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}
