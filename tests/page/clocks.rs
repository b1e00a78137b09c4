//! The deadline of a confirmation holds when the clock is set or the machine sleeps.
//!
//! Time jumps in two ways: in a time namespace with another uptime, and through a preloaded library that changes the
//! time of day and the uptime of a running process.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::human::Human;
use crate::executor::faults::shim;
use crate::skip::skip;
use crate::world::{PROGRAM, World, until};

const HOUR: i64 = 3600;

/// A world where a confirmation expires after an hour.
fn world() -> World {
    let world = World::new();
    world.configure("[confirm]\nwait = \"1h\"\n");
    world.define(
        "marks.json",
        &json!({"mark": {"description": "Leaves a mark.", "input": {"type": "object", "properties": {"name": {"type": "string"}}},
            "run": {"process": {"argv": ["sh", "-c", "echo \"$1\" >> marks", "mark", "{{ name }}"], "folder": "."}}}}),
    );
    world
}

/// The names that `mark` has written so far.
fn written_marks(world: &World) -> String {
    fs::read_to_string(world.folder().join("marks")).unwrap_or_default()
}

/// Starts an executor whose machine seems to be up for `seconds` longer; false if time namespaces do not work here.
fn start_after(world: &World, seconds: i64) -> bool {
    let seconds = seconds.to_string();
    let mut arguments = vec!["--time", "--boottime", &seconds, "--fork", "true"];
    let tried = world.within("unshare", &arguments).output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        skip("a machine that slept: time namespaces do not work here");
        return false;
    }
    arguments.pop();
    arguments.extend([PROGRAM, "executor", "start"]);
    let started = world.transcript(&world.within("unshare", &arguments).output().expect("unshare"));
    assert_eq!(started.exit, 0, "{started}");
    true
}

fn assert_too_late(world: &World, human: &Human, id: &str, approval: &Value) {
    let late = human.post("/decide", approval);
    // After a jump of a year the session has expired as well.
    assert!(matches!(late.status, 401 | 409), "{}", late.body);
    let ended = world.end_of(id);
    assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("expired"), &json!("expired")), "{ended}");
    assert_eq!(world.run(&["wait", id]).exit, 5);
}

/// The namespace changes the uptime and not the time of day. For the executor inside, the machine slept and the clock
/// was set back by the same time.
#[test]
fn a_clock_that_is_set_back_while_no_executor_runs_extends_no_deadline() {
    let world = world();
    if !start_after(&world, 0) {
        return;
    }
    let human = Human::of(&world);
    let (early, late) = (world.start("mark", &json!({"name": "early"})), world.start("mark", &json!({"name": "late"})));
    let (in_time, too_late) = (human.decision(&early, "approve"), human.decision(&late, "approve"));
    let restart_after = |seconds| {
        assert_eq!(world.run(&["executor", "stop"]).exit, 0);
        assert!(start_after(&world, seconds));
        Human::of(&world)
    };
    // Half of the hour has passed.
    let human = restart_after(HOUR / 2);
    for id in [&early, &late] {
        assert_eq!(world.result_file(id)["state"], "awaiting_confirmation");
    }
    assert_eq!(human.post("/decide", &in_time).status, 200);
    assert_eq!(world.end_of(&early)["status"], "succeeded");
    let human = restart_after(HOUR + 60);
    assert_too_late(&world, &human, &late, &too_late);
    assert_eq!(written_marks(&world), "early\n");
    // A new task has an hour of its own.
    let next = world.start("mark", &json!({"name": "next"}));
    assert_eq!(human.approve(&next).status, 200);
    assert_eq!(world.end_of(&next)["status"], "succeeded");
}

/// A task that was approved in time but could not start in time.
#[test]
fn an_approved_task_does_not_start_after_its_deadline() {
    let world = world();
    world.configure("[confirm]\nwait = \"1h\"\n[executor]\nconcurrency = 1\n");
    world.define(
        "slow.json",
        &json!({"slow": {"description": "Takes its time.", "input": {}, "annotations": {"readOnlyHint": true},
            "run": {"process": {"argv": ["sh", "-c", "until [ -e go ]; do sleep 0.02; done"], "folder": "."}}}}),
    );
    if !start_after(&world, 0) {
        return;
    }
    let human = Human::of(&world);
    world.start("slow", &json!({}));
    let id = world.start("mark", &json!({"name": "approved"}));
    assert_eq!(human.approve(&id).status, 200);
    assert_eq!(world.result_file(&id)["state"], "queued");
    world.kill_executor();
    fs::write(world.folder().join("go"), "").expect("the file is written");
    assert!(start_after(&world, HOUR + 60));
    let ended = world.end_of(&id);
    assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("expired"), &json!("expired")), "{ended}");
    assert_eq!(written_marks(&world), "");
}

/// Shifts the time of day and the uptime of a running executor, in seconds.
struct Clock {
    day: std::path::PathBuf,
    sleep: std::path::PathBuf,
}

impl Clock {
    fn of(world: &World) -> Self {
        let clock = Self { day: world.home().join("day"), sleep: world.home().join("sleep") };
        clock.set(0, 0);
        clock
    }

    fn set(&self, day: i64, sleep: i64) {
        for (path, seconds) in [(&self.day, day), (&self.sleep, sleep)] {
            // Renamed into place, since the executor may read it at any time.
            let new = path.with_extension("new");
            fs::write(&new, seconds.to_string()).expect("the file is written");
            fs::rename(new, path).expect("the file is renamed");
        }
    }

    fn start(&self, world: &World, library: &Path) {
        let mut start = world.command(&["executor", "start"]);
        start.env("LD_PRELOAD", library).env("SHIM_CLOCK", &self.day).env("SHIM_UPTIME", &self.sleep);
        let started = world.transcript(&start.output().expect("the program runs"));
        assert_eq!(started.exit, 0, "{started}");
    }
}

#[test]
fn a_clock_that_is_set_back_extends_no_deadline_and_sleep_counts() {
    let Some(library) = shim::library() else { return };
    // How the time of day and the uptime change while the task waits, and whether an approval is then too late.
    for (day, sleep, is_late) in [
        (-365 * 24 * HOUR, 0, false),
        (-365 * 24 * HOUR, HOUR / 2, false),
        (365 * 24 * HOUR, 0, true),
        (HOUR + 60, HOUR + 60, true),
        (0, HOUR + 60, true),
        (-365 * 24 * HOUR, HOUR + 60, true),
    ] {
        let world = world();
        let clock = Clock::of(&world);
        clock.start(&world, library);
        let human = Human::of(&world);
        let id = world.start("mark", &json!({"name": "x"}));
        let approval = human.decision(&id, "approve");
        clock.set(day, sleep);
        if is_late {
            assert_too_late(&world, &human, &id, &approval);
            assert_eq!(written_marks(&world), "", "{day} {sleep}");
        } else {
            assert_eq!(human.post("/decide", &approval).status, 200, "{day} {sleep}");
            until("the task has run", || written_marks(&world) == "x\n");
        }
    }
}
