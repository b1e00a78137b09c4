//! The worker as a process: what only the kernel can stop ends the process, and its end can be explained.
//!
//! This program is its own worker: with the worker's command as its argument, it serves. It has no test harness, since
//! that would write to standard output.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::process::{Command, ExitCode, ExitStatus, Stdio};

use script::{FailureKind, HostMessage, Json, Limits, Outcome, Settlement, Start, WorkerMessage, worker};

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some(worker::COMMAND) {
        let served = worker::serve_process(BufReader::new(io::stdin()), io::stdout());
        return if served.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    a_script_runs_to_its_end();
    code_of_the_engine_that_never_ends_is_killed();
    what_the_engine_can_stop_needs_no_kill();
    a_host_that_closes_the_pipe_ends_the_process();
    ExitCode::SUCCESS
}

fn a_script_runs_to_its_end() {
    let (messages, status) = run("const got = await echo({ a: 1 }); return [got, Date.now()]");
    assert!(status.success(), "{status}");
    let Some(WorkerMessage::Done(done)) = messages.last() else { panic!("{messages:?}") };
    assert_eq!(done.value.as_text(), r#"[{"b":2},1]"#);
}

fn code_of_the_engine_that_never_ends_is_killed() {
    // One step of each takes seconds, and the engine looks at the clock only between steps.
    let endless = "const s = 'a'.repeat(4e6); let n = 0; for (;;) n += s.indexOf('b', 1)";
    let (messages, status) = run(endless);
    assert!(!status.success(), "{messages:?}");
    let failed = worker::explain_end(status);
    assert_eq!(failed.kind, FailureKind::Limit);
    assert!(failed.message.contains("compute_ms"), "{failed:?}");
}

fn what_the_engine_can_stop_needs_no_kill() {
    for source in [
        "async function f(n) { return (await f(n + 1)) + 1 } return f(0)",
        "function f() { return f() + 1 } f()",
        "const all = []; for (;;) all.push('x'.repeat(1000) + all.length)",
        "let p = Promise.resolve(); for (;;) p = p.then(async () => {})",
        "return new RegExp('(?:a?){30}'.repeat(20) + 'b').test('a'.repeat(100))",
        "return JSON.parse('['.repeat(1e5)).length",
    ] {
        let (messages, status) = run(source);
        let failed = messages.last();
        assert!(
            matches!(failed, Some(WorkerMessage::Failed(failed)) if failed.kind == FailureKind::Limit),
            "{source}: {messages:?}"
        );
        assert!(status.success(), "{source}: {status}");
    }
}

fn a_host_that_closes_the_pipe_ends_the_process() {
    let mut child = spawn();
    drop(child.stdin.take());
    assert!(child.wait().expect("it ends").success());
}

/// Runs a script whose first call, if any, gets `{"b": 2}`.
fn run(source: &str) -> (Vec<WorkerMessage>, ExitStatus) {
    let start = Start {
        source: source.to_owned(),
        name: "script.js".to_owned(),
        input: Json::default(),
        tools: [("echo".to_owned(), "echo".to_owned())].into(),
        now: 0,
        seed: 1,
        limits: Limits { compute_ms: 500, ..Limits::default() },
    };
    let data = Json::from_text(r#"{"b":2}"#.to_owned()).expect("JSON");
    let settle = Settlement { seq: 1, now: 1, outcome: Outcome::Data(data) };
    let mut child = spawn();
    let mut stdin = child.stdin.take().expect("a pipe");
    for message in [HostMessage::Start(Box::new(start)), HostMessage::Settle(settle)] {
        let mut line = serde_json::to_vec(&message).expect("a message is JSON");
        line.push(b'\n');
        stdin.write_all(&line).expect("it reads");
    }
    let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
    let messages = stdout.lines().map(|line| serde_json::from_str(&line.expect("a line")).expect("a message"));
    let messages = messages.collect();
    drop(stdin);
    (messages, child.wait().expect("it ends"))
}

fn spawn() -> std::process::Child {
    Command::new(std::env::current_exe().expect("this program"))
        .arg(worker::COMMAND)
        .env_clear()
        .envs(worker::ENVIRONMENT)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("a process")
}
