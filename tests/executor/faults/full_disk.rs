//! A full disk: new tasks are refused immediately, and the ends of older tasks are recorded when there is space.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::oracle::{Class, Oracle};
use crate::skip::skip;
use crate::world::{Transcript, until, wait_for_end};

/// A small disk that is mounted at a folder until drop.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(folder: PathBuf) -> Option<Self> {
        fs::create_dir_all(&folder).expect("made");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=400k,mode=0700", "tmpfs"]).arg(&folder).output();
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
    assert!(waited.stderr.contains("the disk with the record of tasks is full"), "the caller is told: {waited}");
    let full = json!("the disk with the record of tasks is full");
    let status = oracle.world.run(&["executor", "status"]);
    assert_eq!((status.exit, &status.json()["disk"]["message"]), (0, &full), "the executor should answer: {status}");
    assert!(status.stderr.contains("free space"), "{status}");
    let disks = check_of_disks(&oracle);
    assert_eq!(disks["ok"], false, "{disks}");
    assert!(
        disks["message"]
            .as_str()
            .is_some_and(|text| text.starts_with("the disk with the record of tasks is full since")),
        "{disks}"
    );

    drop(file);
    fs::remove_file(&filler).expect("removed");
    let ended = oracle.world.run(&["wait", &older, "--timeout=30s"]);
    assert_eq!((ended.exit, &ended.json()["status"]), (0, &json!("succeeded")), "{ended}");
    oracle.accept(Class::Once, &json!({}));
    let status = oracle.world.run(&["executor", "status"]).json();
    assert_eq!((status.get("disk"), &check_of_disks(&oracle)["ok"]), (None, &json!(true)), "it is over: {status}");
    let log = fs::read_to_string(oracle.stderr()).expect("the log of the executor");
    let warnings = log.matches("new tasks are refused until the record").count();
    assert!((1..=8).contains(&warnings), "expected few warnings, not one for each attempt: {warnings}");
    oracle.verify();
    wait_for_end(&mut executor);
}

/// What `doctor` says of the disks.
fn check_of_disks(oracle: &Oracle) -> Value {
    let report = oracle.world.run(&["doctor"]).json();
    let checks = report["checks"].as_array().expect("checks").iter();
    checks.clone().find(|check| check["name"] == "disks").unwrap_or_else(|| panic!("{report:#}")).clone()
}

#[test]
fn a_full_mailbox_is_said_by_everything_that_can_still_speak() {
    let oracle = Oracle::new();
    let Some(_disk) = SmallDisk::mount(oracle.world.mailbox()) else { return };
    let mut executor = oracle.executor(&[]);
    let id = oracle.accept(Class::Once, &json!({"pause": "2"}));
    until("the task took effect", || !oracle.effects().is_empty());
    let filler = oracle.world.mailbox().join("filler");
    let mut file = fs::File::create(&filler).expect("a file");
    while file.write_all(&[0; 512]).is_ok() {}
    let waited = oracle.world.run(&["wait", &id, "--timeout=3s"]);
    let read = oracle.world.run(&["read", &id]);
    for ran in [&waited, &read] {
        assert_eq!((ran.exit, &ran.json()["status"]), (6, &json!("pending")), "{ran}");
        assert!(ran.stderr.contains("the disk with the mailbox"), "{ran}");
    }
    let disks = check_of_disks(&oracle);
    assert!(disks["message"].as_str().is_some_and(|text| text.starts_with("the disk with the mailbox")), "{disks}");
    let status = oracle.world.run(&["executor", "status"]);
    assert!(status.stderr.contains("No space left on device"), "{status}");
    drop(file);
    fs::remove_file(&filler).expect("removed");
    let ended = oracle.world.run(&["wait", &id, "--timeout=30s"]);
    assert_eq!((ended.exit, &ended.json()["status"]), (0, &json!("succeeded")), "{ended}");
    executor.kill().expect("it runs");
    wait_for_end(&mut executor);
}

#[test]
fn an_executor_survives_the_limit_on_file_sizes() {
    let oracle = Oracle::new();
    let mut executor = oracle.executor_under("ulimit -f 160", &[]);
    let refused = until_refused(&oracle);
    assert_eq!((refused.exit, refused.error()["code"].as_str()), (5, Some("throttled")), "{refused}");
    assert!(executor.try_wait().expect("a child process").is_none(), "the executor should still run");
    let status = oracle.world.run(&["executor", "status"]);
    assert_eq!(status.json()["disk"]["message"], "the disk with the record of tasks is full", "{status}");
    assert_eq!(check_of_disks(&oracle)["ok"], false);
    executor.kill().expect("killed");
    wait_for_end(&mut executor);
    oracle.verify();
}
