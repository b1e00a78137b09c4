//! The executor is killed: accepted tasks still end, and nothing happens twice.

use std::fs;

use protocol::caller::Caller;
use protocol::mailbox::request::{Operation, Request};
use protocol::task::TaskId;
use serde_json::json;

use crate::world::{World, run};

/// Moves the request as if an executor had taken it and been killed before answering.
fn move_to_taken(world: &World, id: TaskId) {
    let name = format!("{id}.json");
    let root = world.mailbox.root();
    fs::rename(root.join("inbox").join(&name), root.join("taken").join(name)).expect("moved");
}

#[test]
fn a_request_that_was_taken_but_not_answered_is_answered_by_the_next_executor() {
    let world = World::new("");
    let id = world.post_run("say", json!({"text": "hello"}));
    move_to_taken(&world, id);
    let _executor = world.serve();
    assert_eq!(world.wait(id)["data"], "hello");
    assert_eq!(world.files(), [format!("results/result-{id}.json")]);
}

#[test]
fn after_a_kill_only_a_read_only_task_runs_again() {
    let world = World::new("concurrency = 2");
    let mut executor = world.serve();
    let once = world.arrive("gate", "once");
    let read = world.arrive("read_gate", "read");
    let waiting = world.post_run("gate", json!({"path": world.gate("waiting")}));
    world.reply(waiting);
    executor.kill();
    for name in ["once", "read", "waiting"] {
        world.open(name);
    }
    let _next = world.serve();
    let lost = world.wait(once);
    assert_eq!((&lost["status"], &lost["error"]["code"]), (&json!("unknown"), &json!("unknown-outcome")));
    let repeated = world.wait(read);
    assert_eq!((&repeated["status"], &repeated["_meta"]["attempts"]), (&json!("succeeded"), &json!(2)));
    assert_eq!(world.wait(waiting)["status"], "succeeded");
    assert_eq!(["once", "read", "waiting"].map(|name| world.arrivals(name)), [1, 2, 1]);
}

#[test]
fn a_recorded_result_that_was_not_published_is_published_by_the_next_executor() {
    let world = World::new("inline_bytes = 10");
    let executor = world.serve();
    let gate = world.arrive("gate", "gate");
    let placeholder = fs::read(world.mailbox.result_file(gate)).expect("a placeholder");
    world.open("gate");
    let ended = world.wait(gate);
    let large = world.post_run("say", json!({"text": "more than ten bytes"}));
    let large_result = world.wait(large);
    executor.stop();

    fs::write(world.mailbox.result_file(gate), &placeholder).expect("written");
    fs::remove_file(world.mailbox.result_file(large)).expect("removed");
    fs::remove_file(world.mailbox.data_file(large, "txt")).expect("removed");
    let executor = world.serve();
    assert_eq!((world.wait(gate), world.wait(large)), (ended.clone(), large_result.clone()));
    assert!(world.mailbox.data_file(large, "txt").exists());
    executor.stop();

    fs::write(world.mailbox.result_file(gate), "").expect("written");
    fs::remove_dir_all(world.mailbox.root()).expect("removed");
    protocol::mailbox::Mailbox::open(world.mailbox.root()).expect("a new mailbox");
    let _executor = world.serve();
    let results = (world.wait(gate), world.wait(large));
    assert_eq!(results, (ended, large_result), "a new mailbox should get the results of the old one");
    assert_eq!(world.arrivals("gate"), 1);
}

#[test]
fn a_request_that_was_accepted_before_the_crash_is_not_performed_again() {
    let world = World::new("");
    let executor = world.serve();
    world.open("gate");
    let operation = || Operation::run(run("gate", json!({"path": world.gate("gate")})));
    let id = world.post(operation());
    let ended = world.wait(id);
    executor.stop();
    let caller = Caller { folder: Some(world.home()), ..Caller::default() };
    let request = Request::new(operation(), caller);
    world.mailbox.post(id, &request).expect("posted");
    move_to_taken(&world, id);
    fs::remove_file(world.mailbox.result_file(id)).expect("removed");
    let _executor = world.serve();
    assert_eq!(world.wait(id), ended);
    assert_eq!(world.arrivals("gate"), 1);
}

#[test]
fn an_executor_killed_at_any_moment_loses_nothing_and_repeats_nothing() {
    let world = World::new("");
    let mut ids = Vec::new();
    for round in 0..8 {
        let mut executor = world.start();
        for number in 0..12 {
            let name = format!("{round}-{number}");
            world.open(&name);
            let tool = if number % 2 == 0 { "gate" } else { "read_gate" };
            ids.push((world.post_run(tool, json!({"path": world.gate(&name)})), name, tool));
        }
        // Kill each executor a little later than the one before.
        let (answered, _, _) = ids[ids.len() - 12 + round];
        world.reply(answered);
        executor.kill();
    }
    let _last = world.serve();
    for (id, name, tool) in ids {
        let result = world.wait(id);
        let status = result["status"].as_str().expect("a text").to_owned();
        if tool == "gate" {
            assert!(["succeeded", "unknown"].contains(&status.as_str()), "{result}");
            assert!(world.arrivals(&name) <= 1, "{name} happened {} times", world.arrivals(&name));
        } else {
            // A task that was running when two executors were killed is suspected to be the cause.
            let suspected = result["error"]["code"] == "executor-crashed" && result["_meta"]["attempts"] == 2;
            assert!(status == "succeeded" || suspected, "{result}");
        }
    }
}
