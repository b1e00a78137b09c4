//! `tasks --forget-session`: deletes the ended tasks of a session and their results.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::agent::aimock::Model;
use crate::executor::leaks::files_with;
use crate::world::{Transcript, World, until};

/// A world with a subtool whose data is in a file of its own, and one that runs until a file is removed.
fn world() -> World {
    let world = World::new();
    let large: Vec<_> = (0..20_000).map(|number| json!({"id": number, "name": "年度报告"})).collect();
    fs::write(world.folder().join("data.json"), json!(large).to_string()).expect("written");
    world.define(
        "some.json",
        &json!({
            "data": {"description": "Gives much.", "input": {}, "annotations": {"readOnlyHint": true},
                "run": {"process": {"argv": ["cat", "data.json"], "output": "json", "max_bytes": 10_000_000}}},
            "hold": {"description": "Ends when a file is removed.", "input": {}, "annotations": {"readOnlyHint": true},
                "run": {"process": {"argv": ["sh", "-c", "while [ -e hold ]; do sleep 0.02; done"]}}},
        }),
    );
    fs::write(world.folder().join("hold"), "").expect("written");
    world
}

fn run_in(world: &World, session: &str, arguments: &[&str]) -> Transcript {
    let mut command = world.command(arguments);
    world.transcript(&command.env("AGENT_MAGIC_TOOL_SESSION", session).output().expect("the program starts"))
}

/// Runs a subtool to its end in a session; returns the task's id and the path of its data.
fn ended(world: &World, session: &str, tool: &str) -> (String, Option<PathBuf>) {
    let result = run_in(world, session, &["run", tool, "--wait"]).json();
    assert_eq!(result["status"], "succeeded", "{result:#}");
    let data = result["data_file"].as_str().map(Into::into);
    (result["id"].as_str().expect("an id").to_owned(), data)
}

fn ids(listed: &Value) -> Vec<&str> {
    listed.as_array().expect("a list").iter().map(|task| task["id"].as_str().expect("an id")).collect()
}

#[test]
fn ended_tasks_of_the_session_are_deleted_and_all_others_stay() {
    let world = world();
    let (large, data) = ended(&world, "mine", "data");
    let data = data.expect("a data file");
    let (other, other_data) = ended(&world, "other", "data");
    let open = run_in(&world, "mine", &["run", "hold"]).json()["id"].as_str().expect("an id").to_owned();
    assert!(data.exists());
    let forgotten = run_in(&world, "mine", &["tasks", "--forget-session"]);
    assert_eq!(forgotten.json(), json!({"session": "mine", "forgotten": 1, "open": [open]}), "{forgotten}");
    assert!(!data.exists() && other_data.expect("a data file").exists());
    let gone = world.run(&["read", &large]);
    assert_eq!((gone.exit, gone.error()["code"].as_str()), (3, Some("unknown-task")), "{gone}");
    assert_eq!(ids(&world.run(&["tasks"]).json()), [open.as_str(), other.as_str()]);

    // The store has forgotten it too: a mailbox rebuilt from the store does not contain it.
    fs::remove_file(world.folder().join("hold")).expect("removed");
    assert_eq!(world.run(&["wait", &open]).exit, 0);
    world.kill_executor();
    fs::remove_dir_all(world.mailbox()).expect("removed");
    assert_eq!(world.run(&["executor", "start"]).exit, 0);
    until("the mailbox is rebuilt", || ids(&world.run(&["tasks"]).json()) == [open.as_str(), other.as_str()]);
    let forgotten = world.run(&["tasks", "--forget-session", "mine"]).json();
    assert_eq!((&forgotten["forgotten"], &forgotten["open"]), (&json!(1), &json!([])));
    let again = world.run(&["tasks", "--forget-session", "mine"]).json();
    assert_eq!(again["forgotten"], 0, "there is nothing left to forget");
}

#[test]
fn a_session_must_be_named_exactly() {
    let world = world();
    let (id, _) = ended(&world, "mine", "data");
    let ran = world.run(&["tasks", "--forget-session"]);
    assert_eq!((ran.exit, ran.error()["code"].as_str()), (2, Some("usage")), "{ran}");
    assert_eq!(world.run(&["tasks", "--forget-session", "min"]).json()["forgotten"], 0);
    let line = json!({"command": "agent-magic-tool tasks --forget-session mine"});
    let agents = world.run_with(&["command-executor"], &format!("{line}\n"));
    assert!(agents.stdout.contains("humans-only"), "an agent must not delete its own tasks: {agents}");
    assert_eq!(ids(&world.run(&["tasks"]).json()), [id.as_str()]);
}

#[test]
fn hooks_still_get_the_end_of_a_deleted_task() {
    let world = world();
    let delivered = world.folder().join("delivered");
    // The hook fails as long as the file `wait` exists.
    world.configure(&format!(
        "[hooks.late]\ncommand = [\"/bin/sh\", \"-c\", \"test ! -e {0}/wait && cat >> {0}/delivered\"]\nbackoff = \"50ms\"\n",
        world.folder().display()
    ));
    fs::write(world.folder().join("wait"), "").expect("written");
    let (id, _) = ended(&world, "mine", "data");
    assert_eq!(world.run(&["tasks", "--forget-session", "mine"]).json()["forgotten"], 1);
    fs::remove_file(world.folder().join("wait")).expect("removed");
    until("the hook has the task", || fs::read_to_string(&delivered).is_ok_and(|text| text.contains(&id)));
}

#[test]
fn deleting_a_chat_deletes_its_results() {
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

/// The log of the database has the text of what was forgotten, unless it is cleared as well.
#[test]
fn no_file_keeps_the_text_of_a_forgotten_session() {
    const CANARY: &str = "canary-of-the-forgotten-session";
    let world = world();
    world.define(
        "say.json",
        &json!({"say": {"description": "Says a text again.", "annotations": {"readOnlyHint": true},
            "input": {"type": "object", "properties": {"text": {"type": "string"}}},
            "run": {"process": {"argv": ["sh", "-c", "while [ -e hold ]; do sleep 0.02; done; printf %s \"$0\"", "{{ text }}"]}}}}),
    );
    let field = format!("text={CANARY}");
    let started: Vec<_> = (0..3)
        .map(|_| run_in(&world, "mine", &["run", "say", &field]).json()["id"].as_str().expect("an id").to_owned())
        .collect();
    fs::remove_file(world.folder().join("hold")).expect("removed");
    for id in &started {
        assert_eq!(world.run(&["wait", id]).exit, 0);
    }
    let found = || [world.state(), world.mailbox()].map(|folder| files_with(&folder, CANARY)).concat();
    assert!(!found().is_empty(), "the text is somewhere before");
    assert_eq!(world.run(&["tasks", "--forget-session", "mine"]).json()["forgotten"], 3);
    assert_eq!(found(), [] as [PathBuf; 0]);
}
