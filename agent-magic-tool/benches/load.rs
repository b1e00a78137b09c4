//! Many callers at once: how many tasks a second are accepted, each of them durably.

use std::path::Path;
use std::process::Command;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use protocol::caller::Caller;
use protocol::mailbox::Mailbox;
use protocol::mailbox::request::{Operation, Request, RunRequest};
use protocol::task::TaskId;
use serde_json::{Value, json};

use crate::table::{Table, Verdict};
use crate::world::{World, until};
use crate::{Effort, generated, measure};

const CALLERS: usize = 64;
/// How often each figure is taken, in turns; the median counts.
const ROUNDS: usize = 5;

/// Where `/tmp` is memory, so is the mailbox; the record of tasks is on the disk all the same.
const IN_MEMORY: &str = "/dev/shm";

pub(crate) fn measure(effort: Effort, table: &mut Table) {
    let world = generated::world(10);
    measure_at(&world.mailbox(), "", &world, effort, table);
    match tempfile::Builder::new().prefix("amt-").tempdir_in(IN_MEMORY) {
        Ok(folder) => measure_at(&folder.path().join("mailbox"), ", mailbox in memory", &world, effort, table),
        Err(error) => table.skip("load with a mailbox in memory", error),
    }
}

fn measure_at(place: &Path, note: &str, world: &World, effort: Effort, table: &mut Table) {
    let command = |arguments: &[&str]| {
        let mut command = world.command(arguments);
        command.env("AGENT_MAGIC_TOOL_DIR", place);
        command
    };
    measure::run(&mut command(&["executor", "start"]));
    let mailbox = Mailbox::open(place).expect("it opens");
    let (mut processes, mut bare, mut threads) = (Vec::new(), Vec::new(), Vec::new());
    let tasks = effort.tasks / ROUNDS;
    for _ in 0..ROUNDS {
        bare.push(rate(tasks, || measure::run(&mut measure::bare())));
        processes.push(rate(tasks, || measure::run(&mut command(&["run", "files_read", "path=note.txt"]))));
        resolve(&command);
        threads.push(rate(effort.tasks, || hand_over(world, &mailbox)));
        resolve(&command);
    }
    measure::run(&mut command(&["executor", "stop"]));
    let [processes, bare, threads] = [processes, bare, threads].map(median);
    let ratio = processes / bare;
    table.row(
        &format!("accepted durably, {CALLERS} processes at once{note}"),
        ">= 0.5 x",
        &format!("{processes:.0}/s"),
        &format!("bare processes {bare:.0}/s"),
        &format!("{ratio:.2}"),
        Verdict::of(ratio >= 0.5),
    );
    table.row(
        &format!("accepted durably, {CALLERS} threads at once{note}"),
        ">= 5000/s",
        &format!("{threads:.0}/s"),
        "",
        "",
        Verdict::of(threads >= 5000.0),
    );
}

/// Until nothing is open: what one measurement left to do is not the next one's load.
fn resolve(command: &impl Fn(&[&str]) -> Command) {
    until("nothing is open", || {
        let status: Value =
            serde_json::from_slice(&measure::output(&mut command(&["executor", "status"]))).expect("JSON");
        status["tasks"].as_object().is_some_and(serde_json::Map::is_empty)
    });
}

/// How often a second `work` is done by so many callers at once.
fn rate(times: usize, work: impl Fn() + Sync) -> f64 {
    let (next, start) = (AtomicUsize::new(0), Barrier::new(CALLERS + 1));
    let mut started = Instant::now();
    thread::scope(|scope| {
        for _ in 0..CALLERS {
            scope.spawn(|| {
                start.wait();
                while next.fetch_add(1, Ordering::Relaxed) < times {
                    work();
                }
            });
        }
        start.wait();
        started = Instant::now();
    });
    f64::from(u32::try_from(times).expect("not so many")) / started.elapsed().as_secs_f64()
}

/// What `run` does, without a process of its own.
fn hand_over(world: &World, mailbox: &Mailbox) {
    let Value::Object(input) = json!({"path": "note.txt"}) else { unreachable!("it is an object") };
    let run =
        RunRequest { tool: "files_read".to_owned(), input, words: serde_json::Map::new(), ..RunRequest::default() };
    let request = Request::new(Operation::run(run), Caller { folder: Some(world.folder()), ..Caller::default() });
    let id = TaskId::new();
    mailbox.post(id, &request).expect("posted");
    let result = mailbox.result_file(id);
    let deadline = Instant::now() + Duration::from_mins(1);
    while !result.exists() {
        assert!(Instant::now() < deadline, "it was never accepted");
        thread::park_timeout(Duration::from_millis(2));
    }
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_unstable_by(f64::total_cmp);
    rates[rates.len() / 2]
}
