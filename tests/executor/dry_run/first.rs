//! Dry run first: a change that was not shown to its caller is refused, at every door.

use serde_json::{Value, json};

use super::{dry_run, world};
use crate::page::human::Human;
use crate::world::{Transcript, World};

const FIRST: &str = "[confirm]\ndry_run_first = true\nwrites = \"allow\"\n";

fn removed(world: &World, session: &str, words: &[&str]) -> Transcript {
    let mut command = world.command(&[&["run"], words].concat());
    command.env("AGENT_MAGIC_TOOL_SESSION", session);
    world.transcript(&command.output().expect("the program starts"))
}

fn code(transcript: &Transcript) -> Value {
    if transcript.exit == 0 { Value::Null } else { transcript.error()["code"].clone() }
}

#[test]
fn a_change_is_refused_until_its_caller_was_shown_it() {
    let world = world(FIRST, &json!({}));
    let refused = world.run(&["run", "shelf_remove", "name=one"]);
    assert_eq!((refused.exit, code(&refused)), (5, json!("dry-run-first")), "{refused}");
    let error = refused.error();
    let hint = error["hint"].as_str().expect("a hint");
    assert!(error["message"].as_str().is_some_and(|it| it.contains("`confirm.dry_run_first`")), "{error}");
    let line = "agent-magic-tool run shelf_remove '--input={\"name\":\"one\"}' --dry-run";
    assert!(hint.contains(line), "{hint}");
    // The command of the hint, as it stands there.
    let shell = world.within("sh", &["-c", &line.replace("agent-magic-tool", crate::world::PROGRAM)]).output();
    assert!(shell.expect("a shell").status.success());
    // Another input, and one that cannot be shown, are other calls.
    assert_eq!(code(&world.run(&["run", "shelf_remove", "name=two"])), "dry-run-first");
    dry_run(&world, &["shelf_remove", "name=none"]);
    assert_eq!(code(&world.run(&["run", "shelf_remove", "name=none"])), "dry-run-first");
    assert_eq!(world.run(&["run", "shelf_remove", "name=one", "--wait"]).json()["status"], "succeeded");
    // What reads needs none, nor does what cannot show anything.
    assert_eq!(world.run(&["run", "shelf_look", "name=two", "--wait"]).json()["status"], "succeeded");
    // The switch of its own request is no other call.
    dry_run(&world, &["shelf_purge", "name=two"]);
    assert_eq!(code(&world.run(&["run", "shelf_purge", "name=two", "only_check:=false"])), Value::Null);
}

#[test]
fn a_dry_run_of_another_caller_or_definition_does_not_count() {
    let world = world(FIRST, &json!({}));
    let dry = ["shelf_remove", "name=one", "--dry-run"];
    assert_eq!(removed(&world, "s1", &dry).exit, 0);
    assert_eq!(code(&removed(&world, "s2", &["shelf_remove", "name=one"])), "dry-run-first");
    world
        .define("shelf.json", &super::shelf(&json!({"shelf_remove": {"description": "Removes it for good, really."}})));
    assert_eq!(code(&removed(&world, "s1", &["shelf_remove", "name=one"])), "dry-run-first");
    assert_eq!(removed(&world, "s1", &dry).exit, 0);
    world.run(&["executor", "stop"]);
    assert_eq!(code(&removed(&world, "s1", &["shelf_remove", "name=one"])), "dry-run-first", "a restart forgets it");
    assert_eq!(removed(&world, "s1", &dry).exit, 0);
    let keyed = ["shelf_remove", "name=one", "--idempotency-key=k"];
    assert_eq!(code(&removed(&world, "s1", &keyed)), Value::Null);
    world.run(&["executor", "stop"]);
    assert_eq!(code(&removed(&world, "s1", &keyed)), Value::Null, "the task is there already");
}

#[test]
fn a_profile_and_the_access_rules_demand_it_too_and_inspect_says_so() {
    let world = world("[confirm]\nwrites = \"allow\"\n[profiles.careful]\ndry_run_first = true\n", &json!({}));
    let careful = |words: &[&str]| {
        let mut command = world.command(words);
        world.transcript(&command.env("AGENT_MAGIC_TOOL_PROFILE", "careful").output().expect("the program starts"))
    };
    let refused = careful(&["run", "shelf_remove", "name=one"]);
    assert_eq!(code(&refused), "dry-run-first");
    assert!(refused.stderr.contains("profiles.careful.dry_run_first"), "{refused}");
    let inspected = world.run(&["inspect", "shelf_remove", "--profile=careful"]).json();
    assert_eq!(inspected["dry_run"], json!({"shown_by": "shelf_look", "first": "profiles.careful.dry_run_first"}));
    let inspected = world.run(&["inspect", "shelf_purge"]).json();
    assert_eq!(inspected["dry_run"], json!({"shown_by": "its own request"}));
    assert_eq!(world.run(&["inspect", "shelf_look"]).json()["dry_run"], Value::Null);
    assert_eq!(careful(&["run", "shelf_remove", "name=one", "--dry-run"]).exit, 0);
    assert_eq!(code(&careful(&["run", "shelf_remove", "name=one"])), Value::Null);
    assert_eq!(code(&world.run(&["run", "shelf_remove", "name=two"])), Value::Null);
    world.configure_without_packs("[access]\ndry_run_first = true\n");
    assert_eq!(code(&world.run(&["run", "shelf_remove", "name=two-b"])), "dry-run-first");
}

#[test]
fn what_a_rule_keeps_from_being_shown_is_a_humans_to_decide() {
    let rule = "[[confirm.rules]]\ntools = [\"shelf_look\"]\nthen = \"refuse\"\n";
    let world = world(&format!("{FIRST}{rule}"), &json!({}));
    assert_eq!(code(&world.run(&["run", "shelf_remove", "name=one"])), "dry-run-first");
    assert!(dry_run(&world, &["shelf_remove", "name=one"]).json()["not_shown"].is_string());
    assert_eq!(code(&world.run(&["run", "shelf_remove", "name=one"])), "dry-run-first", "no human would see it");
    world.configure_without_packs(&format!("[confirm]\ndry_run_first = true\n{rule}"));
    assert!(dry_run(&world, &["shelf_remove", "name=one"]).json()["not_shown"].is_string());
    let asked = world.run(&["run", "shelf_remove", "name=one"]);
    let id = asked.json()["id"].as_str().unwrap_or_else(|| panic!("{asked}")).to_owned();
    crate::world::until("a human is asked", || world.result_file(&id)["state"] == "awaiting_confirmation");
}

#[test]
fn a_human_who_runs_it_from_the_page_needs_none() {
    let world = world(FIRST, &json!({}));
    assert_eq!(code(&removed(&world, "page", &["shelf_remove", "name=one"])), "dry-run-first");
    let human = Human::of(&world);
    let answer = human.post("/try", &json!({"tool": "shelf_remove", "input": {"name": "one"}}));
    assert_eq!(answer.status, 200, "{}", answer.body);
}

#[test]
fn a_dry_run_counts_like_a_call() {
    let limits = "[rate_limits.tools]\nshelf_purge = { calls = 2, per = \"1h\" }\n";
    let world = world(limits, &json!({}));
    let made = || world.run(&["run", "shelf_purge", "name=two", "--dry-run"]);
    assert_eq!((code(&made()), code(&made()), code(&made())), (Value::Null, Value::Null, json!("rate-limited")));
    assert_eq!(code(&removed(&world, "desk", &["shelf_remove", "name=one", "--dry-run"])), Value::Null);
    let mut command = world.command(&["run", "shelf_remove", "name=one", "--dry-run"]);
    command.env("AGENT_MAGIC_TOOL_CALL_BUDGET", "1:question");
    let budgeted = |command: &mut std::process::Command| code(&world.transcript(&command.output().expect("it runs")));
    assert_eq!((budgeted(&mut command), budgeted(&mut command)), (Value::Null, json!("budget-exhausted")));
}

#[test]
fn a_dry_run_counts_for_the_same_input_in_the_same_folder() {
    let world = world(FIRST, &json!({}));
    let elsewhere = world.folder().join("elsewhere");
    std::fs::create_dir(&elsewhere).expect("made");
    dry_run(&world, &["shelf_remove", "name=one"]);
    let mut command = world.command(&["run", "shelf_remove", "name=one"]);
    let moved = world.transcript(&command.current_dir(&elsewhere).output().expect("it runs"));
    assert_eq!(code(&moved), "dry-run-first", "{moved}");
    assert_eq!(code(&world.run(&["run", "shelf_remove", "name=one"])), Value::Null);
}
