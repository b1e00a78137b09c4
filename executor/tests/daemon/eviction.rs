//! The mailbox is removed while its executor is running, as by a cleaner of `/tmp`.

use std::fs;

use jiff::Timestamp;
use protocol::mailbox::Mailbox;
use serde_json::{Value, json};

use crate::world::{World, eventually};

#[test]
fn an_executor_whose_mailbox_is_removed_ends() {
    let world = World::new("");
    let mut executor = world.serve();
    fs::remove_dir_all(world.mailbox.root()).expect("removed");
    assert_eq!(executor.end().ended, "Evicted");
    assert!(!world.mailbox.root().exists(), "the executor should not create a new mailbox");
}

#[test]
fn an_executor_whose_mailbox_was_moved_away_ends() {
    let world = World::new("");
    let mut executor = world.serve();
    fs::rename(world.mailbox.root(), world.home().join("elsewhere")).expect("moved");
    Mailbox::open(world.mailbox.root()).expect("a new mailbox");
    assert_eq!(executor.end().ended, "Evicted");
}

#[test]
fn a_successor_waits_for_the_evicted_executor_and_publishes_its_results() {
    let world = World::new("grace = \"2s\"");
    let mut evicted = world.serve();
    let (passes, stays) = (world.arrive("gate", "passes"), world.arrive("gate", "stays"));
    fs::remove_dir_all(world.mailbox.root()).expect("removed");
    evicted.wait_for_log("the executor is stopping");
    Mailbox::open(world.mailbox.root()).expect("a new mailbox");
    let successor = world.start();
    let new = world.post_run("say", json!({"text": "new"}));
    eventually("the successor owns the mailbox", || world.mailbox.identity());
    world.open("passes");
    assert_eq!(evicted.end().ended, "Evicted");

    let (done, lost, new) = (world.wait(passes), world.wait(stays), world.wait(new));
    assert_eq!([&done["status"], &lost["status"], &new["status"]], ["succeeded", "unknown", "succeeded"]);
    assert_eq!((world.arrivals("passes"), world.arrivals("stays")), (1, 1));
    let time = |text: &Value| text.as_str().expect("a text").parse::<Timestamp>().expect("a time");
    assert!(
        time(&new["created_at"]) >= time(&lost["finished_at"]),
        "two executors used the store at the same time: {new} was accepted before {lost} ended"
    );
    successor.stop();
}
