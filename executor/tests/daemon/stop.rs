//! The ways an executor ends, and what becomes of what runs.

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::json;

use crate::world::World;

#[test]
fn without_work_it_ends_by_itself_and_takes_no_cpu_until_then() {
    let world = World::new("idle = \"3s\"");
    let mut executor = world.serve();
    world.wait(world.post_run("say", json!({"text": "x"})));
    let end = executor.end();
    assert_eq!(end.ended, "Idle");
    assert!(end.cpu < Duration::from_secs(1), "it took {:?}", end.cpu);
}

#[test]
fn a_second_one_is_not_needed() {
    let world = World::new("");
    let first = world.serve();
    assert_eq!(world.start().end().ended, "NotNeeded");
    first.stop();
}

#[test]
fn asked_to_stop_it_lets_finish_what_runs_and_starts_nothing_more() {
    let world = World::new("concurrency = 1\ngrace = \"1h\"");
    let mut executor = world.serve();
    let running = world.arrive("gate", "running");
    let queued = world.post_run("gate", json!({"path": world.gate("queued")}));
    world.reply(queued);
    executor.ask_to_stop();
    let late = world.post_run("say", json!({"text": "late"}));
    world.open("running");
    assert_eq!(executor.end().ended, "Asked");
    assert_eq!(world.result(running).expect("it is there")["status"], "succeeded");
    assert_eq!(world.result(queued).expect("it is there")["state"], "queued");
    assert_eq!(world.arrivals("queued"), 0);
    assert!(world.files().contains(&format!("inbox/{late}.json")), "the next one takes it");

    world.open("queued");
    let _next = world.serve();
    assert_eq!(world.wait(queued)["status"], "succeeded");
    assert_eq!(world.wait(late)["data"], "late");
}

#[test]
fn after_the_grace_what_runs_is_interrupted_and_only_what_is_harmless_runs_again() {
    let world = World::new("grace = \"100ms\"");
    let mut executor = world.serve();
    let once = world.arrive("gate", "once");
    let read = world.arrive("read_gate", "read");
    executor.signal(Signal::SIGTERM);
    assert_eq!(executor.end().ended, "Asked");
    let lost = world.result(once).expect("it is there");
    assert_eq!((&lost["status"], &lost["error"]["code"]), (&json!("unknown"), &json!("unknown-outcome")));
    assert_eq!(world.result(read).expect("it is there")["state"], "queued");

    for name in ["once", "read"] {
        world.open(name);
    }
    let _next = world.serve();
    assert_eq!(world.wait(read)["status"], "succeeded");
    assert_eq!((world.arrivals("once"), world.arrivals("read")), (1, 2));
}

#[test]
fn asked_twice_it_does_without_the_grace() {
    let world = World::new("grace = \"1h\"");
    let mut executor = world.serve();
    let once = world.arrive("gate", "once");
    executor.ask_to_stop();
    executor.signal(Signal::SIGINT);
    assert_eq!(executor.end().ended, "Asked");
    assert_eq!(world.result(once).expect("it is there")["status"], "unknown");
}
