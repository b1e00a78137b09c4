//! Want of descriptors and of file watches.

use std::fs;
use std::process::Command;

use serde_json::json;

use super::oracle::{Class, Oracle};
use super::size;
use crate::world::until;

#[test]
fn with_hardly_any_descriptors_nothing_is_lost_and_the_executor_lives() {
    let oracle = Oracle::new();
    let mut executor = oracle.executor_under("ulimit -n 24", &[]);
    std::thread::scope(|scope| {
        for caller in 0..8 {
            let oracle = &oracle;
            scope.spawn(move || {
                for number in 0..size(4, 100) {
                    // Refused is as good as accepted, if it is true.
                    if oracle.ask(Class::ALL[(number + caller) % 3], &json!({"pause": "0.05"})).is_ok() {}
                }
            });
        }
    });
    assert!(executor.try_wait().expect("asked").is_none(), "it lives");
    oracle.until_final();
    executor.kill().expect("killed");
    executor.wait().expect("it ended");
    // What it had no descriptors to put away, its successor does.
    assert_eq!(oracle.world.run(&["executor", "start"]).exit, 0);
    let taken = oracle.world.mailbox().join("taken");
    until("everything is put away", || fs::read_dir(&taken).expect("a folder").next().is_none());
    let ends = oracle.judge();
    assert!(ends.values().sum::<usize>() > 0, "{ends:?}");
}

#[test]
fn without_file_watches_the_executor_and_wait_look_by_themselves() {
    const NO_WATCHES: &str = "echo 0 > /proc/sys/user/max_inotify_instances || exit 99";
    let can = Command::new("unshare").args(["-U", "-r", "sh", "-c", NO_WATCHES]).output();
    if !can.is_ok_and(|can| can.status.success()) {
        super::skip("no file watches: no user namespace can be had here");
        return;
    }
    let oracle = Oracle::new();
    let again = "[ -n \"$INSIDE\" ] || INSIDE=1 exec unshare -U -r sh -c";
    let before = format!("{again} '{NO_WATCHES}; exec \"$0\" executor run' \"$0\"");
    let mut executor = oracle.executor_under(&before, &[]);
    for class in Class::ALL {
        let id = oracle.accept(class, &json!({"pause": "0.3"}));
        let script = format!("{NO_WATCHES}; exec \"$0\" wait {id} --timeout=30s");
        let mut wait = oracle.world.within("unshare", &["-U", "-r", "sh", "-c", &script, crate::world::PROGRAM]);
        let ran = oracle.world.transcript(&wait.output().expect("it runs"));
        assert_eq!((ran.exit, &ran.json()["status"]), (0, &json!("succeeded")), "{ran}");
    }
    let log = fs::read_to_string(oracle.stderr()).expect("what it says");
    assert!(log.contains("no file events"), "{log}");
    executor.kill().expect("killed");
    executor.wait().expect("it ended");
    oracle.judge();
}
