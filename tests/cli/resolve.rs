//! `resolve`: records, once, whether a task that ended as `unknown` took effect.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;

use insta::assert_snapshot;
use protocol::mailbox::Mailbox;
use serde_json::{Value, json};

use crate::world::{World, until, wait_for_end};

/// Runs a task that ends as `unknown`, since its executor is killed after it took effect; returns its id.
fn unknown(world: &World) -> String {
    world.define(
        "post.json",
        &json!({"post": {"description": "Sends a line.", "input": {}, "confirm": "never",
            "run": {"process": {"folder": ".", "argv": ["sh", "-c", "echo x >> sent; sleep 60"]}}}}),
    );
    let id = world.start("post", &json!({}));
    until("it was sent", || fs::exists(world.folder().join("sent")).expect("readable"));
    world.kill_executor();
    let ended = world.run(&["wait", &id]);
    let hint = ended.json()["error"]["hint"].as_str().expect("a hint").to_owned();
    assert!(hint.contains(&format!("agent-magic-tool resolve {id} --happened")), "{ended}");
    id
}

#[test]
fn the_first_resolution_is_recorded_and_the_task_stays_unknown() {
    let world = World::new();
    let id = unknown(&world);
    let first = world.run(&["resolve", &id, "--happened", "--note", "the line is there"]);
    assert_snapshot!(first, @r#"
    exit: 0
    --- stdout
    {"id":"ID","resolution":{"happened":true,"by":"caller","note":"the line is there","at":"TIME"},"result_file":"MAILBOX/results/result-ID.json"}
    "#);
    let resolved = first.json()["resolution"].clone();
    let assert_unchanged = |world: &World| {
        let file = world.result_file(&id);
        assert_eq!(
            (&file["status"], &file["success"], &file["_meta"]["resolution"]),
            (&json!("unknown"), &json!(false), &resolved)
        );
        let tasks = world.run(&["tasks"]).json();
        assert_eq!((&tasks[0]["status"], &tasks[0]["resolution"]), (&json!("unknown"), &resolved), "{tasks}");
    };
    assert_unchanged(&world);
    assert_eq!(
        world.run(&["resolve", &id, "--happened"]).json()["resolution"],
        resolved,
        "repeating the resolution succeeds"
    );
    let other = world.run(&["resolve", &id, "--did-not"]);
    assert_eq!(
        (other.exit, &other.error()["code"], &other.error()["details"]["resolution"]),
        (5, &json!("already-resolved"), &resolved)
    );
    assert!(other.error()["message"].as_str().expect("words").ends_with(": it happened: the line is there"), "{other}");

    // The resolution survives a killed executor and a lost result file.
    world.kill_executor();
    fs::remove_file(world.mailbox().join(format!("results/result-{id}.json"))).expect("removed");
    assert_eq!(world.run(&["executor", "start"]).exit, 0);
    until("the result file is back", || world.mailbox().join(format!("results/result-{id}.json")).exists());
    assert_unchanged(&world);
}

#[test]
fn only_an_unknown_task_can_be_resolved() {
    let world = World::new();
    let done = world.result_of("files_list", &json!({}))["id"].as_str().expect("an id").to_owned();
    let refused = |words: &[&str]| -> (i32, Value) {
        let ran = world.run(words);
        (ran.exit, ran.error()["code"].clone())
    };
    assert_eq!(refused(&["resolve", &done, "--did-not"]), (5, json!("not-unknown")));
    let missing = "01a1fce914ce72a8be531d1bffc6ef06";
    assert_eq!(refused(&["resolve", missing, "--did-not"]), (3, json!("unknown-task")));
    for words in [&["resolve", &done][..], &["resolve", &done, "--happened", "--did-not"]] {
        assert_eq!(refused(words), (2, json!("usage")), "exactly one of the two flags is required");
    }
    assert!(world.result_file(&done)["_meta"].get("resolution").is_none());
}

#[test]
fn a_resolution_is_published_even_if_the_executor_is_killed_after_recording_it() {
    let world = World::new();
    let id = unknown(&world);
    let mailbox = Mailbox::open(&world.mailbox()).expect("a mailbox");
    for point in ["commit.after", "result.written", "answer.renamed"] {
        assert_eq!(world.run(&["executor", "stop"]).exit, 0);
        let mut command = world.command(&["executor", "run"]);
        let command = command.env("AGENT_MAGIC_TOOL_FAULT", format!("{point}:kill:1")).stderr(Stdio::null());
        let mut executor = command.spawn().expect("it starts");
        // A new executor publishes the earlier resolution again, so the fault may end it right after its start.
        until("the executor has started", || {
            mailbox.executor().expect("readable") == Some(executor.id())
                || executor.try_wait().expect("its status").is_some()
        });
        let resolved = world.run(&["resolve", &id, "--happened"]);
        assert_eq!(
            (resolved.exit, &resolved.json()["resolution"]["happened"]),
            (0, &json!(true)),
            "{point}: {resolved}"
        );
        assert_eq!(wait_for_end(&mut executor).signal(), Some(9), "the fault at {point} must strike");
        until("the result file has the resolution", || {
            world.result_file(&id)["_meta"]["resolution"]["happened"] == true
        });
    }
}
