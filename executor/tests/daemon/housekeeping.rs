//! What is too old goes.

use std::fs::{self, File};
use std::time::{Duration, SystemTime};

use executor::task::TaskId;
use serde_json::json;

use crate::world::{World, eventually};

#[test]
fn what_ended_long_ago_is_forgotten_with_all_its_files() {
    let world = World::new("inline_bytes = 10");
    let executor = world.serve();
    let id = world.post_run("say", json!({"text": "more than ten bytes"}));
    world.wait(id);
    assert_eq!(world.files().len(), 2);
    executor.stop();
    world.configure("keep = \"1ms\"");
    let _executor = world.serve();
    eventually("its files are removed", || world.files().is_empty().then_some(()));
}

#[test]
fn what_nobody_collects_is_swept_and_foreign_files_stay() {
    let world = World::new("");
    let root = world.mailbox.root();
    let old = |name: String| {
        let file = File::create(root.join(&name)).expect("created");
        file.set_modified(SystemTime::now() - Duration::from_mins(11)).expect("set");
        name
    };
    let swept = [
        old(format!("answers/{}.json", TaskId::new())),
        old(format!("inbox/.withdrawn-{}", TaskId::new())),
        old("results/.result-x.json.y".to_owned()),
    ];
    let foreign = old("inbox/notes.txt".to_owned());
    let orphan = format!("results/result-{}.json", TaskId::new());
    let file = File::create(root.join(&orphan)).expect("created");
    file.set_modified(SystemTime::now() - Duration::from_hours(1_000)).expect("set");
    let _executor = world.serve();
    eventually("the mailbox is swept", || (world.files() == [foreign.clone()]).then_some(()));
    assert!(swept.iter().all(|name| !fs::exists(root.join(name)).expect("readable")));
}
