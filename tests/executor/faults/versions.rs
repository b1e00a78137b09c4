//! Two versions of the program: an older executor with a newer command line, the reverse, and an upgrade under load.
//!
//! `AGENT_MAGIC_TOOL_TEST_OLDER` names a program of an earlier version. Without it the older program is a copy of this
//! one: the replacement of the file is the same, but nothing is said about formats. What earlier versions wrote to the
//! disk is kept as fixtures in the tests of the store and of the mailbox.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::size;
use crate::executor::closed::may_look_inside;
use crate::world::{Transcript, World, full_program, until};

fn older() -> PathBuf {
    std::env::var_os("AGENT_MAGIC_TOOL_TEST_OLDER").map_or_else(full_program, PathBuf::from)
}

/// A world whose programs are installed as `executor` and `caller`, and whose subtool leaves its name in a file.
fn world() -> World {
    let world = World::new();
    world.define(
        "marks.json",
        &json!({"mark": {"description": "Leaves a mark.", "confirm": "never",
            "input": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}},
            "run": {"process": {"folder": ".", "argv": ["sh", "-c", "echo \"$1\" >> marks", "mark", "{{ name }}"]}}}}),
    );
    world
}

fn call(world: &World, program: &Path, arguments: &[&str]) -> Transcript {
    world.transcript(&world.within(program, arguments).output().expect("the program starts"))
}

fn marks(world: &World) -> Vec<String> {
    let text = fs::read_to_string(world.folder().join("marks")).unwrap_or_default();
    let mut marks: Vec<_> = text.lines().map(str::to_owned).collect();
    marks.sort();
    marks
}

#[test]
fn an_executor_and_a_command_of_different_versions_understand_each_other() {
    for (executor, caller) in [(older(), full_program()), (full_program(), older())] {
        let world = world();
        assert_eq!(call(&world, &executor, &["executor", "start"]).exit, 0);
        let case = format!("{} asks {}", caller.display(), executor.display());
        let ended = call(&world, &caller, &["run", "mark", "name=a", "--wait"]);
        assert_eq!((ended.exit, &ended.json()["status"]), (0, &json!("succeeded")), "{case}: {ended}");
        let later = call(&world, &caller, &["run", "mark", "name=b", "--in", "1h"]);
        let id = later.json()["id"].as_str().expect("an id").to_owned();
        assert_eq!(call(&world, &caller, &["executor", "status"]).json()["running"], true, "{case}");
        // The other version takes over the record with its open task.
        assert_eq!(call(&world, &executor, &["executor", "stop"]).exit, 0, "{case}");
        let cancelled = call(&world, &full_program(), &["cancel", &id]);
        assert_eq!((cancelled.exit, &cancelled.json()["state"]), (0, &json!("cancelled")), "{case}: {cancelled}");
        assert_eq!(marks(&world), ["a"], "{case}");
    }
}

#[test]
fn an_upgrade_under_load_loses_no_task_and_repeats_none() {
    let world = world();
    let installed = world.folder().join("installed");
    fs::copy(older(), &installed).expect("copied");
    assert_eq!(call(&world, &installed, &["executor", "start"]).exit, 0);
    let count = size(40, 400);
    std::thread::scope(|scope| {
        for caller in 0..4 {
            let (world, installed) = (&world, &installed);
            scope.spawn(move || {
                for number in (caller..count).step_by(4) {
                    let ran = call(world, installed, &["run", "mark", &format!("name={number:04}")]);
                    assert_eq!(ran.exit, 0, "{ran}");
                }
            });
        }
        until("a quarter of the tasks ran", || marks(&world).len() > count / 4);
        let next = world.folder().join("next");
        fs::copy(full_program(), &next).expect("copied");
        fs::rename(&next, &installed).expect("replaced");
    });
    until("all tasks ran", || marks(&world).len() >= count);
    let expected: Vec<_> = (0..count).map(|number| format!("{number:04}")).collect();
    assert_eq!(marks(&world), expected, "each task runs once");
    // A file is replaced while the executor starts nothing new.
    if !may_look_inside() {
        return;
    }
    until("the new program serves", || {
        let pid = call(&world, &installed, &["executor", "status"]).json()["pid"].as_i64();
        pid.and_then(|pid| fs::read_link(format!("/proc/{pid}/exe")).ok()).as_ref() == Some(&installed)
    });
}
