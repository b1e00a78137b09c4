//! The executor is killed at every failpoint of a task, for every effect class.

use std::os::unix::process::ExitStatusExt as _;

use serde_json::json;

use super::oracle::{Class, Oracle};
use super::size;
use crate::world::{until, wait_for_end};

/// The failpoints that one task passes, and how often.
const POINTS: &[(&str, u32)] = &[
    ("requests.taken", 1),
    ("commit.before", 2),
    ("commit.inside", 2),
    ("commit.after", 2),
    ("attempt.started", 1),
    ("result.written", 2),
    ("result.renamed", 2),
    ("request.answered", 1),
    ("request.done", 1),
    ("attempt.finished", 1),
    ("data.written", 1),
    ("data.renamed", 1),
    ("hook.send", 1),
    ("hook.ack", 1),
];

fn fault(point: &str, nth: u32) -> String {
    format!("{point}:kill:{nth}")
}

/// Runs one task, and kills its executor at the `nth` pass of a failpoint.
fn kill_at(oracle: &Oracle, point: &str, nth: u32, class: Class) {
    let mut executor = oracle.executor(&[("AGENT_MAGIC_TOOL_FAULT", &fault(point, nth))]);
    let id = oracle.accept(class, &json!({}));
    let status = wait_for_end(&mut executor);
    assert_eq!(status.signal(), Some(9), "{point} was passed {nth} times by {class:?} {id}");
    oracle.until_final();
}

#[test]
fn after_a_kill_at_any_failpoint_a_task_ends_correctly() {
    std::thread::scope(|scope| {
        for class in Class::ALL.into_iter().chain([Class::Verifiable]) {
            scope.spawn(move || {
                let oracle = Oracle::with_hook();
                for (number, (point, passes)) in POINTS.iter().enumerate() {
                    // If the effect may happen twice, every second failpoint is enough for a normal run.
                    if class != Class::Once && !(number + class as usize).is_multiple_of(size(2, 1)) {
                        continue;
                    }
                    for nth in 1..=*passes {
                        kill_at(&oracle, point, nth, class);
                        oracle.world.kill_executor();
                    }
                }
                let ends = oracle.verify();
                if class == Class::Once {
                    assert!(ends["succeeded"] > 0 && ends["unknown"] > 0, "{ends:?}");
                } else {
                    // A lookup says what became of a lost attempt.
                    assert_eq!(ends.into_keys().collect::<Vec<_>>(), ["succeeded"], "{class:?}");
                }
            });
        }
    });
}

#[test]
fn nothing_is_lost_if_the_next_executor_is_killed_while_it_takes_over() {
    let taking_over = ["commit.before", "commit.inside", "commit.after", "result.written", "result.renamed"];
    let first = ["commit.after", "attempt.started", "attempt.finished", "result.renamed"];
    let oracle = Oracle::new();
    for (number, (one, two)) in first.iter().flat_map(|one| taking_over.map(|two| (one, two))).enumerate() {
        if number >= size(2, usize::MAX) {
            break;
        }
        for class in Class::ALL {
            let mut executor = oracle.executor(&[("AGENT_MAGIC_TOOL_FAULT", &fault(one, 1))]);
            // The second executor is prepared here, so that it has its own failpoint.
            let mut caller = oracle.world.command(&["executor", "run"]);
            caller.env("AGENT_MAGIC_TOOL_FAULT", fault(two, 1));
            std::thread::scope(|scope| {
                let accepting = scope.spawn(|| oracle.accept(class, &json!({})));
                wait_for_end(&mut executor);
                // If the caller has started an executor already, this one ends immediately.
                let mut second = caller.stderr(std::process::Stdio::null()).spawn().expect("started");
                accepting.join().expect("accepted");
                oracle.until_final();
                if second.try_wait().expect("a child process").is_none() {
                    second.kill().expect("killed");
                }
                wait_for_end(&mut second);
            });
            oracle.world.kill_executor();
        }
    }
    oracle.verify();
}

#[test]
fn a_refused_request_is_not_accepted_by_the_next_executor() {
    for point in ["answer.renamed", "answer.delivered", "request.answered"] {
        let oracle = Oracle::with("open_tasks = 1");
        let mut executor =
            oracle.executor(&[("AGENT_MAGIC_TOOL_FAULT", &fault(point, 1 + u32::from(point == "request.answered")))]);
        let open = oracle.accept(Class::Once, &json!({"pause": "30"}));
        until("the task took effect", || !oracle.effects().is_empty());
        let refused = oracle.run(Class::Once, &json!({})).expect_err("the limit of open tasks is reached");
        assert_eq!((refused.exit, refused.error()["code"].as_str()), (5, Some("throttled")), "{point}: {refused}");
        assert_eq!(wait_for_end(&mut executor).signal(), Some(9), "{point} was passed");
        // The next executor ends the open task as `unknown`, so the limit would allow another task.
        assert_eq!(oracle.world.run(&["wait", &open]).json()["status"], "unknown");
        let ends = oracle.verify();
        assert_eq!(ends.into_iter().collect::<Vec<_>>(), [("unknown".to_owned(), 1)], "{point}");
    }
}

#[test]
fn a_killed_caller_leaves_either_a_task_that_runs_or_nothing() {
    let oracle = Oracle::new();
    let _executor = oracle.world.run(&["executor", "start"]);
    for class in Class::ALL {
        for point in ["request.written", "request.renamed"] {
            let mut caller = oracle.world.command(&["run", class.tool(), &format!("name=killed-{point}-{class:?}")]);
            let status = caller.env("AGENT_MAGIC_TOOL_FAULT", fault(point, 1)).status().expect("ran");
            assert_eq!(status.signal(), Some(9));
        }
    }
    until("the posted tasks took effect", || oracle.effects().len() == Class::ALL.len());
    for name in oracle.effects().keys() {
        assert!(name.starts_with("killed-request.renamed"), "{name}");
        oracle.mark_uncertain(name);
    }
    oracle.verify();
}

#[test]
fn a_task_that_kills_its_executor_is_tried_only_twice() {
    let oracle = Oracle::new();
    oracle.world.define(
        "poison.json",
        &json!({"poison": {"description": "Kills its executor.", "input": {}, "annotations": {"readOnlyHint": true},
            "confirm": "never",
            "run": {"process": {"folder": ".", "argv": ["sh", "-c", "echo x >> poison.log; kill -9 $PPID; sleep 5"]}}}}),
    );
    let healthy = oracle.accept(Class::Once, &json!({}));
    let ran = oracle.world.run(&["run", "poison"]);
    assert_eq!(ran.exit, 0, "{ran}");
    let id = ran.json()["id"].as_str().expect("an id").to_owned();
    // `wait` ends with 7 if the executor is killed meanwhile; the next `wait` starts another executor.
    let mut ended = oracle.world.run(&["wait", &id, "--timeout=60s"]);
    until("no executor is killed during `wait`", || {
        let was_killed = ended.exit == 7;
        if was_killed {
            ended = oracle.world.run(&["wait", &id, "--timeout=60s"]);
        }
        !was_killed
    });
    assert_eq!((ended.exit, &ended.json()["status"]), (1, &json!("failed")), "{ended}");
    assert_eq!(oracle.world.result_file(&id)["_meta"]["attempts"], 2, "{ended}");
    let tries = std::fs::read_to_string(oracle.world.folder().join("poison.log")).expect("a log of the attempts");
    assert_eq!(tries.lines().count(), 2);
    assert_ne!(oracle.world.run(&["wait", &healthy]).json()["status"], "pending");
    let after = oracle.accept(Class::Once, &json!({}));
    assert_eq!(oracle.world.run(&["wait", &after]).json()["status"], "succeeded", "other tasks should still run");
}
