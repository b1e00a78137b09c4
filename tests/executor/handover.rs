//! The hand-over of a task to the executor: an immediate placeholder, one executor under any race, and no need for
//! the caller to stay.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Stdio;
use std::thread;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::closed::may_look_inside;
use crate::world::{Lines, World, is_alive, until, wait_for_end};

fn define_slow(world: &World, seconds: &str) {
    world.define("slow.json", &json!({"slow": {"description": "Takes its time and then says so.", "input": {},
        "annotations": {"readOnlyHint": true}, "run": {"process": {"argv": ["sh", "-c", format!("sleep {seconds}; echo done")]}}}}));
}

#[test]
fn fifty_concurrent_callers_start_one_executor_and_get_fifty_results() {
    let world = World::new();
    let ids: Vec<String> = thread::scope(|scope| {
        let callers: Vec<_> = (0..50).map(|_| scope.spawn(|| world.start("files_list", &json!({})))).collect();
        callers.into_iter().map(|caller| caller.join().expect("a caller")).collect()
    });
    let executors: std::collections::BTreeSet<_> = (0..5).map(|_| world.executor().expect("an executor")).collect();
    assert_eq!(executors.len(), 1);
    for id in ids {
        assert_eq!(world.run(&["wait", &id]).json()["status"], "succeeded");
    }
    let log = std::fs::read_to_string(world.log()).expect("a log");
    assert_eq!(log.matches("\"executor started\"").count(), 1, "{log}");
}

#[test]
fn a_result_becomes_final_after_the_callers_process_group_is_killed() {
    let world = World::new();
    define_slow(&world, "2");
    // As a harness does it: its own process group, which is killed as soon as `run` returns.
    let script = format!("'{}' run slow; sleep 600", crate::world::PROGRAM);
    let mut command = world.within("sh", &["-c", &script]);
    let mut harness = command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a shell");
    let mut open =
        [Lines::of(harness.stdout.take().expect("a pipe")), Lines::of(harness.stderr.take().expect("a pipe"))];
    let line = open[0].next();
    let group = Pid::from_raw(i32::try_from(harness.id()).expect("a process id"));
    killpg(group, Signal::SIGKILL).expect("killed");
    // The executor must not hold the pipes open: a harness may wait until they close.
    open.iter_mut().for_each(Lines::end);
    wait_for_end(&mut harness);
    let receipt: Value = serde_json::from_str(&line).expect("a receipt");
    let id = receipt["id"].as_str().expect("an id");
    assert_eq!(world.result_file(id)["status"], "pending");
    let ended = world.run(&["wait", id]).json();
    assert_eq!((&ended["status"], &ended["data"]), (&json!("succeeded"), &json!("done")), "{ended}");
}

#[test]
fn the_executor_inherits_no_descriptor_and_leads_its_own_session() {
    let world = World::new();
    // A descriptor that a careless harness leaks.
    let script = format!("exec 9</dev/null; '{}' executor start", crate::world::PROGRAM);
    let ran = world.transcript(&world.within("bash", &["-c", &script]).output().expect("bash"));
    assert_eq!(ran.exit, 0, "{ran}");
    let pid = world.executor().expect("an executor");
    let proc = |what: &str| format!("/proc/{pid}/{what}");
    let stat = std::fs::read_to_string(proc("stat")).expect("a state");
    let session = stat.rsplit(')').next().expect("fields").split_whitespace().nth(3).expect("a session");
    assert_eq!(session, pid.to_string(), "the executor should lead its own session");
    if !may_look_inside() {
        return;
    }
    assert_eq!(std::fs::read_link(proc("cwd")).expect("a folder"), std::path::Path::new("/"));
    for entry in std::fs::read_dir(proc("fd")).expect("descriptors").flatten() {
        let target = std::fs::read_link(entry.path()).unwrap_or_default().display().to_string();
        let number: i32 = entry.file_name().to_str().and_then(|name| name.parse().ok()).expect("a number");
        if number <= 2 {
            assert_eq!(target, "/dev/null", "descriptor {number}");
        }
        assert!(!target.starts_with("pipe:"), "descriptor {number} is {target}");
        assert!(number <= 2 || target != "/dev/null", "descriptor {number} is {target}");
    }
}

#[test]
fn an_idle_executor_stops_and_the_next_task_starts_another() {
    let world = World::new();
    world.configure("[executor]\nidle = \"200ms\"\n");
    let first = {
        let ran = world.run(&["executor", "start"]);
        assert_eq!(ran.exit, 0, "{ran}");
        let pid = ran.json()["pid"].as_i64().expect("a process id");
        Pid::from_raw(i32::try_from(pid).expect("a process id"))
    };
    until("the idle executor has stopped", || !is_alive(first));
    assert_eq!(world.run(&["executor", "status"]).exit, 7);
    assert_eq!(world.result_of("files_list", &json!({}))["status"], "succeeded");
}

#[test]
fn a_stop_lets_running_tasks_finish_and_loses_none() {
    let world = World::new();
    define_slow(&world, "0.5");
    let running: Vec<_> = (0..4).map(|_| world.start("slow", &json!({}))).collect();
    let ran = world.run(&["executor", "stop"]);
    assert_eq!((ran.exit, &ran.json()["stopped"]), (0, &json!(true)), "{ran}");
    for id in &running {
        assert_eq!(world.run(&["wait", id]).json()["status"], "succeeded");
    }
}

#[test]
fn a_task_that_outlasts_the_grace_period_is_interrupted_and_runs_again_later() {
    let world = World::new();
    world.configure("[executor]\ngrace = \"100ms\"\n");
    let flag = world.folder().join("flag");
    world.define("slow.json", &json!({"slow": {"description": "Sleeps at its first attempt only.", "input": {},
        "annotations": {"readOnlyHint": true},
        "run": {"process": {"argv": ["sh", "-c", format!("test -e {0} && exit 0; touch {0}; sleep 600", flag.display())]}}}}));
    let id = world.start("slow", &json!({}));
    until("the task runs", || flag.exists());
    assert_eq!(world.run(&["executor", "stop"]).exit, 0);
    assert_eq!(world.result_file(&id)["status"], "pending");
    world.run(&["wait", &id]);
    let ended = world.result_file(&id);
    assert_eq!((&ended["status"], &ended["_meta"]["attempts"]), (&json!("succeeded"), &json!(2)), "{ended}");
}

#[test]
fn a_mailbox_works_under_any_umask() {
    for umask in ["000", "077", "022"] {
        let world = World::new();
        let script = format!("umask {umask}; exec '{}' run files_list --wait", crate::world::PROGRAM);
        let ran = world.transcript(&world.within("sh", &["-c", &script]).output().expect("a shell"));
        assert_eq!((ran.exit, &ran.json()["status"]), (0, &json!("succeeded")), "umask {umask}: {ran}");
        for folder in ["", "inbox", "results", "answers", "taken"] {
            let mode = std::fs::metadata(world.mailbox().join(folder)).expect("a folder").permissions().mode();
            assert_eq!(mode & 0o777, 0o700, "umask {umask}: `{folder}`");
        }
        let state = std::fs::metadata(world.state()).expect("a folder").permissions().mode();
        assert_eq!(state & 0o777, 0o700, "umask {umask}");
    }
}

#[test]
fn an_executor_that_fails_to_start_reports_the_reason_and_leaves_nothing() {
    let world = World::new();
    world.configure("[executor]\nidle = \"never\"\n");
    let ran = world.run(&["run", "files_list"]);
    assert_eq!((ran.exit, ran.error()["code"].as_str()), (2, Some("bad-config")), "{ran}");
    assert!(ran.stderr.contains("config.toml:2:1") && ran.stderr.contains("never"), "{ran}");
    assert!(std::fs::read_dir(world.mailbox().join("inbox")).expect("a folder").next().is_none());
}

#[test]
fn a_replaced_program_takes_over() {
    let world = World::new();
    let program = world.folder().join("agent-magic-tool");
    std::fs::copy(crate::world::PROGRAM, &program).expect("copied");
    let call = |arguments: &[&str]| world.transcript(&world.within(&program, arguments).output().expect("started"));
    let is_executor_running = || {
        let pid = call(&["executor", "status"]).json()["pid"].as_i64()?;
        std::fs::read_link(format!("/proc/{pid}/exe")).ok()
    };
    assert_eq!(call(&["executor", "start"]).exit, 0);
    if !may_look_inside() {
        return;
    }
    assert_eq!(is_executor_running().as_ref(), Some(&program));
    // Replace the file as a package manager does.
    let next = world.folder().join("next");
    std::fs::copy(crate::world::PROGRAM, &next).expect("copied");
    std::fs::rename(&next, &program).expect("replaced");
    assert_eq!(call(&["run", "files_list", "--wait"]).json()["status"], "succeeded");
    // The link to a removed program file ends with ` (deleted)`.
    until("the new program serves", || is_executor_running().as_ref() == Some(&program));
    assert_eq!(call(&["run", "files_list", "--wait"]).json()["status"], "succeeded");
}
