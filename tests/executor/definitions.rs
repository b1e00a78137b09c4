//! A running executor obeys definitions as they are now, however many there are, and loads only those that are used.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use serde_json::{Map, Value, json};

use crate::world::{Transcript, World};

/// More than are looked at one by one.
const FILES: usize = 60;
const PER_FILE: usize = 50;

/// A subtool that says `text`.
fn says(text: &str) -> Value {
    json!({"description": "Says what its definition says.", "input": {"type": "object", "additionalProperties": false},
        "annotations": {"readOnlyHint": true}, "run": {"process": {"argv": ["echo", text]}}})
}

/// A world with many files, of which number 7 defines `tool_7`, and a running executor.
fn world() -> World {
    let world = World::new();
    for file in 0..FILES {
        world.define(&format!("{file}.json"), &json!({ format!("tool_{file}"): says(&file.to_string()) }));
    }
    assert_eq!(world.run(&["executor", "start"]).exit, 0);
    world
}

fn file(world: &World, number: usize) -> PathBuf {
    world.subtools().join(format!("{number}.json"))
}

fn run(world: &World, tool: &str) -> Transcript {
    world.run(&["run", tool, "--wait"])
}

#[track_caller]
fn assert_says(ran: &Transcript, text: &str) {
    assert_eq!((ran.exit, &ran.json()["data"]), (0, &json!(text)), "{ran}");
}

#[track_caller]
fn assert_unknown(ran: &Transcript) {
    assert_eq!(ran.error()["code"], "unknown-subtool", "{ran}");
}

#[test]
fn a_change_in_one_of_many_files_takes_effect_at_the_next_command() {
    let world = world();
    let executor = world.executor();
    assert_says(&run(&world, "tool_7"), "7");
    for text in ["eight", "nine"] {
        world.define("7.json", &json!({"tool_7": says(text)}));
        assert_says(&run(&world, "tool_7"), text);
    }
    world.define("new.json", &json!({"new": says("added")}));
    assert_says(&run(&world, "new"), "added");
    fs::remove_file(file(&world, 3)).expect("removed");
    assert_unknown(&run(&world, "tool_3"));
    fs::rename(file(&world, 4), file(&world, 3)).expect("renamed");
    assert_says(&run(&world, "tool_4"), "4");
    fs::set_permissions(file(&world, 5), fs::Permissions::from_mode(0o666)).expect("set");
    assert_unknown(&run(&world, "tool_5"));
    fs::set_permissions(file(&world, 5), fs::Permissions::from_mode(0o644)).expect("set");
    assert_says(&run(&world, "tool_5"), "5");
    fs::write(file(&world, 6), "{\"tool_6\": ").expect("written");
    assert_eq!(run(&world, "tool_6").error()["code"], "bad-definition");
    let away = world.config_folder().join("away");
    fs::rename(world.subtools(), &away).expect("renamed");
    assert_unknown(&run(&world, "tool_7"));
    fs::rename(&away, world.subtools()).expect("renamed");
    assert_says(&run(&world, "tool_7"), "nine");
    assert_eq!(world.executor(), executor, "the executor was not restarted");
}

#[test]
fn a_folder_that_is_made_later_and_the_target_of_a_link_are_watched() {
    let world = World::new();
    fs::remove_dir(world.subtools()).expect("it is empty");
    assert_eq!(world.run(&["executor", "start"]).exit, 0);
    let target = world.folder().join("target.json");
    assert_unknown(&run(&world, "linked"));
    fs::create_dir_all(world.subtools()).expect("created");
    fs::write(&target, json!({"linked": says("one")}).to_string()).expect("written");
    std::os::unix::fs::symlink(&target, world.subtools().join("link.json")).expect("linked");
    assert_says(&run(&world, "linked"), "one");
    fs::write(&target, json!({"linked": says("two")}).to_string()).expect("written");
    assert_says(&run(&world, "linked"), "two");
}

#[test]
fn a_definition_that_is_not_used_takes_no_memory() {
    let with = |files: usize| {
        let world = World::new();
        for file in 0..files {
            let definitions: Map<_, _> =
                (0..PER_FILE).map(|number| (format!("tool_{file}_{number}"), with_parameters(number))).collect();
            world.define(&format!("{file}.json"), &definitions.into());
        }
        assert_eq!(world.run(&["executor", "start"]).exit, 0);
        assert_says(&run(&world, "tool_0_1"), "1");
        resident_kib(&world)
    };
    let (few, many) = (with(1), with(FILES));
    let each = many.saturating_sub(few) / u64::try_from((FILES - 1) * PER_FILE).expect("a small number");
    assert!(each <= 4, "{each} KiB for each of the unused definitions: {few} KiB with few, {many} KiB with many");
}

fn with_parameters(number: usize) -> Value {
    let properties: Map<_, _> = (0..20)
        .map(|field| (format!("field_{field}"), json!({"type": "string", "description": "A field of this service."})))
        .collect();
    let mut definition = says(&number.to_string());
    definition["input"]["properties"] = properties.into();
    definition
}

fn resident_kib(world: &World) -> u64 {
    let pid = world.executor().expect("it runs");
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("readable");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a number");
    line.trim().trim_end_matches(" kB").parse().expect("a number of kilobytes")
}
