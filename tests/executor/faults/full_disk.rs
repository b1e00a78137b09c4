//! A full disk: new tasks are refused immediately, and the ends of older tasks are recorded when there is space.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;

use super::oracle::{Class, Oracle};
use crate::skip::skip;
use crate::world::{Transcript, until};

/// A small disk that is mounted at a folder until drop.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(folder: PathBuf) -> Option<Self> {
        fs::create_dir_all(&folder).expect("made");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=400k", "tmpfs"]).arg(&folder).output();
        let is_mounted = mounted.is_ok_and(|mounted| mounted.status.success());
        if !is_mounted {
            skip("a full disk: mounting is not allowed here");
        }
        is_mounted.then_some(Self(folder))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // A lazy unmount, since an executor may still be running.
        if let Err(error) = Command::new("umount").arg("-l").arg(&self.0).status() {
            drop(writeln!(std::io::stderr(), "failed to unmount the small disk: {error}"));
        }
    }
}

/// Runs tasks until one is refused, and returns its transcript.
fn until_refused(oracle: &Oracle) -> Transcript {
    for number in 0..1000 {
        let start = Instant::now();
        if let Err(ran) = oracle.run(Class::ALL[number % 3], &json!({})) {
            assert!(start.elapsed() < Duration::from_secs(20), "the refusal took {:?}", start.elapsed());
            return *ran;
        }
    }
    panic!("no task was refused");
}

#[test]
fn on_a_full_disk_new_tasks_are_refused_and_ends_are_recorded_when_there_is_space() {
    let oracle = Oracle::new();
    let Some(_disk) = SmallDisk::mount(oracle.world.state()) else { return };
    // The executor logs to stderr, which is a file on another disk.
    let mut executor = oracle.executor(&[]);
    let older = oracle.accept(Class::Once, &json!({"pause": "2"}));
    until("the task took effect", || !oracle.effects().is_empty());

    let filler = oracle.world.state().join("filler");
    let mut file = fs::File::create(&filler).expect("a file");
    while file.write_all(&[0; 512]).is_ok() {}
    let refused = until_refused(&oracle);
    assert_eq!((refused.exit, refused.error()["code"].as_str()), (5, Some("throttled")), "{refused}");
    assert!(refused.stderr.contains("full") && refused.stderr.contains("hint"), "{refused}");
    let waited = oracle.world.run(&["wait", &older, "--timeout=3s"]);
    assert_eq!(
        (waited.exit, &waited.json()["status"]),
        (6, &json!("pending")),
        "the end should not be recorded: {waited}"
    );
    let status = oracle.world.run(&["executor", "status"]);
    assert_eq!(status.exit, 0, "the executor should answer: {status}");

    drop(file);
    fs::remove_file(&filler).expect("removed");
    let ended = oracle.world.run(&["wait", &older, "--timeout=30s"]);
    assert_eq!((ended.exit, &ended.json()["status"]), (0, &json!("succeeded")), "{ended}");
    oracle.accept(Class::Once, &json!({}));
    let log = fs::read_to_string(oracle.stderr()).expect("the log of the executor");
    let warnings = log.matches("new tasks are refused until the record").count();
    assert!((1..=8).contains(&warnings), "expected few warnings, not one for each attempt: {warnings}");
    oracle.verify();
    executor.wait().expect("ended");
}

#[test]
fn an_executor_survives_the_limit_on_file_sizes() {
    let oracle = Oracle::new();
    let mut executor = oracle.executor_under("ulimit -f 160", &[]);
    let refused = until_refused(&oracle);
    assert_eq!((refused.exit, refused.error()["code"].as_str()), (5, Some("throttled")), "{refused}");
    assert!(executor.try_wait().expect("a child process").is_none(), "the executor should still run");
    executor.kill().expect("killed");
    executor.wait().expect("ended");
    oracle.verify();
}
