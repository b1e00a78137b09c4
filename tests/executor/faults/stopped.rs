//! A race to start the executor over the files of a crash, and an executor that hangs.

use std::fs;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use serde_json::json;

use super::oracle::{Class, Oracle};
use super::size;

#[test]
fn concurrent_commands_over_stale_files_start_one_executor_for_all_tasks() {
    let oracle = Oracle::new();
    let mailbox = oracle.world.mailbox();
    protocol::mailbox::Mailbox::open(&mailbox).expect("a mailbox");
    for (file, text) in [("executor.lock", "1\n"), ("start.lock", "1\n"), ("executor.json", "{\"pid\": 1, \"vers")] {
        fs::write(mailbox.join(file), text).expect("written");
    }
    std::thread::scope(|scope| {
        for number in 0..size(50, 200) {
            let oracle = &oracle;
            scope.spawn(move || oracle.accept(Class::ALL[number % 3], &json!({})));
        }
    });
    let log = fs::read_to_string(oracle.world.log()).expect("a log");
    assert_eq!(log.matches("\"executor started\"").count(), 1, "{log}");
    oracle.verify();
}

#[test]
fn a_hanging_executor_is_reported_and_a_withdrawn_request_never_runs() {
    let oracle = Oracle::new();
    assert_eq!(oracle.world.run(&["executor", "start"]).exit, 0);
    let before = oracle.accept(Class::Once, &json!({}));
    assert_eq!(oracle.world.run(&["wait", &before]).exit, 0);
    let executor = oracle.world.executor().expect("an executor");
    kill(executor, Signal::SIGSTOP).expect("stopped");
    let start = Instant::now();
    let refused = oracle.run(Class::Once, &json!({}));
    kill(executor, Signal::SIGCONT).expect("continued");
    let refused = refused.expect_err("the executor was stopped");
    assert_eq!((refused.exit, refused.error()["code"].as_str()), (7, Some("no-executor")), "{refused}");
    assert!(refused.error()["hint"].is_string() && refused.error()["details"]["id"].is_null(), "{refused}");
    assert!(start.elapsed() < Duration::from_secs(30), "after {:?}", start.elapsed());
    oracle.accept(Class::Once, &json!({}));
    let ends = oracle.verify();
    assert_eq!(ends.into_iter().collect::<Vec<_>>(), [("succeeded".to_owned(), 2)]);
}

/// A cleaner removes the mailbox while its executor is stopped. The executor still owns the record, so its successor
/// starts nothing; when it wakes, it finishes and makes room.
#[test]
fn an_executor_that_wakes_beside_its_successor_repeats_nothing() {
    let mut oracle = Oracle::with("grace = \"100ms\"");
    let first = oracle.accept(Class::Once, &json!({}));
    assert_eq!(oracle.world.run(&["wait", &first]).exit, 0);
    let stopped = oracle.world.executor().expect("an executor");
    kill(stopped, Signal::SIGSTOP).expect("stopped");
    oracle.lose_mailbox();
    let refused = oracle.run(Class::Once, &json!({})).expect_err("the record is in use");
    assert_eq!(refused.exit, 7, "{refused}");
    assert!(refused.stderr.contains("another executor still uses the record of tasks"), "{refused}");
    kill(stopped, Signal::SIGCONT).expect("continued");
    let second = oracle.accept(Class::Once, &json!({}));
    assert_eq!(oracle.world.run(&["wait", &second]).exit, 0);
    oracle.until_restored();
    let ends = oracle.verify();
    assert_eq!(ends.into_iter().collect::<Vec<_>>(), [("succeeded".to_owned(), 2)]);
}
