//! Process groups: cancellation, limits, and that no descendant of a program outlives the invocation.

use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use ground::task::failure::SideEffect;
use protocol::code::Code;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{World, eventually, json_of};

/// Whether the process does not exist, or is a zombie.
fn is_gone(pid: &str) -> bool {
    match std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())) {
        Err(_) => true,
        Ok(stat) => stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with(['Z', 'X'])),
    }
}

fn shell(script: &str) -> Value {
    json!({"process": {"argv": ["sh", "-c", script]}})
}

/// Performs `script`, and cancels it as soon as the file `ready` exists. Returns the time from then to its end.
async fn cancelled_when_ready(world: &World, script: &str) -> (ground::task::failure::Failure, Duration) {
    let cancel = CancellationToken::new();
    let ready = world.home().join("ready");
    let canceller = async {
        eventually("the program is running", || ready.exists()).await;
        cancel.cancel();
        Instant::now()
    };
    let run = shell(script);
    let (outcome, since) = tokio::join!(world.perform_until(&run, json!({}), &cancel), canceller);
    (outcome.expect_err("the invocation was cancelled"), since.elapsed())
}

#[tokio::test]
async fn a_cancelled_group_that_ignores_sigterm_is_killed() {
    let world = World::new();
    let script = "trap '' TERM; echo begun; echo $$ > parent
        sh -c 'echo $$ > child; exec sleep 300' &
        while [ ! -s child ]; do sleep 0.01; done; mv child grandchild; touch ready; wait; sleep 300";
    let (failure, took) = cancelled_when_ready(&world, script).await;
    assert_eq!((failure.error.code, failure.side_effect), (Code::Cancelled, SideEffect::Possible));
    assert_eq!(failure.error.details["stdout"], "begun\n");
    assert_eq!(failure.error.details["signal"], "SIGKILL");
    assert!(took < Duration::from_secs(10), "{took:?}");
    for file in ["parent", "grandchild"] {
        let pid = std::fs::read_to_string(world.home().join(file)).expect("a process id");
        eventually("the process is gone", || is_gone(&pid)).await;
    }
}

#[tokio::test]
async fn a_program_that_handles_sigterm_can_print_before_it_exits() {
    let world = World::new();
    let script = "trap 'echo goodbye; exit 3' TERM; touch ready; while :; do sleep 0.01; done";
    let (failure, took) = cancelled_when_ready(&world, script).await;
    assert_eq!(failure.error.code, Code::Cancelled);
    assert_eq!(failure.error.details["stdout"], "goodbye\n");
    assert_eq!(failure.error.details["exit_code"], 3);
    assert!(took < Duration::from_secs(2), "took {took:?}, so it was killed");
}

#[tokio::test]
async fn an_invocation_cancelled_beforehand_starts_nothing() {
    let world = World::new();
    let cancel = CancellationToken::new();
    cancel.cancel();
    let failure = world.perform_until(&shell("touch started"), json!({}), &cancel).await.expect_err("cancelled");
    assert_eq!((failure.error.code, failure.side_effect), (Code::Cancelled, SideEffect::None));
    assert!(!world.home().join("started").exists());
}

#[tokio::test]
async fn a_descendant_that_keeps_the_pipe_open_causes_no_delay_and_is_killed() {
    let world = World::new();
    let started = Instant::now();
    let pid = world.data(&shell("sleep 300 & echo $!"), json!({})).await;
    assert!(started.elapsed() < Duration::from_secs(10));
    let pid = pid.as_str().expect("a process id").to_owned();
    eventually("the process is gone", || is_gone(&pid)).await;
}

#[tokio::test]
async fn a_descendant_in_another_session_causes_no_delay() {
    let world = World::new();
    let script = "setsid sh -c 'echo $$ > pid; mv pid escaped; exec sleep 300' & \
        while [ ! -e escaped ]; do sleep 0.01; done; echo done";
    let started = Instant::now();
    assert_eq!(world.data(&shell(script), json!({})).await, "done");
    assert!(started.elapsed() < Duration::from_secs(10));
    let pid = std::fs::read_to_string(world.home().join("escaped")).expect("a process id");
    let pid = nix::unistd::Pid::from_raw(pid.trim().parse().expect("a number"));
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).expect("the process should still run");
}

#[tokio::test]
async fn a_dropped_invocation_leaves_nothing_running() {
    let world = World::new();
    let run = shell("trap '' TERM; echo $$ > pid; touch ready; sleep 300");
    let ready = world.home().join("ready");
    tokio::select! {
        outcome = world.perform(&run, json!({})) => panic!("{outcome:?}"),
        () = eventually("the program is running", || ready.exists()) => {}
    }
    let pid = std::fs::read_to_string(world.home().join("pid")).expect("a process id");
    eventually("the process is gone", || is_gone(&pid)).await;
}

#[tokio::test]
async fn a_program_that_prints_too_much_is_stopped() {
    let world = World::new();
    for (script, stream) in [("echo $$ > pid; exec yes", "stdout"), ("echo $$ > pid; exec yes >&2", "stderr")] {
        let run = json!({"process": {"argv": ["sh", "-c", script], "max_bytes": 1000}});
        let failure = world.failure(&run, json!({})).await;
        assert_eq!((failure.error.code, failure.side_effect), (Code::ResponseTooLarge, SideEffect::Possible));
        assert!(
            failure.error.message.contains("1000 bytes") && failure.error.message.contains(stream),
            "{}",
            failure.error.message
        );
        assert_eq!(failure.error.details[stream].as_str().map(str::len), Some(1000));
        let pid = std::fs::read_to_string(world.home().join("pid")).expect("a process id");
        eventually("the process is gone", || is_gone(&pid)).await;
    }
}

#[tokio::test]
async fn a_megabyte_of_input_and_output_is_passed_on() {
    let world = World::new();
    let run = json!({"process": {"argv": ["sh", "-c", "tee /dev/stderr"], "stdin": "{{ text }}"}});
    let text = "0123456789abcde\n".repeat(1 << 16);
    let success = world.perform(&run, json!({"text": text})).await.expect("the program should succeed");
    assert_eq!(json_of(success).as_str(), Some(text.trim_end()));
}

#[tokio::test]
async fn a_program_may_ignore_its_standard_input() {
    let world = World::new();
    let run = json!({"process": {"argv": ["sh", "-c", "exec <&-; echo done"], "stdin": "{{ text }}"}});
    assert_eq!(world.data(&run, json!({"text": "x".repeat(1 << 20)})).await, "done");
}

#[tokio::test]
async fn a_program_inherits_no_descriptor_of_the_executor() {
    let world = World::new();
    let held = std::fs::File::open("/dev/null").expect("an open file");
    let run = json!({"process": {"argv": ["readlink", "/proc/self/fd/{{ descriptor }}"], "ok_statuses": [1]}});
    assert_eq!(world.data(&run, json!({"descriptor": held.as_raw_fd()})).await, "");
    let run = json!({"process": {"argv": ["readlink", "/proc/self/fd/0"]}});
    assert_eq!(world.data(&run, json!({})).await, "/dev/null", "standard input should be /dev/null");
}
