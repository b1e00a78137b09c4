//! A database server of a test, which `tests/databases` starts. Included by the tests of the crate `database` too.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;

use serde_json::Value;

use crate::free_port::free_port;

/// A server that stops when this is dropped, or when the process ends in any way: its input ends then.
pub(crate) struct DatabaseServer {
    started: Value,
    process: Mutex<(Child, Option<ChildStdin>, BufReader<ChildStdout>)>,
}

/// Starts a server, `postgres` or `mariadb`; `None` if this machine has none.
pub(crate) fn start(kind: &str) -> Option<DatabaseServer> {
    std::env::var_os(format!("AGENT_MAGIC_TOOL_TEST_{}", kind.to_uppercase()))?;
    let port = free_port();
    let mut child = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/databases"))
        .args([kind, &port.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let input = child.stdin.take();
    let mut output = BufReader::new(child.stdout.take().expect("its output"));
    let mut line = String::new();
    output.read_line(&mut line).expect("a line");
    let started: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{kind} did not start: {line}"));
    Some(DatabaseServer { started, process: Mutex::new((child, input, output)) })
}

impl DatabaseServer {
    /// What the server said when it started: its `url`, `password`, `folder` or `certificate`.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.started[name].as_str().expect("a text")
    }

    /// Stops or starts the server.
    pub(crate) fn command(&self, command: &str) {
        let mut process = self.process.lock().expect("no test panics here");
        writeln!(process.1.as_mut().expect("an input"), "{command}").expect("it is written");
        let mut line = String::new();
        process.2.read_line(&mut line).expect("a line");
        assert_eq!(line, "done\n");
    }
}

impl Drop for DatabaseServer {
    fn drop(&mut self) {
        if let Ok(process) = self.process.get_mut() {
            drop(process.1.take());
            process.0.wait().ok();
        }
    }
}
