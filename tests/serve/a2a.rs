//! Other agents, with the SDKs that the A2A protocol's own makers give out: `clients` asks our server with them, `remote`
//! has our runner ask servers made with them, `pair` has two servers of ours ask each other, `restarts` kills our server.
//!
//! `AGENT_MAGIC_TOOL_TEST_SERVE_NODE` names the folder `node_modules` with `@a2a-js/sdk` and `express`,
//! `AGENT_MAGIC_TOOL_TEST_SERVE_PYTHON` the folder with the `python` that has `a2a-sdk[http-server]` and `uvicorn`.
//! Without one of them, its tests print that they are skipped.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use serde_json::{Value, json};

use crate::skip::skip;
use crate::world::{TEST_TIMEOUT, World};

pub(crate) mod clients;
mod pair;
mod remote;
mod restarts;

/// An SDK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sdk {
    Python,
    JavaScript,
}

const SDKS: [Sdk; 2] = [Sdk::Python, Sdk::JavaScript];

impl Sdk {
    /// The command that runs one of the scripts here; `None`, with a note, if the SDK is not installed.
    fn command(self, script: &str) -> Option<Command> {
        let variable = match self {
            Self::Python => "AGENT_MAGIC_TOOL_TEST_SERVE_PYTHON",
            Self::JavaScript => "AGENT_MAGIC_TOOL_TEST_SERVE_NODE",
        };
        let Some(folder) = std::env::var_os(variable).map(PathBuf::from) else {
            skip(&format!("{variable} does not name the packages of an A2A SDK"));
            return None;
        };
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/serve");
        let (program, words): (PathBuf, Vec<OsString>) = match self {
            Self::Python => (folder.join("python"), vec![scripts.join(format!("{script}.py")).into()]),
            Self::JavaScript => ("node".into(), vec![scripts.join(format!("{script}.mjs")).into(), folder.into()]),
        };
        let mut command = Command::new(program);
        command.args(words).stdout(Stdio::piped());
        Some(command)
    }
}

/// A program that prints a line for each thing that happens. Ends with it.
#[derive(Debug)]
struct Peer {
    process: Child,
    lines: Receiver<String>,
}

impl Peer {
    fn start(mut command: Command) -> Self {
        let mut process = command.stdin(Stdio::piped()).spawn().expect("it starts");
        let stdout = process.stdout.take().expect("a pipe");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines() {
                if line.is_ok_and(|line| sender.send(line).is_err()) {
                    break;
                }
            }
        });
        Self { process, lines }
    }

    /// A client of this SDK that asks the server at `url`.
    fn client(sdk: Sdk, url: &str, words: &[&str]) -> Option<Self> {
        let mut command = sdk.command("a2a_client")?;
        command.arg(url).args(words);
        Some(Self::start(command))
    }

    /// An agent made with this SDK, and its address.
    fn server(sdk: Sdk, flags: &[&str]) -> Option<(Self, String)> {
        let mut command = sdk.command("a2a_server")?;
        command.args(flags);
        let server = Self::start(command);
        let url = server.lines.recv_timeout(TEST_TIMEOUT).expect("it prints its address");
        Some((server, url))
    }

    /// The next line; `None` if it has ended.
    fn next(&self) -> Option<Value> {
        match self.lines.recv_timeout(TEST_TIMEOUT) {
            Ok(line) => Some(serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))),
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// All lines up to the end.
    fn rest(&self) -> Vec<Value> {
        std::iter::from_fn(|| self.next()).collect()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // An error means that the process has already ended.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// The state that an event says the task is in.
fn state(event: &Value) -> &str {
    let status = ["/task/status/state", "/statusUpdate/status/state", "/status/state"];
    let found = status.iter().find_map(|place| event.pointer(place).and_then(Value::as_str));
    found.unwrap_or_default().trim_start_matches("TASK_STATE_")
}

/// The text that a client has of an answer after these events.
fn text(events: &[Value]) -> String {
    let mut text = String::new();
    for event in events {
        let parts = |holder: &Value| -> String {
            let parts = holder["parts"].as_array().expect("parts").iter();
            parts.filter_map(|part| part["text"].as_str()).collect()
        };
        if let Some(update) = event.get("artifactUpdate") {
            if update["append"] != true {
                text.clear();
            }
            text.push_str(&parts(&update["artifact"]));
        } else if let Some(artifact) = event.pointer("/task/artifacts/0").or_else(|| event.pointer("/artifacts/0")) {
            text = parts(artifact);
        }
    }
    text
}

/// A subtool that asks the agent at `url`. `more` is for the runner, and `outer` for the definition.
fn define_agent(world: &World, url: &str, more: &Value, outer: &Value) {
    let mut run = json!({"url": url, "prompt": "{{ message }}", "session": "{{ session }}"});
    run.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    let mut definition = json!({
        "description": "Asks another agent.",
        "input": {
            "type": "object",
            "properties": {"message": {"type": "string"}, "session": {"type": "string"}},
            "required": ["message"],
        },
        "confirm": "never",
        "run": {"agent": run},
    });
    definition.as_object_mut().expect("an object").extend(outer.as_object().expect("an object").clone());
    world.define("remote.json", &json!({"ask_remote": definition}));
}
