//! `resolve`: what nobody could know is said, once, and stands beside the result.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;

use insta::assert_snapshot;
use protocol::mailbox::Mailbox;
use serde_json::{Value, json};

use crate::world::{World, until};

/// A task whose executor was killed after it had taken effect.
fn unknown(world: &World) -> String {
    world.define(
        "post.json",
        &json!({"post": {"description": "Sends a line.", "input": {}, "confirm": "never",
            "run": {"process": {"folder": ".", "argv": ["sh", "-c", "echo x >> sent; sleep 60"]}}}}),
    );
    let id = world.start("post", &json!({}));
    until("it was sent", || fs::exists(world.folder().join("sent")).expect("asked"));
    world.kill_executor();
    let ended = world.run(&["wait", &id]);
    let hint = ended.json()["error"]["hint"].as_str().expect("a hint").to_owned();
    assert!(hint.contains(&format!("agent-magic-tool resolve {id} --happened")), "{ended}");
    id
}

#[test]
fn what_was_said_first_is_recorded_and_told_and_the_task_stays_unknown() {
    let world = World::new();
    let id = unknown(&world);
    let said = world.run(&["resolve", &id, "--happened", "--note", "the line is there"]);
    assert_snapshot!(said, @r#"
    exit: 0
    --- stdout
    {"id":"ID","resolution":{"happened":true,"by":"caller","note":"the line is there","at":"TIME"},"result_file":"MAILBOX/results/result-ID.json"}
    "#);
    let resolved = said.json()["resolution"].clone();
    let holds = |world: &World| {
        let file = world.result_file(&id);
        assert_eq!(
            (&file["status"], &file["success"], &file["_meta"]["resolution"]),
            (&json!("unknown"), &json!(false), &resolved)
        );
        let tasks = world.run(&["tasks"]).json();
        assert_eq!((&tasks[0]["status"], &tasks[0]["resolution"]), (&json!("unknown"), &resolved), "{tasks}");
    };
    holds(&world);
    assert_eq!(world.run(&["resolve", &id, "--happened"]).json()["resolution"], resolved, "the same is no quarrel");
    let other = world.run(&["resolve", &id, "--did-not"]);
    assert_eq!(
        (other.exit, &other.error()["code"], &other.error()["details"]["resolution"]),
        (5, &json!("already-resolved"), &resolved)
    );
    assert!(
        other.error()["message"].as_str().expect("words").ends_with("that it happened: the line is there"),
        "{other}"
    );

    // Neither a kill nor a lost file changes what was said.
    world.kill_executor();
    fs::remove_file(world.mailbox().join(format!("results/result-{id}.json"))).expect("removed");
    assert_eq!(world.run(&["executor", "start"]).exit, 0);
    until("the result is back", || world.mailbox().join(format!("results/result-{id}.json")).exists());
    holds(&world);
}

#[test]
fn only_what_ended_as_unknown_can_be_resolved() {
    let world = World::new();
    let done = world.result_of("files_list", &json!({}))["id"].as_str().expect("an id").to_owned();
    let refused = |words: &[&str]| -> (i32, Value) {
        let ran = world.run(words);
        (ran.exit, ran.error()["code"].clone())
    };
    assert_eq!(refused(&["resolve", &done, "--did-not"]), (5, json!("not-unknown")));
    let nobody = "01a1fce914ce72a8be531d1bffc6ef06";
    assert_eq!(refused(&["resolve", nobody, "--did-not"]), (3, json!("unknown-task")));
    for words in [&["resolve", &done][..], &["resolve", &done, "--happened", "--did-not"]] {
        assert_eq!(refused(words), (2, json!("usage")), "one of the two must be said");
    }
    assert!(world.result_file(&done)["_meta"].get("resolution").is_none());
}

#[test]
fn killed_after_it_was_recorded_it_is_told_all_the_same() {
    let world = World::new();
    let id = unknown(&world);
    let mailbox = Mailbox::open(&world.mailbox()).expect("a mailbox");
    for point in ["commit.after", "result.written", "answer.renamed"] {
        assert_eq!(world.run(&["executor", "stop"]).exit, 0);
        let mut command = world.command(&["executor", "run"]);
        let command = command.env("AGENT_MAGIC_TOOL_FAULT", format!("{point}:kill:1")).stderr(Stdio::null());
        let mut executor = command.spawn().expect("it starts");
        // What was said before is published once more when it starts, so that it may be gone by then.
        until("it was in office", || {
            mailbox.executor().expect("asked") == Some(executor.id()) || executor.try_wait().expect("asked").is_some()
        });
        let said = world.run(&["resolve", &id, "--happened"]);
        assert_eq!((said.exit, &said.json()["resolution"]["happened"]), (0, &json!(true)), "{point}: {said}");
        assert_eq!(executor.wait().expect("it ended").signal(), Some(9), "{point} was passed");
        until("the file says so", || world.result_file(&id)["_meta"]["resolution"]["happened"] == true);
    }
}
