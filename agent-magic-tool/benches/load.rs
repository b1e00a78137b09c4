//! Measures throughput with many concurrent callers: how many tasks per second are accepted durably.

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
use crate::{Effort, agent, disk, generated, measure};

const CALLERS: usize = 64;
/// How often each rate is measured, in turns; the median is reported.
const ROUNDS: usize = 5;

/// A file system in memory. Where `/tmp` is one, so is the mailbox, while the store stays on disk.
const MEMORY_FOLDER: &str = "/dev/shm";

pub(crate) fn measure(effort: Effort, table: &mut Table) {
    for place in disk::places("load", table) {
        let world = generated::world_below(&place.folder, 10);
        measure_at(&world.mailbox(), place.note, &world, effort, table);
    }
    let world = generated::world(10);
    match tempfile::Builder::new().prefix("amt-").tempdir_in(MEMORY_FOLDER) {
        Ok(folder) => measure_at(&folder.path().join("mailbox"), ", mailbox in memory", &world, effort, table),
        Err(error) => table.skip("load with a mailbox in memory", error),
    }
}

fn measure_at(mailbox_folder: &Path, note: &str, world: &World, effort: Effort, table: &mut Table) {
    let on = |mut command: Command| {
        command.env("AGENT_MAGIC_TOOL_DIR", mailbox_folder);
        command
    };
    let command = |arguments: &[&str]| on(world.command(arguments));
    measure::run(&mut command(&["executor", "start"]));
    let mailbox = Mailbox::open(mailbox_folder).expect("a mailbox");
    let (mut processes, mut bare, mut threads) = (Vec::new(), Vec::new(), Vec::new());
    let tasks = effort.tasks / ROUNDS;
    for _ in 0..ROUNDS {
        let run = || on(agent::command(world, &["run", "files_read", "path=note.txt"]));
        bare.push(rate(CALLERS, tasks, || measure::run(&mut measure::bare())));
        processes.push(rate(CALLERS, tasks, || measure::run(&mut run())));
        wait_until_idle(&command);
        threads.push(rate(CALLERS, effort.tasks, || hand_over(world, &mailbox)));
        wait_until_idle(&command);
    }
    measure::run(&mut command(&["executor", "stop"]));
    let [processes, bare, threads] = [processes, bare, threads].map(median);
    let least_threads = if mailbox_folder.starts_with(MEMORY_FOLDER) { 8000.0 } else { 5000.0 };
    let ratio = processes / bare;
    table.row(
        &format!("accepted durably, {CALLERS} processes at once{note}"),
        ">= 0.6 x",
        &format!("{processes:.0}/s"),
        &format!("bare processes {bare:.0}/s"),
        &format!("{ratio:.2}"),
        Verdict::of(ratio >= 0.6),
    );
    table.row(
        &format!("accepted durably, {CALLERS} threads at once{note}"),
        &format!(">= {least_threads}/s"),
        &format!("{threads:.0}/s"),
        "",
        "",
        Verdict::of(threads >= least_threads),
    );
}

/// Waits until no task is open, so that one measurement does not affect the next.
fn wait_until_idle(command: &impl Fn(&[&str]) -> Command) {
    until("no task is open", || {
        let status: Value =
            serde_json::from_slice(&measure::output(&mut command(&["executor", "status"]))).expect("JSON");
        status["tasks"].as_object().is_some_and(serde_json::Map::is_empty)
    });
}

/// Measures how often per second this many threads do `work` together.
pub(crate) fn rate(callers: usize, times: usize, work: impl Fn() + Sync) -> f64 {
    let (next, start) = (AtomicUsize::new(0), Barrier::new(callers + 1));
    let mut started = Instant::now();
    thread::scope(|scope| {
        for _ in 0..callers {
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
    f64::from(u32::try_from(times).expect("a small number")) / started.elapsed().as_secs_f64()
}

/// Delegates a task as `run` does, but without starting a process.
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
        assert!(Instant::now() < deadline, "timed out waiting until the task is accepted");
        thread::park_timeout(Duration::from_millis(2));
    }
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_unstable_by(f64::total_cmp);
    rates[rates.len() / 2]
}
