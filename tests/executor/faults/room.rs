//! No room for the record: new tasks are refused at once, older ones are recorded when there is room.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;

use super::oracle::{Class, Oracle};
use crate::world::{Transcript, until};

/// A small disk of its own at a folder, for as long as this lives.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn at(folder: PathBuf) -> Option<Self> {
        fs::create_dir_all(&folder).expect("made");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=400k", "tmpfs"]).arg(&folder).output();
        let is_mounted = mounted.is_ok_and(|mounted| mounted.status.success());
        if !is_mounted {
            super::skip("a full disk: nothing can be mounted here");
        }
        is_mounted.then_some(Self(folder))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: an executor may still be there.
        if let Err(error) = Command::new("umount").arg("-l").arg(&self.0).status() {
            super::skip(&format!("the small disk stays: {error}"));
        }
    }
}

/// Runs tasks until one is refused; how it was.
fn until_refused(oracle: &Oracle) -> Transcript {
    for number in 0..1000 {
        let began = Instant::now();
        if let Err(ran) = oracle.ask(Class::ALL[number % 3], &json!({})) {
            assert!(began.elapsed() < Duration::from_secs(20), "a refusal is given at once");
            return *ran;
        }
    }
    panic!("there was room for everything");
}

#[test]
fn a_full_disk_refuses_new_tasks_at_once_and_the_ends_of_older_ones_wait_for_room() {
    let oracle = Oracle::new();
    let Some(_disk) = SmallDisk::at(oracle.world.state()) else { return };
    // Its log is its standard error, which lies on another disk.
    let mut executor = oracle.executor(&[]);
    let older = oracle.accept(Class::Once, &json!({"pause": "2"}));
    until("it took effect", || !oracle.effects().is_empty());

    let filler = oracle.world.state().join("filler");
    let mut file = fs::File::create(&filler).expect("a file");
    while file.write_all(&[0; 512]).is_ok() {}
    let refused = until_refused(&oracle);
    assert_eq!((refused.exit, refused.error()["code"].as_str()), (5, Some("throttled")), "{refused}");
    assert!(refused.stderr.contains("full") && refused.stderr.contains("hint"), "{refused}");
    let waited = oracle.world.run(&["wait", &older, "--timeout=3s"]);
    assert_eq!((waited.exit, &waited.json()["status"]), (6, &json!("pending")), "its end is not recorded: {waited}");
    let status = oracle.world.run(&["executor", "status"]);
    assert_eq!(status.exit, 0, "it lives, and answers: {status}");

    drop(file);
    fs::remove_file(&filler).expect("removed");
    let ended = oracle.world.run(&["wait", &older, "--timeout=30s"]);
    assert_eq!((ended.exit, &ended.json()["status"]), (0, &json!("succeeded")), "{ended}");
    oracle.accept(Class::Once, &json!({}));
    let log = fs::read_to_string(oracle.stderr()).expect("what it says");
    let told = log.matches("no room for the record").count();
    assert!((1..=8).contains(&told), "it is told, and not each time that it is tried: {told}");
    oracle.judge();
    executor.wait().expect("it ended");
}

#[test]
fn a_limit_on_the_size_of_files_is_no_end_of_the_executor() {
    let oracle = Oracle::new();
    let mut executor = oracle.executor_under("ulimit -f 160", &[]);
    let refused = until_refused(&oracle);
    assert_eq!((refused.exit, refused.error()["code"].as_str()), (5, Some("throttled")), "{refused}");
    assert!(executor.try_wait().expect("asked").is_none(), "it lives");
    executor.kill().expect("killed");
    executor.wait().expect("it ended");
    oracle.judge();
}
