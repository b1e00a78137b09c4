//! A clock that is set while a task waits for its next attempt.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::json;

use super::oracle::Oracle;
use super::shim;
use crate::world::until;

#[test]
fn a_clock_set_a_day_back_or_forward_holds_nothing_up() {
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
        until("it waits for its next attempt", || {
            oracle.world.folder().join("again.log").exists() && oracle.world.result_file(&id)["state"] == "queued"
        });
        fs::write(&clock, jump.to_string()).expect("written");
        let began = Instant::now();
        if restart {
            executor.kill().expect("killed");
            executor.wait().expect("it ended");
            // Which waits five minutes at most, and not a day; what a human sees is that it is open.
            fs::write(&clock, (jump + 600).to_string()).expect("written");
            executor = oracle.executor(&environment);
            assert_eq!(oracle.world.run(&["executor", "status"]).exit, 0, "it has read the record");
            fs::write(&clock, (jump + 1200).to_string()).expect("written");
        }
        let ended = oracle.world.run(&["wait", &id, "--timeout=45s"]);
        assert_eq!((ended.exit, &ended.json()["status"]), (0, &json!("succeeded")), "{jump} {restart}: {ended}");
        assert!(began.elapsed() < Duration::from_secs(40));
        assert!(executor.try_wait().expect("asked").is_none(), "it is not idle for long");
        executor.kill().expect("killed");
        executor.wait().expect("it ended");
    }
}

#[test]
fn a_schedule_means_what_the_clock_shows_and_is_kept_whatever_it_is_set_to() {
    const DAY: i64 = 86_400;
    let Some(library) = shim::library() else { return };
    let oracle = Oracle::new();
    let clock = oracle.world.home().join("clock");
    fs::write(&clock, "0").expect("written");
    let library = library.to_str().expect("a path");
    let environment = [("LD_PRELOAD", library), ("SHIM_CLOCK", clock.to_str().expect("a path"))];
    let schedule = |name: &str, span: &str| {
        let mut command = oracle.world.command(&["run", "once", &format!("name={name}"), "--in", span]);
        let ran = oracle.world.transcript(&command.envs(environment).output().expect("it runs"));
        assert_eq!(ran.exit, 0, "{ran}");
        oracle.forgive(name);
        ran.json()["id"].as_str().expect("an id").to_owned()
    };
    let mut executor = oracle.executor(&environment);
    let tomorrow = schedule("tomorrow", "2h");
    // A day back: what is asked for now is reckoned by the clock as it is now.
    fs::write(&clock, (-DAY).to_string()).expect("written");
    let soon = schedule("soon", "500ms");
    let ended = oracle.world.run(&["wait", &soon, "--timeout=60s"]);
    assert_eq!(ended.json()["status"], "succeeded", "{ended}");
    assert_eq!(oracle.world.result_file(&tomorrow)["state"], "queued");
    // Set right again, the time has not come; and the next executor knows it too.
    fs::write(&clock, "0").expect("written");
    executor.kill().expect("killed");
    executor.wait().expect("it ended");
    executor = oracle.executor(&environment);
    assert_eq!(oracle.world.run(&["executor", "status"]).json()["tasks"], json!({"queued": 1}));
    fs::write(&clock, (DAY / 8).to_string()).expect("written");
    let ended = oracle.world.run(&["wait", &tomorrow, "--timeout=60s"]);
    assert_eq!((ended.exit, &ended.json()["status"]), (0, &json!("succeeded")), "{ended}");
    assert_eq!(oracle.effects().into_values().collect::<Vec<_>>(), [1, 1]);
    executor.kill().expect("killed");
    executor.wait().expect("it ended");
}
