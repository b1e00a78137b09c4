//! The servers of npm and `PyPI`: each of their tools is imported and run, and answers what it answers the official SDK.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use mcp::client::ToolAnswer;
use serde_json::{Map, Value, json};

use super::versions::{PYTHON, folder, script};
use crate::world::World;

/// The folder `node_modules` with npm's servers.
const NPM: &str = "AGENT_MAGIC_TOOL_TEST_MCP_SERVERS";

/// Tools that are shown elsewhere: they ask the human, or need a server that plays along.
const ELSEWHERE: [&str; 3] = ["trigger-elicitation-request", "trigger-url-elicitation", "simulate-research-query"];

/// The command of a server that works in `folder`, and its environment.
fn command(name: &str, npm: &Path, python: &Path, folder: &Path) -> (Vec<String>, Value) {
    let of_npm = |arguments: &[&str]| {
        let index = npm.join(format!("@modelcontextprotocol/server-{name}/dist/index.js")).display().to_string();
        ["node".to_owned(), index].into_iter().chain(arguments.iter().map(|it| (*it).to_owned())).collect()
    };
    let of_python = |arguments: &[&str]| {
        let program = python.join(format!("mcp-server-{name}")).display().to_string();
        std::iter::once(program).chain(arguments.iter().map(|it| (*it).to_owned())).collect()
    };
    let place = folder.display().to_string();
    match name {
        "filesystem" => (of_npm(&[&place]), json!({})),
        "memory" => (of_npm(&[]), json!({"MEMORY_FILE_PATH": folder.join("memory.jsonl")})),
        "time" => (of_python(&["--local-timezone", "UTC"]), json!({})),
        "git" => (
            of_python(&[]),
            json!({"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.com",
            "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.com"}),
        ),
        "fetch" => (of_python(&["--ignore-robots-txt"]), json!({})),
        _ => (of_npm(&[]), json!({})),
    }
}

/// Makes the folder in which a server works.
fn prepare(name: &str, folder: &Path) {
    fs::create_dir_all(folder).expect("made");
    if name != "git" {
        return;
    }
    let git = |words: &[&str]| {
        let mut command = Command::new("git");
        command.args(["-c", "user.name=a", "-c", "user.email=a@example.com"]).args(words).current_dir(folder);
        let output = command.output().expect("git runs");
        assert!(output.status.success(), "{output:?}");
    };
    git(&["init", "--quiet", "--initial-branch=main"]);
    fs::write(folder.join("a.txt"), "one\n").expect("written");
    git(&["add", "."]);
    git(&["commit", "--quiet", "--message=first"]);
    fs::write(folder.join("a.txt"), "two\n").expect("written");
}

/// `value` with every `from` in its texts replaced.
fn replaced(value: &Value, from: &str, to: &str) -> Value {
    serde_json::from_str(&value.to_string().replace(from, to)).expect("JSON")
}

#[test]
fn every_tool_answers_what_it_answers_the_official_client() {
    let (Some(npm), Some(python)) = (folder(NPM), folder(PYTHON)) else { return };
    let calls: BTreeMap<String, Vec<Value>> =
        serde_json::from_slice(&fs::read(script("calls.json")).expect("the calls")).expect("JSON");
    let world = World::new();
    world.configure_without_packs("[[confirm.rules]]\ntools = [\"*\"]\nthen = \"allow\"\n");
    for (name, calls) in &calls {
        let (ours, theirs) = (world.folder().join("ours").join(name), world.folder().join("theirs").join(name));
        let direct = direct(name, calls, &npm, &python, &theirs);
        let names = import(&world, name, &npm, &python, &ours);
        let called: BTreeSet<_> = calls.iter().filter_map(|call| call[0].as_str()).collect();
        let uncalled: Vec<_> = names
            .keys()
            .filter(|tool| !called.contains(tool.as_str()) && !ELSEWHERE.contains(&tool.as_str()))
            .collect();
        assert!(uncalled.is_empty(), "{name}: {uncalled:?}");
        for (call, result) in calls.iter().zip(direct) {
            let tool = call[0].as_str().expect("a name");
            let input = replaced(&call[1], "FOLDER", &ours.display().to_string());
            let got = world.result_of(&names[tool], &input);
            let expected =
                ToolAnswer::of(&replaced(&result, &theirs.display().to_string(), &ours.display().to_string()));
            assert_same(&format!("{name} {call}"), &got, &expected, call[2] == "differs");
        }
    }
}

/// What the official SDK's client gets.
fn direct(name: &str, calls: &[Value], npm: &Path, python: &Path, folder: &Path) -> Vec<Value> {
    prepare(name, folder);
    let (command, mut env) = command(name, npm, python, folder);
    env["PATH"] = std::env::var("PATH").expect("a path").into();
    let calls = replaced(&json!(calls), "FOLDER", &folder.display().to_string());
    let mut client = Command::new(python.join("python"));
    client.arg(script("direct.py")).args([json!({"command": command, "env": env}).to_string(), calls.to_string()]);
    let output = client.output().expect("Python starts");
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).expect("UTF-8");
    lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Imports a server. Returns the names of its subtools by those of its tools.
fn import(world: &World, name: &str, npm: &Path, python: &Path, folder: &Path) -> BTreeMap<String, String> {
    prepare(name, folder);
    let (command, env) = command(name, npm, python, folder);
    let env = env
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("--env={key}={}", value.as_str().expect("a text")));
    let mut words: Vec<String> = ["import", "mcp", name, "--prefix"].map(str::to_owned).into();
    words.extend(env.chain(std::iter::once("--".to_owned())).chain(command));
    let imported = world.run(&words.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(imported.exit, 0, "{imported}");
    assert_eq!(imported.json()["left_out"], json!({}), "{imported}");
    let file: PathBuf = world.subtools().join(format!("{name}.json"));
    let file: Map<String, Value> = serde_json::from_slice(&fs::read(file).expect("the file")).expect("JSON");
    let subtools = file.into_iter().filter(|(name, _)| !name.starts_with('$'));
    subtools.map(|(name, it)| (it["run"]["mcp"]["tool"].as_str().expect("a tool").to_owned(), name)).collect()
}

#[track_caller]
fn assert_same(what: &str, got: &Value, expected: &ToolAnswer, differs: bool) {
    match expected {
        ToolAnswer::Error { text, .. } => {
            assert_eq!(got["status"], "failed", "{what}: {got}");
            assert_eq!(got["error"]["message"], *text, "{what}");
        }
        ToolAnswer::Data(_) if differs => assert_eq!(got["status"], "succeeded", "{what}: {got}"),
        ToolAnswer::Data(data) => {
            assert_eq!((&got["status"], &got["data"]), (&json!("succeeded"), data), "{what}: {got}");
        }
        ToolAnswer::Binary(binary) => {
            assert_eq!(got["_meta"]["content_type"], binary.content_type, "{what}: {got}");
            let path = got["data_file"].as_str().or_else(|| got["_meta"]["data_file"].as_str());
            let kept = fs::read(path.unwrap_or_else(|| panic!("{what}: {got}"))).expect("the data file");
            assert_eq!(kept, binary.bytes, "{what}");
        }
    }
}
