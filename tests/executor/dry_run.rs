//! Dry runs: what a call would change is shown to its caller and to the human, and nothing happens.

use std::fs;
use std::io::Read as _;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::page::human::Human;
use crate::world::{Transcript, World, until, wait_for_end};

mod first;

/// A shelf of files: a subtool that removes one, one that shows what it would remove, and one whose program has a switch with
/// which it changes nothing.
pub(super) fn shelf(extra: &Value) -> Value {
    let name = json!({"type": "object", "properties": {"name": {"type": "string", "description": "The file."}}, "required": ["name"], "additionalProperties": false});
    let mut purge = name.clone();
    purge["properties"]["only_check"] = json!({"type": "boolean", "description": "Whether nothing is removed."});
    let check = json!({"if": "only_check", "args": ["check"]});
    let line = "ls -- $1* | while read -r file; do [ \"$2\" = check ] || rm -- \"$file\"; echo \"$file\"; done";
    let looks = json!({"argv": ["cat", "--", "{{ name }}"]});
    let mut definitions = json!({
        "shelf_remove": {"description": "Removes a file of the shelf.", "input": name, "annotations": {"destructiveHint": true},
            "run": {"process": {"argv": ["rm", "--", "{{ name }}"]}},
            "dry_run": {"subtool": "shelf_look", "input": {"name": "{{ name }}"}, "shows": "{removes: .}"}},
        "shelf_look": {"description": "Shows what removing a file would remove.", "input": name, "annotations": {"readOnlyHint": true},
            "run": {"process": looks}},
        "shelf_purge": {"description": "Removes all files that begin so.", "input": purge,
            "run": {"process": {"argv": ["sh", "-c", line, "purge", "{{ name }}", check]}},
            "dry_run": {"input": {"only_check": true}}},
    });
    for (subtool, changes) in extra.as_object().into_iter().flatten() {
        for (key, value) in changes.as_object().into_iter().flatten() {
            definitions[subtool][key] = value.clone();
        }
    }
    definitions
}

pub(super) fn world(config: &str, extra: &Value) -> World {
    let world = World::new();
    world.configure_without_packs(config);
    world.define("shelf.json", &shelf(extra));
    for file in ["one", "two", "two-b"] {
        fs::write(world.folder().join(file), format!("content of {file}")).expect("written");
    }
    world
}

fn files(world: &World) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(world.folder())
        .expect("a folder")
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

fn dry_run(world: &World, words: &[&str]) -> Transcript {
    world.run(&[&["run"], words, &["--dry-run"]].concat())
}

#[test]
fn a_dry_run_shows_what_would_change_and_is_no_task() {
    let hook = "[hooks.all]\ncommand = [\"sh\", \"-c\", \"cat >> \\\"$HOME/events\\\"\"]\n";
    let world = world(hook, &json!({}));
    let removed = dry_run(&world, &["shelf_remove", "name=one"]);
    assert_eq!(removed.exit, 0, "{removed}");
    let plan = removed.json();
    assert_eq!(plan["would_change"], json!({"removes": "content of one"}), "{plan}");
    assert!(plan["would_send"]["process"].is_object() && plan["confirmation"].is_string(), "{plan}");
    assert_eq!((&plan["not_shown"], plan["dry_run"].as_bool()), (&Value::Null, Some(true)));

    // Its own request, with the switch set, whatever the caller says about it.
    for words in [&["shelf_purge", "name=two"][..], &["shelf_purge", "name=two", "only_check:=false"]] {
        let plan = dry_run(&world, words).json();
        assert_eq!(plan["would_change"], json!("two\ntwo-b"), "{plan}");
    }
    assert_eq!(files(&world), ["one", "two", "two-b"]);
    assert_eq!(world.run(&["tasks"]).stdout.matches("shelf").count(), 0, "no task was made");
    assert!(!world.home().join("events").exists(), "nothing was told");
    let answers = fs::read_dir(world.mailbox().join("taken")).map_or(0, Iterator::count);
    assert_eq!(answers, 0, "each request was answered");

    // A run cannot pass for one that changed something.
    let passed = world.run(&["run", "shelf_purge", "name=two", "only_check:=true"]);
    assert_eq!((passed.exit, &passed.error()["code"]), (2, &json!("invalid-input")), "{passed}");
    assert!(passed.stderr.contains("--dry-run instead of `only_check`"), "{passed}");
}

#[test]
fn what_cannot_be_shown_says_why() {
    let rule = "[[confirm.rules]]\ntools = [\"shelf_look\"]\nthen = \"refuse\"\nbecause = \"it is private\"\n";
    let world = world(rule, &json!({"shelf_remove": {"confirm": "always"}}));
    let plan = dry_run(&world, &["shelf_remove", "name=one"]).json();
    let why = plan["not_shown"].as_str().expect("a reason");
    assert!(plan["would_change"].is_null() && why.contains("`shelf_look` is refused: it is private"), "{plan}");
    // A rule about the subtool is about its own request too.
    world.configure_without_packs("[[confirm.rules]]\ntools = [\"shelf_purge\"]\nthen = \"ask\"\n");
    let plan = dry_run(&world, &["shelf_purge", "name=two"]).json();
    assert!(plan["not_shown"].as_str().is_some_and(|why| why.contains("needs a human itself")), "{plan}");
    // A lookup that fails.
    let plan = dry_run(&world, &["shelf_remove", "name=none"]).json();
    assert!(plan["not_shown"].as_str().is_some_and(|why| why.contains("none")), "{plan}");
    assert_eq!(files(&world), ["one", "two", "two-b"]);
}

#[test]
fn a_dry_run_reaches_no_model_that_may_not_have_its_data() {
    let profile = "[profiles.low]\ntrust = \"internal\"\n";
    let world = world(profile, &json!({"shelf_look": {"data_class": "secret"}}));
    let plan = dry_run(&world, &["shelf_remove", "name=one"]).json();
    assert_eq!(plan["would_change"]["removes"], "content of one");
    let mut command = world.command(&["run", "shelf_remove", "name=one", "--dry-run"]);
    let low = world.transcript(&command.env("AGENT_MAGIC_TOOL_PROFILE", "low").output().expect("the program starts"));
    assert!(low.exit == 0 && !low.stdout.contains("content of one"), "{low}");
    assert!(low.json()["not_shown"].as_str().is_some_and(|why| why.contains("`secret`")), "{low}");
}

#[test]
fn the_card_shows_what_would_change() {
    let extra = json!({"shelf_look": {"data_class": "secret"}});
    let world = world("", &extra);
    fs::write(world.folder().join("<b>odd"), "a\u{200b}b").expect("written");
    let shown = world.start("shelf_remove", &json!({"name": "<b>odd"}));
    until("it waits", || world.result_file(&shown)["state"] == "awaiting_confirmation");
    let human = Human::of(&world);
    let card = human.card(&shown);
    assert!(card.contains("What would change") && card.contains("removes") && card.contains("U+200B"), "{card}");
    assert!(!card.contains("<b>odd"), "{card}");
    let failed = world.start("shelf_remove", &json!({"name": "none"}));
    until("it waits", || world.result_file(&failed)["state"] == "awaiting_confirmation");
    let card = human.card(&failed);
    assert!(card.contains("It could not be shown, because:") && card.contains("none"), "{card}");
    // The approved task does what it does.
    world.decide(&shown, "approve", "shelf_remove");
    assert_eq!(world.end_of(&shown)["status"], "succeeded");
    assert_eq!(files(&world), ["one", "two", "two-b"]);
}

#[test]
fn a_dry_run_of_an_executor_that_was_killed_is_made_by_the_next_one() {
    let looks = json!({"argv": ["sh", "-c", "if [ -e asked ]; then echo again; else touch asked; exec sleep 600; fi"]});
    let world = world("", &json!({"shelf_look": {"run": {"process": looks}}}));
    let mut asking = world.command(&["run", "shelf_remove", "name=one", "--dry-run"]);
    let mut asking = asking.stdout(Stdio::piped()).spawn().expect("the program starts");
    until("it is being shown", || world.folder().join("asked").exists());
    // Other callers are served meanwhile.
    assert_eq!(dry_run(&world, &["shelf_purge", "name=two"]).json()["would_change"], "two\ntwo-b");
    world.kill_executor();
    wait_for_end(&mut asking);
    let mut text = String::new();
    asking.stdout.take().expect("a pipe").read_to_string(&mut text).expect("read");
    let plan: Value = serde_json::from_str(&text).expect("a plan");
    assert_eq!(plan["would_change"], json!({"removes": "again"}), "{plan}");
}
