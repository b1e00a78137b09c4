//! Loss of power before any sync, and syncs that fail.

use std::process::Child;

use serde_json::json;

use super::oracle::{Class, Oracle};
use super::shim::{self, Disk};
use super::size;
use crate::world::until;

/// No command can start an executor: the one of the test is alone with its disk.
fn keep_others_from_starting(oracle: &Oracle) {
    oracle.world.configure("[executor]\nidle = \"never\"\n");
}

fn let_others_start(oracle: &Oracle) {
    oracle.world.configure(&super::oracle::configuration(""));
}

/// A world whose record exists, and its disk.
fn world() -> (Oracle, Disk) {
    let oracle = Oracle::new();
    assert_eq!(oracle.world.run(&["executor", "start"]).exit, 0);
    assert_eq!(oracle.world.run(&["executor", "stop"]).exit, 0);
    let record = oracle.record();
    until("its record is closed", || !record.with_extension("db-wal").exists());
    let folder = record.parent().expect("a folder").to_owned();
    let disk = Disk::under(&folder);
    (oracle, disk)
}

fn end(executor: &mut Child) {
    if executor.try_wait().expect("asked").is_none() {
        executor.kill().expect("killed");
    }
    executor.wait().expect("it ended");
}

fn class(number: usize) -> Class {
    Class::ALL[number % Class::ALL.len()]
}

/// After the loss: a new mailbox, the disk as it was synced, and everything that was promised.
fn lose_power_and_judge(mut oracle: Oracle, disk: &Disk) {
    let_others_start(&oracle);
    oracle.lose_mailbox();
    disk.lose_power();
    let started = oracle.world.run(&["executor", "start"]);
    assert_eq!(started.exit, 0, "{started}");
    oracle.until_back();
    oracle.judge();
}

#[test]
fn a_loss_of_power_before_any_sync_takes_back_nothing_that_was_said() {
    let Some(library) = shim::library() else { return };
    let syncs: Vec<usize> = if size(0, 1) == 1 { (1..=40).collect() } else { vec![1, 3, 4, 6, 9] };
    for nth in syncs {
        let (oracle, disk) = world();
        let nth_text = nth.to_string();
        let mut environment = disk.environment(library);
        environment.push(("SHIM_KILL", &nth_text));
        // It may be killed before it is in office: then there is nothing to lose.
        let mut executor = oracle.spawn("", &environment);
        until("it is in office, or was killed", || oracle.holds_executor_lock(&executor) || has_ended(&mut executor));
        keep_others_from_starting(&oracle);
        std::thread::scope(|scope| {
            for caller in 0..2 {
                let oracle = &oracle;
                scope.spawn(move || {
                    (0..10).take_while(|number| oracle.ask_unsure(class(number + caller), &json!({})).is_ok()).count()
                });
            }
        });
        end(&mut executor);
        lose_power_and_judge(oracle, &disk);
    }
}

fn has_ended(executor: &mut Child) -> bool {
    executor.try_wait().expect("asked").is_some()
}

#[test]
fn what_a_killed_executor_did_not_live_to_sync_is_durable_before_it_is_said() {
    let Some(library) = shim::library() else { return };
    for nth in 2..=size(5, 12) {
        let (oracle, disk) = world();
        let nth = nth.to_string();
        let mut killed = disk.environment(library);
        killed.push(("SHIM_KILL", &nth));
        let mut executor = oracle.spawn("", &killed);
        until("it is in office, or was killed", || oracle.holds_executor_lock(&executor) || has_ended(&mut executor));
        keep_others_from_starting(&oracle);
        // One after the other, so that nothing else makes the last one durable.
        for number in 0..4 {
            let Ok(id) = oracle.ask_unsure(Class::Once, &json!({})) else { break };
            until("it ended, or the executor did", || {
                oracle.world.result_file(&id)["status"] != "pending" || has_ended(&mut executor)
            });
            assert!(number < 4);
        }
        end(&mut executor);
        // The machine goes on, and so does the next executor: all that it says counts.
        let_others_start(&oracle);
        let mut next = oracle.executor(&disk.environment(library));
        oracle.until_final();
        // Readers see it all once more.
        std::thread::park_timeout(std::time::Duration::from_millis(20));
        end(&mut next);
        lose_power_and_judge(oracle, &disk);
    }
}

#[test]
fn after_a_failed_sync_it_says_nothing_more_and_the_next_one_goes_on() {
    let Some(library) = shim::library() else { return };
    for nth in 3..=size(6, 30) {
        let (oracle, disk) = world();
        let nth = nth.to_string();
        let mut environment = disk.environment(library);
        environment.push(("SHIM_EIO", &nth));
        let mut executor = oracle.executor(&environment);
        std::thread::scope(|scope| {
            for caller in 0..2 {
                let oracle = &oracle;
                scope.spawn(move || {
                    for number in 0..6 {
                        // Its caller sees to it that another takes over.
                        oracle.accept(class(number + caller), &json!({}));
                    }
                });
            }
        });
        until("it ended", || has_ended(&mut executor) || nth.parse::<usize>().is_ok_and(|nth| nth > 12));
        end(&mut executor);
        oracle.judge();
    }
}
