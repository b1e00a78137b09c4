//! Killed at every point of a task's way, for every class of effect.

use std::os::unix::process::ExitStatusExt as _;

use serde_json::json;

use super::oracle::{Class, Oracle};
use super::size;
use crate::world::until;

/// The points on the way of one task, and how often it passes them.
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
];

fn fault(point: &str, nth: u32) -> String {
    format!("{point}:kill:{nth}")
}

/// Kills the executor of one task at one point.
fn kill_at(oracle: &Oracle, point: &str, nth: u32, class: Class) {
    let mut executor = oracle.executor(&[("AGENT_MAGIC_TOOL_FAULT", &fault(point, nth))]);
    let id = oracle.accept(class, &json!({}));
    let status = executor.wait().expect("it ended");
    assert_eq!(status.signal(), Some(9), "{point} was passed {nth} times by {class:?} {id}");
    oracle.until_final();
}

#[test]
fn killed_at_every_point_of_its_way_a_task_ends_as_it_must() {
    std::thread::scope(|scope| {
        for class in Class::ALL {
            scope.spawn(move || {
                let oracle = Oracle::new();
                for (number, (point, most)) in POINTS.iter().enumerate() {
                    // Where nothing can be done twice, every second point is enough for a normal run.
                    if class != Class::Once && !(number + class as usize).is_multiple_of(size(2, 1)) {
                        continue;
                    }
                    for nth in 1..=*most {
                        kill_at(&oracle, point, nth, class);
                        oracle.world.kill_executor();
                    }
                }
                let ends = oracle.judge();
                if class == Class::Once {
                    assert!(ends["succeeded"] > 0 && ends["unknown"] > 0, "{ends:?}");
                } else {
                    assert_eq!(ends.len(), 1, "{ends:?}");
                }
            });
        }
    });
}

#[test]
fn killed_again_while_it_takes_over_the_next_one_still_knows_everything() {
    let taking_over = ["commit.before", "commit.inside", "commit.after", "result.written", "result.renamed"];
    let first = ["commit.after", "attempt.started", "attempt.finished", "result.renamed"];
    let oracle = Oracle::new();
    for (number, (one, two)) in first.iter().flat_map(|one| taking_over.map(|two| (one, two))).enumerate() {
        if number >= size(2, usize::MAX) {
            break;
        }
        for class in Class::ALL {
            let mut executor = oracle.executor(&[("AGENT_MAGIC_TOOL_FAULT", &fault(one, 1))]);
            // Nobody but us starts another one: it is told while this one lives, or not at all.
            let mut caller = oracle.world.command(&["executor", "run"]);
            caller.env("AGENT_MAGIC_TOOL_FAULT", fault(two, 1));
            std::thread::scope(|scope| {
                let asking = scope.spawn(|| oracle.accept(class, &json!({})));
                executor.wait().expect("it ended");
                // Perhaps the caller was quicker to start one; then this one is not needed.
                let mut second = caller.stderr(std::process::Stdio::null()).spawn().expect("it starts");
                asking.join().expect("accepted");
                oracle.until_final();
                if second.try_wait().expect("asked").is_none() {
                    second.kill().expect("killed");
                }
                second.wait().expect("it ended");
            });
            oracle.world.kill_executor();
        }
    }
    oracle.judge();
}

#[test]
fn what_was_refused_is_not_taken_up_by_the_next_executor() {
    for point in ["answer.renamed", "answer.delivered", "request.answered"] {
        let oracle = Oracle::with("open_tasks = 1");
        let mut executor =
            oracle.executor(&[("AGENT_MAGIC_TOOL_FAULT", &fault(point, 1 + u32::from(point == "request.answered")))]);
        let open = oracle.accept(Class::Once, &json!({"pause": "30"}));
        until("it took effect", || !oracle.effects().is_empty());
        let refused = oracle.ask(Class::Once, &json!({})).expect_err("one is open, and that is the most");
        assert_eq!((refused.exit, refused.error()["code"].as_str()), (5, Some("throttled")), "{point}: {refused}");
        assert_eq!(executor.wait().expect("it ended").signal(), Some(9), "{point} was passed");
        // Its successor ends the open one as unknown, so that there would be a place.
        assert_eq!(oracle.world.run(&["wait", &open]).json()["status"], "unknown");
        let ends = oracle.judge();
        assert_eq!(ends.into_iter().collect::<Vec<_>>(), [("unknown".to_owned(), 1)], "{point}");
    }
}

#[test]
fn a_caller_killed_at_any_point_leaves_a_task_that_runs_or_nothing() {
    let oracle = Oracle::new();
    let _executor = oracle.world.run(&["executor", "start"]);
    for class in Class::ALL {
        for point in ["request.written", "request.renamed"] {
            let mut caller = oracle.world.command(&["run", class.tool(), &format!("name=killed-{point}-{class:?}")]);
            let status = caller.env("AGENT_MAGIC_TOOL_FAULT", fault(point, 1)).status().expect("it ran");
            assert_eq!(status.signal(), Some(9));
        }
    }
    until("those that were handed over took effect", || oracle.effects().len() == Class::ALL.len());
    for name in oracle.effects().keys() {
        assert!(name.starts_with("killed-request.renamed"), "{name}");
        oracle.forgive(name);
    }
    oracle.judge();
}

#[test]
fn what_kills_its_executor_each_time_is_tried_three_times_and_no_more() {
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
    // A command whose own executor was killed says so: then the next one takes over.
    let mut ended = oracle.world.run(&["wait", &id, "--timeout=60s"]);
    until("no executor was killed under the one who waits", || {
        let was_killed = ended.exit == 7;
        if was_killed {
            ended = oracle.world.run(&["wait", &id, "--timeout=60s"]);
        }
        !was_killed
    });
    assert_eq!((ended.exit, &ended.json()["status"]), (1, &json!("unknown")), "{ended}");
    assert_eq!(ended.json()["_meta"]["attempts"], 3, "{ended}");
    let tries = std::fs::read_to_string(oracle.world.folder().join("poison.log")).expect("tried");
    assert_eq!(tries.lines().count(), 3);
    assert_ne!(oracle.world.run(&["wait", &healthy]).json()["status"], "pending");
    let after = oracle.accept(Class::Once, &json!({}));
    assert_eq!(oracle.world.run(&["wait", &after]).json()["status"], "succeeded", "the others go on");
}
