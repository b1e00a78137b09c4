//! The server on standard input and output: nothing but messages, and a clean end.

use std::io::Write as _;
use std::process::{Child, ChildStdin, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::peers::{Lines, define, document, hold, text};
use crate::world::World;

/// The versions with a handshake.
const VERSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

struct Line {
    process: Child,
    stdin: ChildStdin,
    lines: Lines,
}

impl Line {
    fn start(world: &World) -> Self {
        let mut command = world.command(&["mcp"]);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let stdin = process.stdin.take().expect("a pipe");
        let lines = Lines::of(process.stdout.take().expect("a pipe"));
        Self { process, stdin, lines }
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.stdin, "{message}").expect("it reads");
    }

    fn ask(&mut self, id: u32, method: &str, params: &Value) -> Value {
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        let answer = self.lines.next();
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    fn shake_hands(&mut self, version: &str) -> Value {
        let client = json!({"name": "plain", "version": "1"});
        let answer =
            self.ask(1, "initialize", &json!({"protocolVersion": version, "capabilities": {}, "clientInfo": client}));
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        answer["result"].clone()
    }
}

#[test]
fn each_version_gets_what_it_knows() {
    let world = World::new();
    define(&world);
    for version in VERSIONS {
        let mut line = Line::start(&world);
        assert_eq!(line.shake_hands(version)["protocolVersion"], version);
        let call = json!({"name": "command_executor", "arguments": {"command": "run say text=x"}});
        let called = line.ask(2, "tools/call", &call)["result"].clone();
        let kinds: Vec<_> = called["content"].as_array().expect("a list").iter().map(|part| &part["type"]).collect();
        let expected = if version < "2025-06-18" { &["text"][..] } else { &["text", "resource_link"] };
        assert_eq!(kinds, expected, "{version}");
        assert!(called.get("resultType").is_none(), "{called}");
    }
}

#[test]
fn it_ends_with_its_input_and_when_it_is_told_to() {
    let world = World::new();
    define(&world);
    for told in [None, Some(Signal::SIGTERM), Some(Signal::SIGINT)] {
        let mut line = Line::start(&world);
        line.shake_hands("2025-11-25");
        let held = hold(&world);
        // A call that waits holds up neither the others nor the end.
        let wait = json!({"name": "command_executor", "arguments": {"command": "run hold --wait"}});
        line.send(&json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": wait}));
        let listed = line.ask(3, "tools/list", &json!({}));
        assert!(listed["result"]["tools"].is_array(), "{listed}");
        let Line { mut process, stdin, lines } = line;
        let stdin = match told {
            None => {
                drop(stdin);
                None
            }
            Some(signal) => {
                let pid = i32::try_from(process.id()).expect("a process id");
                kill(Pid::from_raw(pid), signal).expect("it runs");
                Some(stdin)
            }
        };
        let ended = process.wait().expect("it ends");
        assert!(ended.success(), "{told:?}: {ended}");
        drop((stdin, lines));
        std::fs::remove_file(held).expect("removed");
    }
}

#[test]
fn what_is_no_message_is_answered_and_changes_nothing() {
    let world = World::new();
    define(&world);
    let mut line = Line::start(&world);
    line.shake_hands("2025-11-25");
    // What is not JSON has no id, and gets no answer.
    line.stdin.write_all(b"{\"jsonrpc\": \xff\n\n{\n").expect("it reads");
    line.send(&json!({"no": "message"}));
    assert_eq!(line.lines.next()["error"]["code"], -32600);
    let unknown = line.ask(7, "no/such/method", &json!({}));
    assert_eq!(unknown["error"]["code"], -32601, "{unknown}");
    let call = json!({"name": "command_executor", "arguments": {"line": "run say"}});
    let called = line.ask(8, "tools/call", &call);
    assert!(called["result"]["isError"] == true && text(&called["result"]).contains("`command`"), "{called}");
}

#[test]
fn a_call_with_a_key_delegates_once() {
    let world = World::new();
    define(&world);
    let mut line = Line::start(&world);
    line.shake_hands("2025-11-25");
    let call = json!({"name": "command_executor", "arguments": {"command": "run say text=x"},
        "_meta": {"agent-magic-tool/idempotency-key": "k1"}});
    let mut ids = Vec::new();
    for id in 2..4 {
        let called = line.ask(id, "tools/call", &call)["result"].clone();
        ids.push(document(&called)["id"].clone());
    }
    assert_eq!(ids[0], ids[1]);
}
