//! The executor runs out of file descriptors, or has no file watches.

use std::fs;
use std::process::Command;

use serde_json::json;

use super::oracle::{Class, Oracle};
use super::size;
use crate::skip::skip;
use crate::world::{until, wait_for_end};

#[test]
fn with_few_descriptors_no_task_is_lost_and_the_executor_survives() {
    let oracle = Oracle::new();
    let mut executor = oracle.executor_under("ulimit -n 36", &[]);
    std::thread::scope(|scope| {
        for caller in 0..8 {
            let oracle = &oracle;
            scope.spawn(move || {
                for number in 0..size(4, 100) {
                    // A correct refusal is fine too.
                    if oracle.run(Class::ALL[(number + caller) % 3], &json!({"pause": "0.05"})).is_ok() {}
                }
            });
        }
    });
    let ended = executor.try_wait().expect("a child process");
    assert!(ended.is_none(), "the executor ended: {}", fs::read_to_string(oracle.stderr()).expect("its log"));
    oracle.until_final();
    executor.kill().expect("killed");
    wait_for_end(&mut executor);
    // The next executor removes the requests for which this one had no descriptors.
    assert_eq!(oracle.world.run(&["executor", "start"]).exit, 0);
    let taken = oracle.world.mailbox().join("taken");
    until("all taken requests are removed", || fs::read_dir(&taken).expect("a folder").next().is_none());
    let ends = oracle.verify();
    assert!(ends.values().sum::<usize>() > 0, "{ends:?}");
}

#[test]
fn without_file_watches_the_executor_and_wait_poll() {
    const NO_WATCHES: &str = "echo 0 > /proc/sys/user/max_inotify_instances || exit 99";
    let tried = Command::new("unshare").args(["-U", "-r", "sh", "-c", NO_WATCHES]).output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        skip("no file watches: user namespaces are not available here");
        return;
    }
    let oracle = Oracle::new();
    let enter = "[ -n \"$INSIDE\" ] || INSIDE=1 exec unshare -U -r sh -c";
    let before = format!("{enter} '{NO_WATCHES}; exec \"$0\" executor run' \"$0\"");
    let mut executor = oracle.executor_under(&before, &[]);
    for class in Class::ALL {
        let id = oracle.accept(class, &json!({"pause": "0.3"}));
        let script = format!("{NO_WATCHES}; exec \"$0\" wait {id} --timeout=30s");
        let mut wait = oracle.world.within("unshare", &["-U", "-r", "sh", "-c", &script, crate::world::PROGRAM]);
        let ran = oracle.world.transcript(&wait.output().expect("ran"));
        assert_eq!((ran.exit, &ran.json()["status"]), (0, &json!("succeeded")), "{ran}");
    }
    let log = fs::read_to_string(oracle.stderr()).expect("the log of the executor");
    assert!(log.contains("no file events"), "{log}");
    executor.kill().expect("killed");
    wait_for_end(&mut executor);
    oracle.verify();
}
