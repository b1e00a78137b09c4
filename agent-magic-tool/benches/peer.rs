//! Compares with `mcp2cli`, the fastest comparable tool that we found.
//!
//! It starts a process and calls one tool of a warm MCP server; nothing is durable. The same server is imported here, and
//! its echo run as a task.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::load;
use crate::measure::{self, in_turns};
use crate::plot::{Line, Plot};
use crate::table::Table;
use crate::{Effort, agent, generated};

const VERSION: &str = "0.1.10";
const SERVER: &str = "@modelcontextprotocol/server-everything";
const SERVER_VERSION: &str = "2026.8.31";

pub(crate) fn measure(effort: Effort, table: &mut Table) {
    let program = match peer() {
        Ok(program) => program,
        Err(reason) => return table.skip("mcp2cli", reason),
    };
    let world = generated::world(10);
    world.run(&["executor", "start"]);
    // Its telemetry is on by default.
    let theirs = |arguments: &[&str]| {
        let mut command = world.within(&program, arguments);
        command.env("MCP2CLI_TELEMETRY", "off").env("DO_NOT_TRACK", "1");
        command
    };
    let [ours, other] = in_turns(
        effort.runs,
        &mut [&mut || measure::run(&mut agent::command(&world, &["--version"])), &mut || {
            measure::run(&mut theirs(&["--version"]));
        }],
    );
    table.time("--version, compared with mcp2cli", None, &ours, Some(("mcp2cli", &other)));

    let server = match server() {
        Ok(server) => server,
        Err(reason) => return table.skip(SERVER, reason),
    };
    let path = server.display().to_string();
    let steps: [&[&str]; 3] = [
        &[
            "config",
            "init",
            "--name",
            "everything",
            "--app",
            "bridge",
            "--transport",
            "stdio",
            "--stdio-command",
            "node",
            "--stdio-arg",
            &path,
            "--stdio-arg",
            "stdio",
        ],
        &["everything", "ls"],
        &["daemon", "start", "everything"],
    ];
    for step in steps {
        let ran = theirs(step).stdout(Stdio::null()).stderr(Stdio::piped()).output();
        let failed = match &ran {
            Ok(ran) if ran.status.success() => continue,
            Ok(ran) => String::from_utf8_lossy(&ran.stderr).into_owned(),
            Err(error) => error.to_string(),
        };
        return table.skip("mcp2cli's echo", format!("{step:?}: {failed}"));
    }
    let echo = ["everything", "echo", "--message", "hello"];
    let printed = measure::output(&mut theirs(&echo));
    if !String::from_utf8_lossy(&printed).contains("hello") {
        return table.skip("mcp2cli's echo", "it printed something else");
    }
    measure::run(&mut world.command(&["import", "mcp", "everything", "--", "node", &path, "stdio"]));
    // What a server says of itself allows nothing, so a human's rule does.
    let config = world.config_folder().join("config.toml");
    let rule = "\n[[confirm.rules]]\ntools = [\"echo\"]\nthen = \"allow\"\n";
    let allowed = fs::read_to_string(&config).unwrap_or_default() + rule;
    fs::write(&config, allowed).expect("a configuration");
    let ours = ["run", "echo", "message=hello", "--wait"];
    let printed = measure::output(&mut agent::command(&world, &ours));
    if !String::from_utf8_lossy(&printed).contains("Echo: hello") {
        return table.skip("our echo", format!("it printed {}", String::from_utf8_lossy(&printed)));
    }
    let [durable, other] = in_turns(
        effort.runs,
        &mut [&mut || measure::run(&mut agent::command(&world, &ours)), &mut || measure::run(&mut theirs(&echo))],
    );
    let name = "mcp2cli's, not durable:";
    table.time("run --wait of a warm MCP echo, compared with mcp2cli", Some(10.0), &durable, Some((name, &other)));
    let mut lines = ["run --wait of an echo", "mcp2cli's echo, not durable", "run of a built-in", "a bare process"]
        .map(|name| Line { name, points: Vec::new() });
    let tasks = effort.tasks / 5;
    for callers in [1, 2, 4, 8, 16, 32, 64] {
        let rates = [
            load::rate(callers, tasks, || measure::run(&mut agent::command(&world, &ours))),
            load::rate(callers, tasks, || measure::run(&mut theirs(&echo))),
            load::rate(callers, tasks, || {
                measure::run(&mut agent::command(&world, &["run", "files_read", "path=note.txt"]));
            }),
            load::rate(callers, tasks, || measure::run(&mut measure::bare())),
        ];
        for (line, rate) in lines.iter_mut().zip(rates) {
            line.points.push((f64::from(u32::try_from(callers).expect("small")), rate));
        }
    }
    table.plot(Plot {
        name: "throughput-by-callers",
        title: "Calls by processes that run at once",
        x: "processes at once",
        y: "calls each second",
        lines: lines.to_vec(),
    });
    measure::run(&mut theirs(&["daemon", "stop", "everything"]));
}

/// The folder for downloads, the same as in `tests/run`.
fn cache() -> PathBuf {
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache");
    base.unwrap_or_else(home).join("agent-magic-tool-tests")
}

fn peer() -> Result<PathBuf, String> {
    let root = cache().join(format!("mcp2cli-{VERSION}"));
    let program = root.join("bin/mcp2cli");
    let mut install = Command::new("cargo");
    install
        .args(["install", "mcp2cli", "--locked", "--version", VERSION, "--root"])
        .arg(&root)
        .env("CARGO_TARGET_DIR", root.join("build"));
    installed(program, install)
}

fn server() -> Result<PathBuf, String> {
    let root = cache().join(format!("server-everything-{SERVER_VERSION}"));
    let program = root.join("node_modules").join(SERVER).join("dist/index.js");
    let mut install = Command::new("npm");
    install.args(["install", "--silent", "--no-fund", "--no-audit", "--prefix"]).arg(&root);
    install.arg(format!("{SERVER}@{SERVER_VERSION}"));
    fs::create_dir_all(&root).map_err(|error| error.to_string())?;
    installed(program, install)
}

/// Returns `program`, after running `install` if it does not exist yet.
fn installed(program: PathBuf, mut install: Command) -> Result<PathBuf, String> {
    if program.exists() {
        return Ok(program);
    }
    let output = install.stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    let is_installed = |path: &Path| output.status.success() && path.exists();
    if is_installed(&program) {
        return Ok(program);
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(format!("installation failed: {}", stderr.lines().last().unwrap_or("no reason was given")))
}
