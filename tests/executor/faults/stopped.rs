//! A race to start the executor over what a crash left, and an executor that does not move.

use std::fs;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use serde_json::json;

use super::oracle::{Class, Oracle};
use super::size;

#[test]
fn many_commands_at_once_over_stale_files_start_one_executor_that_takes_them_all() {
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
    oracle.judge();
}

#[test]
fn an_executor_that_does_not_move_is_told_and_what_was_taken_back_never_runs() {
    let oracle = Oracle::new();
    assert_eq!(oracle.world.run(&["executor", "start"]).exit, 0);
    let before = oracle.accept(Class::Once, &json!({}));
    assert_eq!(oracle.world.run(&["wait", &before]).exit, 0);
    let executor = oracle.world.executor().expect("an executor");
    kill(executor, Signal::SIGSTOP).expect("stopped");
    let began = Instant::now();
    let refused = oracle.ask(Class::Once, &json!({}));
    kill(executor, Signal::SIGCONT).expect("it goes on");
    let refused = refused.expect_err("nobody was there to take it");
    assert_eq!((refused.exit, refused.error()["code"].as_str()), (7, Some("no-executor")), "{refused}");
    assert!(refused.error()["hint"].is_string() && refused.error()["id"].is_null(), "{refused}");
    assert!(began.elapsed() < Duration::from_secs(30), "after {:?}", began.elapsed());
    oracle.accept(Class::Once, &json!({}));
    let ends = oracle.judge();
    assert_eq!(ends.into_iter().collect::<Vec<_>>(), [("succeeded".to_owned(), 2)]);
}
