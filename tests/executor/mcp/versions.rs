//! Servers of every protocol version, made with the official SDKs of their time.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::free_port::free_port;
use crate::skip::skip;
use crate::world::{World, until};

/// The folder with older releases of the TypeScript SDK, each under its version.
const OLD: &str = "AGENT_MAGIC_TOOL_TEST_MCP_VERSIONS";
/// The programs of an environment of Python with the current SDK.
pub(super) const PYTHON: &str = "AGENT_MAGIC_TOOL_TEST_MCP_PYTHON";

/// A release, the newest version it speaks, and its transports.
const RELEASES: [(&str, &str, &[&str]); 4] = [
    ("v1.0", "2024-11-05", &["stdio", "sse"]),
    ("v1.12", "2025-03-26", &["stdio", "sse", "http"]),
    ("v1.13", "2025-06-18", &["stdio", "http"]),
    ("v1.24", "2025-11-25", &["stdio", "http"]),
];

pub(super) fn folder(variable: &str) -> Option<PathBuf> {
    let folder = std::env::var_os(variable).map(PathBuf::from);
    if folder.is_none() {
        skip(&format!("{variable} is not set"));
    }
    folder
}

pub(super) fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").join("tests/executor/mcp").join(name)
}

/// A server that ends with the test.
struct Served(Child);

impl Drop for Served {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Imports the server that `words` name, checks which version it speaks, and runs its tool.
#[track_caller]
fn assert_works(world: &World, name: &str, words: &[&str], version: &str) {
    let arguments: Vec<_> = ["import", "mcp", name].iter().chain(words).copied().collect();
    let imported = world.run(&arguments);
    assert_eq!(imported.exit, 0, "{imported}");
    let file = std::fs::read(world.subtools().join(format!("{name}.json"))).expect("the imported file");
    let definitions: Value = serde_json::from_slice(&file).expect("JSON");
    assert_eq!(definitions["$defaults"]["run"]["mcp"]["server"]["protocol"], version, "{name}");
    let mut names = definitions.as_object().into_iter().flatten().map(|(name, _)| name.as_str());
    let tool = names.rfind(|name| !name.starts_with('$')).expect("a tool");
    for b in [1, 2] {
        let result = world.result_of(tool, &json!({"a": 40, "b": b}));
        assert_eq!(result["data"], format!("sum: {}", 40 + b), "{name}: {result}");
    }
}

fn world() -> World {
    let world = World::new();
    world.configure_without_packs("[[confirm.rules]]\ntools = [\"*\"]\nthen = \"allow\"\n");
    world
}

#[test]
fn servers_of_earlier_versions_work() {
    let Some(releases) = folder(OLD) else { return };
    let world = world();
    let script = script("versions.mjs").display().to_string();
    for (release, version, transports) in RELEASES {
        let folder = releases.join(release).display().to_string();
        for transport in transports {
            let name = format!("{}_{transport}", release.replace('.', "_"));
            if *transport == "stdio" {
                assert_works(&world, &name, &["--", "node", &script, &folder, "stdio"], version);
                continue;
            }
            let mut command = Command::new("node");
            command.args([&script, &folder, *transport]).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut served = Served(command.spawn().expect("node starts"));
            let mut url = String::new();
            BufReader::new(served.0.stdout.take().expect("a pipe")).read_line(&mut url).expect("it prints its URL");
            assert_works(&world, &name, &[url.trim()], version);
        }
    }
}

#[test]
fn servers_of_the_current_version_work() {
    let Some(python) = folder(PYTHON) else { return };
    let world = world();
    let (python, script) = (python.join("python").display().to_string(), script("versions.py").display().to_string());
    assert_works(&world, "new_stdio", &["--", &python, &script, "stdio"], "2026-07-28");
    let port = free_port();
    let mut command = Command::new(&python);
    command.args([&script, "streamable-http", &port.to_string()]).stderr(Stdio::null());
    let _served = Served(command.spawn().expect("Python starts"));
    until("the server listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    assert_works(&world, "new_http", &[&format!("http://127.0.0.1:{port}/mcp")], "2026-07-28");
}
