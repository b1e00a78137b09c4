//! The mailbox is removed while its executor lives, as cleaners of `/tmp` do.

use std::fs;

use jiff::Timestamp;
use protocol::mailbox::Mailbox;
use serde_json::{Value, json};

use crate::world::{World, eventually};

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
    let world = World::new("grace = \"2s\"");
    let mut evicted = world.serve();
    let (passes, stays) = (world.arrive("gate", "passes"), world.arrive("gate", "stays"));
    fs::remove_dir_all(world.mailbox.root()).expect("removed");
    evicted.wait_for_log("the executor ends");
    Mailbox::open(world.mailbox.root()).expect("made anew");
    let successor = world.start();
    let new = world.post_run("say", json!({"text": "new"}));
    eventually("the successor takes office", || world.mailbox.identity());
    world.open("passes");
    assert_eq!(evicted.end().ended, "Evicted");

    let (done, lost, new) = (world.wait(passes), world.wait(stays), world.wait(new));
    assert_eq!([&done["status"], &lost["status"], &new["status"]], ["succeeded", "unknown", "succeeded"]);
    assert_eq!((world.arrivals("passes"), world.arrivals("stays")), (1, 1));
    let time = |text: &Value| text.as_str().expect("a text").parse::<Timestamp>().expect("a time");
    assert!(
        time(&new["created_at"]) >= time(&lost["finished_at"]),
        "two executors never work on one record: {new} was accepted before {lost} ended"
    );
    successor.stop();
}
