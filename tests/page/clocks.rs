//! T16: how long a human has for a yes, whatever the clock is set to and however long the machine slept.
//!
//! Two ways to make time jump: a time namespace, in which the machine is up for longer than it was, and a shim
//! before the C library, which sets the time of day and what sleep takes under a process that runs.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use serde_json::{Value, json};

use super::ann::bound;
use super::threats::Human;
use crate::executor::faults::shim;
use crate::world::{PROGRAM, World, until};

const HOUR: i64 = 3600;

/// A world in which a human has an hour.
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

fn happened(world: &World) -> String {
    fs::read_to_string(world.folder().join("marks")).unwrap_or_default()
}

/// Starts an executor on a machine that is up for `more` seconds longer; whether that can be had here.
fn start_after(world: &World, more: i64) -> bool {
    let more = more.to_string();
    let mut inside = vec!["--time", "--boottime", &more, "--fork", "true"];
    let tried = world.within("unshare", &inside).output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        // Past the harness, which would keep it to itself.
        writeln!(std::io::stderr(), "SKIPPED: a machine that slept: no time namespace can be had here").expect("said");
        return false;
    }
    inside.pop();
    inside.extend([PROGRAM, "executor", "start"]);
    let started = world.ran(&world.within("unshare", &inside).output().expect("unshare"));
    assert_eq!(started.exit, 0, "{started}");
    true
}

/// What a yes to a task that waits would be.
fn yes_to(human: &Human, id: &str) -> Value {
    json!({"decisions": [bound(human, id)], "verdict": "approve"})
}

fn is_too_late(world: &World, human: &Human, id: &str, yes: &Value) {
    let late = human.post("/decide", yes);
    // With a jump of a year the human's session is over as well.
    assert!(matches!(late.status, 401 | 409), "{}", late.body);
    let ended = world.end_of(id);
    assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("expired"), &json!("expired")), "{ended}");
    assert_eq!(world.run(&["wait", id]).exit, 5);
}

/// A namespace moves the time since the start, and not the time of day: to the executor inside it the machine
/// slept, and the clock was set back by as much before it looked.
#[test]
fn a_clock_set_back_while_no_executor_runs_gives_nobody_more_time() {
    let world = world();
    if !start_after(&world, 0) {
        return;
    }
    let human = Human::of(&world);
    let (early, late) = (world.start("mark", &json!({"name": "early"})), world.start("mark", &json!({"name": "late"})));
    let (yes, no) = (yes_to(&human, &early), yes_to(&human, &late));
    let restart_after = |more| {
        assert_eq!(world.run(&["executor", "stop"]).exit, 0);
        assert!(start_after(&world, more));
        Human::of(&world)
    };
    // Half an hour of the hour is gone.
    let human = restart_after(HOUR / 2);
    for id in [&early, &late] {
        assert_eq!(world.result_file(id)["state"], "awaiting_confirmation");
    }
    assert_eq!(human.post("/decide", &yes).status, 200);
    assert_eq!(world.end_of(&early)["status"], "succeeded");
    let human = restart_after(HOUR + 60);
    is_too_late(&world, &human, &late, &no);
    assert_eq!(happened(&world), "early\n");
    // What is asked for from now on has its own hour.
    let next = world.start("mark", &json!({"name": "next"}));
    assert_eq!(human.post("/decide", &yes_to(&human, &next)).status, 200);
    assert_eq!(world.end_of(&next)["status"], "succeeded");
}

/// What was approved in time, and could not start in time.
#[test]
fn an_approved_task_does_not_start_after_its_hour_however_the_clock_was_set() {
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
    assert_eq!(human.post("/decide", &yes_to(&human, &id)).status, 200);
    assert_eq!(world.result_file(&id)["state"], "queued");
    world.kill_executor();
    fs::write(world.folder().join("go"), "").expect("written");
    assert!(start_after(&world, HOUR + 60));
    let ended = world.end_of(&id);
    assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("expired"), &json!("expired")), "{ended}");
    assert_eq!(happened(&world), "");
}

/// The time of day and what sleep adds, in seconds, for an executor that runs.
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
            // Never half of it: it is read at any time.
            let beside = path.with_extension("new");
            fs::write(&beside, seconds.to_string()).expect("written");
            fs::rename(beside, path).expect("renamed");
        }
    }

    fn start(&self, world: &World, library: &Path) {
        let mut start = world.command(&["executor", "start"]);
        start.env("LD_PRELOAD", library).env("SHIM_CLOCK", &self.day).env("SHIM_UPTIME", &self.sleep);
        let started = world.ran(&start.output().expect("it starts"));
        assert_eq!(started.exit, 0, "{started}");
    }
}

#[test]
fn a_clock_set_back_under_an_executor_extends_nothing_and_sleep_counts() {
    let Some(library) = shim::library() else { return };
    // The time of day and sleep, while the task waits; whether a yes comes too late.
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
        let yes = yes_to(&human, &id);
        clock.set(day, sleep);
        if is_late {
            is_too_late(&world, &human, &id, &yes);
            assert_eq!(happened(&world), "", "{day} {sleep}");
        } else {
            assert_eq!(human.post("/decide", &yes).status, 200, "{day} {sleep}");
            until("it has run", || happened(&world) == "x\n");
        }
    }
}
