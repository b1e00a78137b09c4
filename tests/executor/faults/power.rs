//! Power loss before any sync, and failing syncs.

use std::process::Child;

use serde_json::json;

use super::oracle::{Class, Oracle};
use super::shim::{self, Disk};
use super::size;
use crate::world::{until, wait_for_end};

/// Prevents commands from starting an executor, so that only the test's executor uses the disk.
fn prevent_other_executors(oracle: &Oracle) {
    oracle.world.configure("[executor]\nidle = \"never\"\n");
}

fn allow_other_executors(oracle: &Oracle) {
    oracle.world.configure(&super::oracle::configuration(""));
}

/// A world with a store, and its disk.
fn world() -> (Oracle, Disk) {
    let oracle = Oracle::new();
    assert_eq!(oracle.world.run(&["executor", "start"]).exit, 0);
    assert_eq!(oracle.world.run(&["executor", "stop"]).exit, 0);
    let record = oracle.record();
    until("the store is closed", || !record.with_extension("db-wal").exists());
    let folder = record.parent().expect("a folder").to_owned();
    let disk = Disk::under(&folder);
    (oracle, disk)
}

fn end(executor: &mut Child) {
    if executor.try_wait().expect("a child process").is_none() {
        executor.kill().expect("killed");
    }
    wait_for_end(executor);
}

fn class(number: usize) -> Class {
    Class::ALL[number % Class::ALL.len()]
}

/// Removes the mailbox and everything on the disk that was not synced, and checks all guarantees.
fn lose_power_and_verify(mut oracle: Oracle, disk: &Disk) {
    allow_other_executors(&oracle);
    oracle.lose_mailbox();
    disk.lose_power();
    let started = oracle.world.run(&["executor", "start"]);
    assert_eq!(started.exit, 0, "{started}");
    oracle.until_restored();
    oracle.verify();
}

#[test]
fn a_power_loss_before_any_sync_loses_nothing_that_a_caller_was_told() {
    let Some(library) = shim::library() else { return };
    let syncs: Vec<usize> = if size(0, 1) == 1 { (1..=40).collect() } else { vec![1, 3, 4, 6, 9] };
    for nth in syncs {
        let (oracle, disk) = world();
        let nth_text = nth.to_string();
        let mut environment = disk.environment(library);
        environment.push(("SHIM_KILL", &nth_text));
        // The executor may be killed before it serves; then there is nothing to lose.
        let mut executor = oracle.spawn("", &environment);
        until("the executor serves or was killed", || {
            oracle.holds_executor_lock(&executor) || has_ended(&mut executor)
        });
        prevent_other_executors(&oracle);
        std::thread::scope(|scope| {
            for caller in 0..2 {
                let oracle = &oracle;
                scope.spawn(move || {
                    let run = |number: usize| oracle.run_uncertain(class(number + caller), &json!({}));
                    (0..10).take_while(|number| run(*number).is_ok()).count()
                });
            }
        });
        end(&mut executor);
        lose_power_and_verify(oracle, &disk);
    }
}

fn has_ended(executor: &mut Child) -> bool {
    executor.try_wait().expect("a child process").is_some()
}

#[test]
fn what_a_killed_executor_did_not_sync_is_made_durable_before_it_is_published() {
    let Some(library) = shim::library() else { return };
    for nth in 2..=size(5, 12) {
        let (oracle, disk) = world();
        let nth = nth.to_string();
        let mut killed = disk.environment(library);
        killed.push(("SHIM_KILL", &nth));
        let mut executor = oracle.spawn("", &killed);
        until("the executor serves or was killed", || {
            oracle.holds_executor_lock(&executor) || has_ended(&mut executor)
        });
        prevent_other_executors(&oracle);
        // One task after the other, so that no later task makes the last one durable.
        for number in 0..4 {
            let Ok(id) = oracle.run_uncertain(Class::Once, &json!({})) else { break };
            until("the task or the executor ended", || {
                oracle.world.result_file(&id)["status"] != "pending" || has_ended(&mut executor)
            });
            assert!(number < 4);
        }
        end(&mut executor);
        // The machine keeps running, and the next executor publishes results.
        allow_other_executors(&oracle);
        let mut next = oracle.executor(&disk.environment(library));
        oracle.until_final();
        // Give the reader time to see all files again.
        std::thread::park_timeout(std::time::Duration::from_millis(20));
        end(&mut next);
        lose_power_and_verify(oracle, &disk);
    }
}

#[test]
fn after_a_failed_sync_an_executor_publishes_nothing_more_and_the_next_one_takes_over() {
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
                        // The command starts another executor if this one ends.
                        oracle.accept(class(number + caller), &json!({}));
                    }
                });
            }
        });
        until("the executor ended", || has_ended(&mut executor) || nth.parse::<usize>().is_ok_and(|nth| nth > 12));
        end(&mut executor);
        oracle.verify();
    }
}

/// An entry of the journal must be on the disk before what follows from it, so the agent goes no further without.
#[test]
fn after_a_failed_sync_of_its_journal_an_agent_does_nothing_more() {
    let Some(library) = shim::library() else { return };
    let world = crate::world::World::new();
    // Nothing listens there: an agent that goes on fails because of its model.
    world.configure("[agent]\nmodel = \"m\"\n[models.m]\nprovider = \"openai\"\nurl = \"http://127.0.0.1:9\"\n");
    let sessions = world.state().join("sessions");
    for nth in ["1", "2"] {
        let mut command = world.command(&["agent", "What happened?"]);
        command.env("LD_PRELOAD", library).env("SHIM_FOLDER", &sessions).env("SHIM_EIO", nth);
        let ran = world.transcript(&command.output().expect("the program starts"));
        assert!(ran.exit != 0 && ran.stderr.contains("Input/output error"), "sync {nth}: {ran}");
    }
}
