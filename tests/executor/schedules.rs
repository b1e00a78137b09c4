//! A task that is asked for ahead of its time starts then, and not before, whatever comes between.

use insta::assert_snapshot;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::world::{World, until};

/// A world with a subtool that says when it ran.
fn world(executor: &str) -> World {
    let world = World::new();
    world.configure(&format!("[executor]\n{executor}\n"));
    world.define(
        "now.json",
        &json!({"now": {"description": "Says what time it is.", "input": {}, "confirm": "never",
            "run": {"process": {"folder": ".", "argv": ["sh", "-c", "echo x >> ran; date +%s%N"]}}}}),
    );
    world
}

fn schedule(world: &World, span: &str) -> (String, Timestamp) {
    let ran = world.run(&["run", "now", "--in", span]);
    assert_eq!((ran.exit, &ran.json()["status"]), (0, &json!("pending")), "{ran}");
    (ran.json()["id"].as_str().expect("an id").to_owned(), time(&ran.json()["run_at"]))
}

fn time(text: &Value) -> Timestamp {
    text.as_str().expect("a time").parse().expect("a time")
}

/// When the subtool ran, by its own clock.
fn ran_at(result: &Value) -> Timestamp {
    assert_eq!(result["status"], "succeeded", "{result}");
    let nanoseconds = result["data"].as_str().expect("a number").trim().parse().expect("a number");
    Timestamp::from_nanosecond(nanoseconds).expect("a time")
}

#[test]
fn it_says_when_it_will_start_and_starts_then() {
    let world = world("");
    let (id, at) = schedule(&world, "700ms");
    let pending = world.result_file(&id);
    assert_eq!((&pending["state"], time(&pending["run_at"])), (&json!("queued"), at));
    let told = pending["message"].as_str().expect("words");
    assert_eq!(told, format!("The tool execution is scheduled: it does not start before {at}."));
    assert_eq!(time(&world.run(&["tasks"]).json()[0]["run_at"]), at);
    let ended = world.run(&["wait", &id]).json();
    assert!(ran_at(&ended) >= at, "{ended}");
    assert_eq!((time(&ended["_meta"]["run_at"]), ended.get("run_at")), (at, None));
}

#[test]
fn an_executor_stays_for_it_and_one_that_was_killed_leaves_it_to_the_next() {
    let world = world("idle = \"100ms\"");
    let (id, at) = schedule(&world, "2s");
    let executor = world.executor().expect("it was started");
    // Nobody asks for anything meanwhile: only an executor that stayed can end it.
    until("it has ended", || world.result_file(&id)["status"] != "pending");
    assert!(ran_at(&world.result_file(&id)) >= at);
    until("then it is idle", || !crate::world::is_alive(executor));

    let (id, at) = schedule(&world, "2s");
    world.kill_executor();
    assert_eq!(world.run(&["executor", "start"]).exit, 0);
    let again = world.result_file(&id);
    assert_eq!((&again["state"], time(&again["run_at"])), (&json!("queued"), at), "it still has its time");
    assert!(ran_at(&world.run(&["wait", &id]).json()) >= at);
    let runs = std::fs::read_to_string(world.folder().join("ran")).expect("it ran");
    assert_eq!(runs.lines().count(), 2, "each ran once");
}

#[test]
fn what_is_scheduled_far_ahead_outlives_its_executor_and_can_be_cancelled() {
    let world = world("");
    let (id, at) = schedule(&world, "8000h");
    world.kill_executor();
    assert_eq!(world.run(&["executor", "start"]).exit, 0);
    // Five minutes are the longest that a task waits for another attempt; this is no such pause.
    assert_eq!(time(&world.result_file(&id)["run_at"]), at);
    let cancelled = world.run(&["cancel", &id]);
    assert_eq!(cancelled.json()["state"], "cancelled", "{cancelled}");
    let ended = world.run(&["wait", &id]).json();
    assert_eq!((&ended["error"]["hint"], time(&ended["_meta"]["run_at"])), (&json!("nothing was done"), at));
    assert_eq!(world.run(&["executor", "status"]).json()["tasks"], json!({}));
}

#[test]
fn a_time_is_the_callers_own_and_one_in_the_past_is_now() {
    let world = world("");
    let mut command = world.command(&["run", "now", "--at", "2020-01-01T09:00", "--wait"]);
    let ended = world.transcript(&command.env("TZ", "Asia/Tokyo").output().expect("it runs"));
    assert_eq!((ended.exit, &ended.json()["_meta"]["run_at"]), (0, &json!("2020-01-01T00:00:00Z")), "{ended}");
    let tomorrow = Timestamp::now() + SignedDuration::from_hours(24);
    let planned = world.run(&["run", "now", "--dry-run", "--at", &tomorrow.to_string()]).json();
    let difference = time(&planned["run_at"]).duration_since(tomorrow).abs();
    assert!(difference < SignedDuration::from_micros(1), "{planned}");
}

#[test]
fn what_is_no_time_or_too_far_away_is_refused() {
    let world = world("");
    assert_snapshot!(world.run(&["run", "now", "--at", "soon"]), @r#"
    exit: 2
    --- stderr
    {"error":{"code":"usage","message":"`soon` is not a valid time","hint":"write it like 2026-05-01T09:00:00+02:00, or in local time like 2026-05-01T09:00 or 09:00; or use --in=90m"}}
    "#);
    assert_snapshot!(world.run(&["run", "now", "--in", "8785h"]), @r#"
    exit: 2
    --- stderr
    {"error":{"code":"usage","message":"a task can start at most 366 days ahead","hint":"request it again when the time is closer"}}
    "#);
    assert_snapshot!(world.run(&["run", "now", "--at", "09:00", "--in", "1h"]), @r#"
    exit: 2
    --- stderr
    {"error":{"code":"usage","message":"the argument '--at <TIME>' cannot be used with '--in <DURATION>'","hint":"agent-magic-tool run --at <TIME> <NAME> [KEY=VALUE]..."}}
    "#);
    assert_eq!(world.run(&["tasks"]).json(), json!([]));
}
