//! `executor`: start, status, stop, and running in the foreground.

use std::process::Stdio;

use insta::assert_snapshot;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::world::{World, until};

#[test]
fn the_executor_starts_reports_its_status_and_stops() {
    let world = World::new();
    assert_snapshot!(world.run(&["executor", "status"]), @r#"
    exit: 7
    --- stdout
    {"running":false,"mailbox":"MAILBOX"}
    "#);
    let started = world.run(&["executor", "start"]).json();
    let status = world.run(&["executor", "status"]).json();
    assert_eq!((&started["running"], &started["pid"]), (&json!(true), &status["pid"]));
    assert_eq!((&status["version"], &status["tasks"]), (&json!(env!("CARGO_PKG_VERSION")), &json!({})));
    assert!(status["uptime_s"].is_u64() && status["mailbox"].is_string(), "{status}");
    let stopped = world.run(&["executor", "stop"]).json();
    assert_eq!((&stopped["stopped"], &stopped["pid"]), (&json!(true), &status["pid"]));
    assert_snapshot!(world.run(&["executor", "stop"]), @r#"
    exit: 0
    --- stdout
    {"stopped":false,"mailbox":"MAILBOX"}
    --- stderr
    note: no executor is running
    "#);
}

#[test]
fn the_status_counts_open_tasks_by_state() {
    let world = World::new();
    world.configure("[executor]\nconcurrency = 1\n");
    world.define(
        "nap.json",
        &json!({"nap": {"description": "Sleeps for a minute.", "input": {},
        "annotations": {"readOnlyHint": true}, "run": {"process": {"argv": ["sleep", "60"]}}}}),
    );
    for _ in 0..3 {
        world.start("nap", &json!({}));
    }
    assert_eq!(world.run(&["executor", "status"]).json()["tasks"], json!({"queued": 2, "running": 1}));
}

#[test]
fn in_the_foreground_it_logs_to_standard_error_and_ends_on_sigterm() {
    let world = World::new();
    let mut command = world.command(&["executor", "run"]);
    let daemon = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let pid = Pid::from_raw(i32::try_from(daemon.id()).expect("a process id"));
    until("the executor is running", || world.executor() == Some(pid));
    let second = world.run(&["executor", "run"]);
    assert_eq!(
        (second.exit, second.error()["message"].as_str()),
        (7, Some("another executor is serving this mailbox")),
        "{second}"
    );
    assert_eq!(world.result_of("files_list", &json!({}))["status"], "succeeded");
    kill(pid, Signal::SIGTERM).expect("the executor is alive");
    let ran = world.transcript(&daemon.wait_with_output().expect("it ends"));
    assert_eq!((ran.exit, ran.stdout.as_str()), (0, ""), "{ran}");
    assert!(ran.stderr.contains("executor started") && ran.stderr.contains("task ended"), "{ran}");
}

#[test]
fn every_run_is_logged_with_caller_digest_and_outcome() {
    let world = World::new();
    world.define("echo.json", &json!({"echo": {"description": "Returns its text.", "input": {"type": "object", "properties": {"text": {"type": "string"}}},
        "annotations": {"readOnlyHint": true}, "run": {"process": {"argv": ["printf", "%s", "{{ text }}"]}}}}));
    world.result_of("echo", &json!({"text": "年度报告"}));
    let log = std::fs::read_to_string(world.log()).expect("a log");
    let line = log.lines().find(|line| line.contains("task ended")).expect("the run is logged");
    let entry: serde_json::Value = serde_json::from_str(line).expect("a line of JSON");
    assert_eq!((&entry["tool"], &entry["state"]), (&json!("echo"), &json!("succeeded")), "{entry}");
    // A digest stands for the input, which may be confidential.
    let digest = entry["input_sha256"].as_str().expect("a digest");
    assert!(digest.len() == 64 && !line.contains("年度报告"), "{entry}");
    assert!(entry["uid"].is_u64() && entry["duration_ms"].is_u64() && entry["timestamp"].is_string(), "{entry}");
}

#[test]
fn a_reason_can_be_demanded_and_is_logged() {
    let world = World::new();
    world.define("echo.json", &json!({"echo": {"description": "Returns its text.", "input": {"type": "object", "properties": {"text": {"type": "string"}}},
        "needs_reason": true, "annotations": {"readOnlyHint": true}, "run": {"process": {"argv": ["printf", "%s", "{{ text }}"]}}}}));
    for silent in [&["run", "echo", "text=a"][..], &["run", "echo", "text=a", "--reason", " "]] {
        let refused = world.run(silent);
        assert_eq!((refused.exit, refused.error()["code"].as_str()), (2, Some("invalid-input")), "{refused}");
        assert!(refused.stderr.contains("--reason"), "{refused}");
    }
    assert!(world.run(&["list", "tools", "echo"]).stdout.contains("reason"), "a model learns it before it calls");
    let ran = world.run(&["run", "echo", "text=a", "--wait", "--reason", "The user asked for it."]);
    assert_eq!(ran.exit, 0, "{ran}");
    let log = std::fs::read_to_string(world.log()).expect("a log");
    let line = log.lines().find(|line| line.contains("task ended")).expect("the run is logged");
    let entry: serde_json::Value = serde_json::from_str(line).expect("a line of JSON");
    assert_eq!(entry["reason"], "The user asked for it.", "{entry}");
}

#[test]
fn no_agent_gets_a_link_to_the_page() {
    let world = World::new();
    assert_eq!(world.run(&["executor", "start"]).exit, 0);
    for variable in
        ["AGENT_MAGIC_TOOL_SESSION", "CLAUDECODE", "CODEX_SANDBOX", "CURSOR_AGENT", "GEMINI_CLI", "OPENCODE"]
    {
        let mut command = world.command(&["executor", "page"]);
        let ran = world.transcript(&command.env(variable, "1").output().expect("the program starts"));
        assert_eq!((ran.exit, ran.error()["code"].as_str()), (5, Some("humans-only")), "{variable}: {ran}");
        assert!(ran.stderr.contains(variable) && ran.stdout.is_empty(), "{ran}");
    }
    let executors = std::fs::read_dir(world.state().join("executors")).expect("a folder").flatten();
    let links = executors.flat_map(|folder| std::fs::read_dir(folder.path().join("links")).into_iter().flatten());
    assert_eq!(links.count(), 0, "no link was made");
}
