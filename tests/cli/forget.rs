//! `tasks --forget-session`: what a session leaves behind goes when it ends.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::agent::aimock::Model;
use crate::world::{Transcript, World, until};

/// A world with a subtool whose data lies beside its result file, and one that ends when it is let go.
fn world() -> World {
    let world = World::new();
    let large: Vec<_> = (0..20_000).map(|number| json!({"id": number, "name": "年度报告"})).collect();
    fs::write(world.folder().join("data.json"), json!(large).to_string()).expect("written");
    world.define(
        "some.json",
        &json!({
            "data": {"description": "Gives much.", "input": {}, "annotations": {"readOnlyHint": true},
                "run": {"process": {"argv": ["cat", "data.json"], "output": "json", "max_bytes": 10_000_000}}},
            "hold": {"description": "Ends when it is let go.", "input": {}, "annotations": {"readOnlyHint": true},
                "run": {"process": {"argv": ["sh", "-c", "while [ -e hold ]; do sleep 0.02; done"]}}},
        }),
    );
    fs::write(world.folder().join("hold"), "").expect("held");
    world
}

fn run_in(world: &World, session: &str, arguments: &[&str]) -> Transcript {
    let mut command = world.command(arguments);
    world.transcript(&command.env("AGENT_MAGIC_TOOL_SESSION", session).output().expect("the program starts"))
}

/// Runs a subtool to its end in a session; its id, and where its data lies.
fn ended(world: &World, session: &str, tool: &str) -> (String, Option<PathBuf>) {
    let result = run_in(world, session, &["run", tool, "--wait"]).json();
    assert_eq!(result["status"], "succeeded", "{result:#}");
    let data = result["_meta"]["data_file"].as_str().map(Into::into);
    (result["id"].as_str().expect("an id").to_owned(), data)
}

fn ids(listed: &Value) -> Vec<&str> {
    listed.as_array().expect("a list").iter().map(|task| task["id"].as_str().expect("an id")).collect()
}

#[test]
fn what_ended_is_gone_with_its_data_and_what_is_open_or_of_others_stays() {
    let world = world();
    let (large, data) = ended(&world, "mine", "data");
    let data = data.expect("data beside it");
    let (other, other_data) = ended(&world, "other", "data");
    let open = run_in(&world, "mine", &["run", "hold"]).json()["id"].as_str().expect("an id").to_owned();
    assert!(data.exists());
    let told = run_in(&world, "mine", &["tasks", "--forget-session"]);
    assert_eq!(told.json(), json!({"session": "mine", "forgotten": 1, "open": [open]}), "{told}");
    assert!(!data.exists() && other_data.expect("data beside it").exists());
    let gone = world.run(&["read", &large]);
    assert_eq!((gone.exit, gone.error()["code"].as_str()), (3, Some("unknown-task")), "{gone}");
    assert_eq!(ids(&world.run(&["tasks"]).json()), [open.as_str(), other.as_str()]);

    // Nor does the record keep it: with the mailbox put back from it nothing comes back.
    fs::remove_file(world.folder().join("hold")).expect("let go");
    assert_eq!(world.run(&["wait", &open]).exit, 0);
    world.kill_executor();
    fs::remove_dir_all(world.mailbox()).expect("removed");
    assert_eq!(world.run(&["executor", "start"]).exit, 0);
    until("what is known is put back", || ids(&world.run(&["tasks"]).json()) == [open.as_str(), other.as_str()]);
    let told = world.run(&["tasks", "--forget-session", "mine"]).json();
    assert_eq!((&told["forgotten"], &told["open"]), (&json!(1), &json!([])));
    let again = world.run(&["tasks", "--forget-session", "mine"]).json();
    assert_eq!(again["forgotten"], 0, "there is nothing left to forget");
}

#[test]
fn a_session_that_is_not_named_is_not_guessed() {
    let world = world();
    let (id, _) = ended(&world, "mine", "data");
    let ran = world.run(&["tasks", "--forget-session"]);
    assert_eq!((ran.exit, ran.error()["code"].as_str()), (2, Some("usage")), "{ran}");
    assert_eq!(world.run(&["tasks", "--forget-session", "min"]).json()["forgotten"], 0);
    let line = json!({"command": "agent-magic-tool tasks --forget-session mine"});
    let agents = world.run_with(&["command-executor"], &format!("{line}\n"));
    assert!(agents.stdout.contains("humans-only"), "an agent hides nothing that it did: {agents}");
    assert_eq!(ids(&world.run(&["tasks"]).json()), [id.as_str()]);
}

#[test]
fn hooks_are_told_all_the_same() {
    let world = world();
    let told = world.folder().join("told");
    // It fails until it may not any more.
    world.configure(&format!(
        "[hooks.late]\ncommand = [\"/bin/sh\", \"-c\", \"test ! -e {0}/wait && cat >> {0}/told\"]\nbackoff = \"50ms\"\n",
        world.folder().display()
    ));
    fs::write(world.folder().join("wait"), "").expect("written");
    let (id, _) = ended(&world, "mine", "data");
    assert_eq!(world.run(&["tasks", "--forget-session", "mine"]).json()["forgotten"], 1);
    fs::remove_file(world.folder().join("wait")).expect("removed");
    until("the hook is told", || fs::read_to_string(&told).is_ok_and(|text| text.contains(&id)));
}

#[test]
fn a_deleted_talk_takes_its_results_with_it() {
    let world = world();
    let rules = json!([{"last": "^Get", "runs": ["agent-magic-tool run data --wait"]}, {"says": "Got it."}]);
    let Some(_model) = Model::start(&world, &rules, "") else { return };
    let (other, _) = ended(&world, "other", "data");
    assert_eq!(world.run(&["agent", "Get it"]).exit, 0);
    assert_eq!(world.run(&["tasks"]).json().as_array().expect("a list").len(), 2);
    let deleted = world.run(&["agent", "--delete", "101"]);
    assert_eq!((&deleted.json()["forgotten"], &deleted.json()["open"]), (&json!(1), &json!([])), "{deleted}");
    assert_eq!(ids(&world.run(&["tasks"]).json()), [other.as_str()]);
}
