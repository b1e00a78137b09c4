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
