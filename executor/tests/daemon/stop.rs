//! How an executor ends, and what happens to its running tasks.

use std::fs;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::json;

use crate::world::World;

#[test]
fn an_idle_executor_ends_by_itself_and_uses_hardly_any_cpu() {
    let world = World::new("idle = \"3s\"");
    let mut executor = world.serve();
    world.wait(world.post_run("say", json!({"text": "x"})));
    let end = executor.end();
    assert_eq!(end.ended, "Idle");
    assert!(end.cpu < Duration::from_secs(1), "it used {:?} of CPU time", end.cpu);
}

#[test]
fn a_second_executor_ends_immediately() {
    let world = World::new("");
    let first = world.serve();
    assert_eq!(world.start().end().ended, "NotNeeded");
    first.stop();
}

#[test]
fn a_stopping_executor_finishes_running_tasks_and_starts_no_others() {
    let world = World::new("concurrency = 1\ngrace = \"1h\"");
    let mut executor = world.serve();
    let running = world.arrive("gate", "running");
    let queued = world.post_run("gate", json!({"path": world.gate("queued")}));
    world.reply(queued);
    executor.ask_to_stop();
    let late = world.post_run("say", json!({"text": "late"}));
    world.open("running");
    assert_eq!(executor.end().ended, "Asked");
    assert_eq!(world.result(running).expect("a result file")["status"], "succeeded");
    assert_eq!(world.result(queued).expect("a result file")["state"], "queued");
    assert_eq!(world.arrivals("queued"), 0);
    assert!(world.files().contains(&format!("inbox/{late}.json")), "the request should stay for the next executor");

    world.open("queued");
    let _next = world.serve();
    assert_eq!(world.wait(queued)["status"], "succeeded");
    assert_eq!(world.wait(late)["data"], "late");
}

#[test]
fn after_the_grace_period_running_tasks_are_interrupted_and_only_read_only_ones_run_again() {
    let world = World::new("grace = \"100ms\"");
    let mut executor = world.serve();
    let once = world.arrive("gate", "once");
    let read = world.arrive("read_gate", "read");
    executor.signal(Signal::SIGTERM);
    assert_eq!(executor.end().ended, "Asked");
    let lost = world.result(once).expect("a result file");
    assert_eq!((&lost["status"], &lost["error"]["code"]), (&json!("unknown"), &json!("unknown-outcome")));
    assert_eq!(world.result(read).expect("a result file")["state"], "queued");

    for name in ["once", "read"] {
        world.open(name);
    }
    let _next = world.serve();
    assert_eq!(world.wait(read)["status"], "succeeded");
    assert_eq!((world.arrivals("once"), world.arrivals("read")), (1, 2));
}

#[test]
fn a_second_stop_signal_skips_the_grace_period() {
    let world = World::new("grace = \"1h\"");
    let mut executor = world.serve();
    let once = world.arrive("gate", "once");
    executor.ask_to_stop();
    executor.signal(Signal::SIGINT);
    assert_eq!(executor.end().ended, "Asked");
    assert_eq!(world.result(once).expect("a result file")["status"], "unknown");
}

/// The first result file cannot be written while the executor stops, and can be before it ends.
#[test]
fn a_stopping_executor_writes_late_result_files_before_it_ends() {
    let world = World::new("grace = \"1h\"");
    let mut executor = world.serve();
    let (late, other) = (world.arrive("gate", "late"), world.arrive("gate", "other"));
    executor.ask_to_stop();
    let obstacle = world.mailbox.result_file(late);
    fs::remove_file(&obstacle).expect("removed");
    fs::create_dir_all(obstacle.join("not-empty")).expect("made");
    world.open("late");
    executor.wait_for_log("failed to write");
    fs::remove_dir_all(&obstacle).expect("removed");
    world.open("other");
    assert_eq!(executor.end().ended, "Asked");
    for id in [late, other] {
        assert_eq!(world.result(id).expect("a result file")["status"], "succeeded");
    }
}
