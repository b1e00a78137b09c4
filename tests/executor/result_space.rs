//! How much disk the results of a session may take: reads need no approval, so nothing else bounds them.

use std::process::Command;

use serde_json::{Value, json};

use super::leaks::server;
use crate::world::{Transcript, World};

/// The bytes of each result: two exceed the limit of a session.
const BYTES: usize = 200_000;

/// Every way in which a result is written: a download, what a program prints, as text, as JSON and byte by byte, and a file
/// that it writes.
const TOOLS: [&str; 5] = ["download", "text", "json", "bytes", "file"];

fn world() -> World {
    let world = World::new();
    let url = server("200 OK", "application/zip", vec![7; BYTES]);
    let host = url.strip_prefix("http://").expect("a URL");
    world.configure(&format!(
        "[http]\nprivate_hosts = [\"{host}\"]\n[executor]\nresult_bytes_per_session = 300000\nresult_bytes_per_key = 500000\n\
         result_bytes = 1500000\n"
    ));
    let read = |run: Value| json!({"description": "Gives much.", "input": {}, "annotations": {"readOnlyHint": true}, "run": run});
    let program =
        |script: String, output: &str| read(json!({"process": {"argv": ["sh", "-c", script], "output": output}}));
    let zeros = format!("head -c {BYTES} /dev/zero");
    world.define(
        "much.json",
        &json!({
            "download": read(json!({"http": {"method": "GET", "base_url": url, "path": "/x"}})),
            "text": program(format!("{zeros} | tr '\\0' x"), "text"),
            "json": program(format!("printf '\"'; {zeros} | tr '\\0' x; printf '\"'"), "json"),
            "bytes": program(format!("{zeros} | tr '\\0' x"), "file"),
            "file": read(json!({"process": {"argv": ["sh", "-c", format!("{zeros} > \"$0\""), {"output_file": "out.bin"}]}})),
            "small": program("printf small".to_owned(), "text"),
        }),
    );
    world
}

fn run_in(world: &World, session: &str, arguments: &[&str]) -> Transcript {
    let mut command: Command = world.command(arguments);
    world.transcript(&command.env("AGENT_MAGIC_TOOL_SESSION", session).output().expect("the program starts"))
}

#[test]
fn a_session_gets_no_more_disk_than_its_share_however_a_result_is_written() {
    let world = world();
    for tool in TOOLS {
        let run = |tool: &str| run_in(&world, tool, &["run", tool, "--wait"]);
        let session = |name: &str| run_in(&world, tool, &["run", name, "--wait"]);
        let first = run(tool);
        assert_eq!(first.json()["status"], "succeeded", "{tool}: {first}");
        let second = run(tool);
        let error = &second.json()["error"];
        assert_eq!(error["code"], "quota-exceeded", "{tool}: {second}");
        let hint = error["hint"].as_str().expect("a hint").to_owned();
        assert!(
            hint.contains(&format!("tasks --forget-session {tool}")) && hint.contains("result_bytes_per_session"),
            "{hint}"
        );
        assert_eq!(session("small").json()["status"], "succeeded", "{tool}: what is small still fits");
        // Also under the next executor.
        world.kill_executor();
        assert_eq!(run(tool).json()["error"]["code"], "quota-exceeded", "{tool}");
        assert_eq!(world.run(&["tasks", "--forget-session", tool]).exit, 0);
        assert_eq!(run(tool).json()["status"], "succeeded", "{tool}: the deleted results are not counted");
        assert_eq!(world.run(&["tasks", "--forget-session", tool]).exit, 0);
    }
}

/// What a caller sends is kept as well, in the result file of each task.
#[test]
fn what_a_session_sends_counts_as_its_results_do() {
    let world = world();
    let input = json!({"type": "object", "properties": {"text": {"type": "string"}}});
    let look = json!({"description": "Looks.", "input": input, "annotations": {"readOnlyHint": true},
        "run": {"process": {"argv": ["true"]}}});
    world.define("look.json", &json!({"look": look}));
    let results = || std::fs::read_dir(world.mailbox().join("results")).expect("the results").count();
    let send = |bytes: usize| {
        let input = world.folder().join("input.json");
        std::fs::write(&input, json!({"text": "x".repeat(bytes)}).to_string()).expect("written");
        run_in(&world, "s", &["run", "look", &format!("--input=@{}", input.display()), "--wait"])
    };
    for _ in 0..2 {
        assert_eq!(send(140_000).json()["status"], "succeeded");
    }
    let before = results();
    let refused = send(140_000);
    assert_eq!(refused.error()["code"], "quota-exceeded", "{refused}");
    assert_eq!(results(), before, "nothing of it is kept");
    assert_eq!(send(100).json()["status"], "succeeded", "what is small still fits");
    world.kill_executor();
    assert_eq!(send(140_000).error()["code"], "quota-exceeded", "also under the next executor");
    assert_eq!(world.run(&["tasks", "--forget-session", "s"]).exit, 0);
    assert_eq!(send(140_000).json()["status"], "succeeded");
}

#[test]
fn the_sessions_of_a_key_and_all_callers_have_a_share_too() {
    let world = world();
    let status = |session: &str| {
        let ran = run_in(&world, session, &["run", "bytes", "--wait"]).json();
        ran["error"]["code"].as_str().unwrap_or("succeeded").to_owned()
    };
    let client = |name: &str| {
        let key = world.make_api_key(name).key;
        format!("shared-{name}.{}", key.split('_').nth(1).expect("an id"))
    };
    let (phone, tablet) = (client("phone"), client("tablet"));
    for session in ["a", "b"] {
        assert_eq!(status(&format!("{phone}-{session}")), "succeeded", "{session}");
    }
    assert_eq!(status(&format!("{phone}-c")), "quota-exceeded", "three of one key");
    for session in [&*format!("{tablet}-a"), "b", "c", "d", "e"] {
        assert_eq!(status(session), "succeeded", "{session}");
    }
    assert_eq!(status("f"), "quota-exceeded", "eight of all");
}
