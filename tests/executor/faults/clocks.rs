//! The clock is set while a task waits for its next attempt or for its scheduled time.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::json;

use super::oracle::Oracle;
use super::shim;
use crate::world::{full_program, until, wait_for_end};

#[test]
fn setting_the_clock_a_day_back_or_forward_delays_no_retry() {
    const DAY: i64 = 86_400;
    let Some(library) = shim::library() else { return };
    for (jump, restart) in [(-DAY, false), (DAY, false), (-DAY, true)] {
        let oracle = Oracle::new();
        oracle.world.define(
            "again.json",
            &json!({"again": {"description": "Takes too long at first.", "input": {}, "annotations": {"readOnlyHint": true},
                "confirm": "never", "timeout": "300ms", "retries": {"times": 2, "backoff": "2s"},
                "run": {"process": {"folder": ".",
                    "argv": ["sh", "-c", "test -e again.log && exit 0; echo x > again.log; sleep 5"]}}}}),
        );
        let clock = oracle.world.home().join("clock");
        fs::write(&clock, "0").expect("written");
        let (library, clock_text) = (library.to_str().expect("a path"), clock.to_str().expect("a path"));
        let environment = [("LD_PRELOAD", library), ("SHIM_CLOCK", clock_text)];
        let mut executor = oracle.executor(&environment);
        let ran = oracle.world.run(&["run", "again"]);
        assert_eq!(ran.exit, 0, "{ran}");
        let id = ran.json()["id"].as_str().expect("an id").to_owned();
        until("the task waits for its next attempt", || {
            oracle.world.folder().join("again.log").exists() && oracle.world.result_file(&id)["state"] == "queued"
        });
        fs::write(&clock, jump.to_string()).expect("written");
        let start = Instant::now();
        if restart {
            executor.kill().expect("killed");
            wait_for_end(&mut executor);
            // After a restart the task waits five minutes at most, not a day.
            fs::write(&clock, (jump + 600).to_string()).expect("written");
            executor = oracle.executor(&environment);
            assert_eq!(oracle.world.run(&["executor", "status"]).exit, 0, "the executor should have read the store");
            fs::write(&clock, (jump + 1200).to_string()).expect("written");
        }
        let ended = oracle.world.run(&["wait", &id, "--timeout=45s"]);
        assert_eq!((ended.exit, &ended.json()["status"]), (0, &json!("succeeded")), "{jump} {restart}: {ended}");
        assert!(start.elapsed() < Duration::from_secs(40));
        assert!(executor.try_wait().expect("a child process").is_none(), "the executor should still run");
        executor.kill().expect("killed");
        wait_for_end(&mut executor);
    }
}

#[test]
fn a_schedule_follows_the_clock_when_the_clock_is_set() {
    const DAY: i64 = 86_400;
    let Some(library) = shim::library() else { return };
    let oracle = Oracle::new();
    let clock = oracle.world.home().join("clock");
    fs::write(&clock, "0").expect("written");
    let library = library.to_str().expect("a path");
    let environment = [("LD_PRELOAD", library), ("SHIM_CLOCK", clock.to_str().expect("a path"))];
    let schedule = |name: &str, span: &str| {
        // Without libraries, the small program would not see the clock.
        let line = ["run", "once", &format!("name={name}"), "--in", span];
        let mut command = oracle.world.within(full_program(), &line);
        let ran = oracle.world.transcript(&command.envs(environment).output().expect("ran"));
        assert_eq!(ran.exit, 0, "{ran}");
        oracle.mark_uncertain(name);
        ran.json()["id"].as_str().expect("an id").to_owned()
    };
    let mut executor = oracle.executor(&environment);
    let tomorrow = schedule("tomorrow", "2h");
    // Set the clock a day back: a new schedule follows the current clock.
    fs::write(&clock, (-DAY).to_string()).expect("written");
    let soon = schedule("soon", "500ms");
    let ended = oracle.world.run(&["wait", &soon, "--timeout=60s"]);
    assert_eq!(ended.json()["status"], "succeeded", "{ended}");
    assert_eq!(oracle.world.result_file(&tomorrow)["state"], "queued");
    // Set the clock right again: the first task is not due yet, also for the next executor.
    fs::write(&clock, "0").expect("written");
    executor.kill().expect("killed");
    wait_for_end(&mut executor);
    executor = oracle.executor(&environment);
    assert_eq!(oracle.world.run(&["executor", "status"]).json()["tasks"], json!({"queued": 1}));
    fs::write(&clock, (DAY / 8).to_string()).expect("written");
    // A command with another clock would see no sense in waiting.
    let mut wait = oracle.world.within(full_program(), &["wait", &tomorrow, "--timeout=60s"]);
    let ended = oracle.world.transcript(&wait.envs(environment).output().expect("ran"));
    assert_eq!((ended.exit, &ended.json()["status"]), (0, &json!("succeeded")), "{ended}");
    assert_eq!(oracle.effects().into_values().collect::<Vec<_>>(), [1, 1]);
    executor.kill().expect("killed");
    wait_for_end(&mut executor);
}
