//! The mailbox is removed while its executor lives, as cleaners of `/tmp` do.

use std::fs;

use executor::mailbox::Mailbox;
use serde_json::json;

use crate::world::World;

#[test]
fn an_executor_whose_mailbox_is_gone_ends() {
    let world = World::new("");
    let mut executor = world.serve();
    fs::remove_dir_all(world.mailbox.root()).expect("removed");
    assert_eq!(executor.end().ended, "Evicted");
    assert!(!world.mailbox.root().exists(), "it makes no new one");
}

#[test]
fn an_executor_whose_mailbox_was_moved_away_ends() {
    let world = World::new("");
    let mut executor = world.serve();
    fs::rename(world.mailbox.root(), world.home().join("elsewhere")).expect("moved");
    Mailbox::open(world.mailbox.root()).expect("made anew");
    assert_eq!(executor.end().ended, "Evicted");
}

#[test]
fn its_successor_waits_until_nothing_of_it_runs_and_then_publishes_what_it_did() {
    let world = World::new("grace = \"40s\"");
    let mut evicted = world.serve();
    let running = world.arrive("gate", "gate");
    fs::remove_dir_all(world.mailbox.root()).expect("removed");
    evicted.wait_for_log("the executor ends");
    Mailbox::open(world.mailbox.root()).expect("made anew");
    let successor = world.start();
    let waiting = world.post_run("say", json!({"text": "new"}));
    crate::world::eventually("the successor takes office", || world.mailbox.identity());
    assert!(world.result(waiting).is_none() && !evicted.has_ended(), "two executors never work on one record");
    world.open("gate");
    assert_eq!(world.wait(waiting)["data"], "new");
    assert!(evicted.has_ended() || evicted.end().ended == "Evicted", "it answered when the other was gone");
    assert_eq!(world.wait(running)["status"], "succeeded");
    assert_eq!(world.arrivals("gate"), 1);
    successor.stop();
}
