//! The executor itself: memory and processor time, idle and with much to do.

use std::time::{Duration, Instant};
use std::{fs, thread};

use nix::unistd::Pid;
use protocol::caller::Caller;
use protocol::mailbox::Mailbox;
use protocol::mailbox::request::{Operation, Request, RunRequest};
use protocol::task::TaskId;

use crate::table::{Table, Verdict};
use crate::world::{World, until};
use crate::{Effort, generated};

const IDLE: Duration = Duration::from_secs(5);

pub(crate) fn measure(effort: Effort, table: &mut Table) {
    let world = generated::world(10);
    world.run(&["executor", "start"]);
    let pid = world.executor().expect("it runs");
    memory(table, "executor, idle, 10 subtools", Some(40.0), pid);
    idle(table, pid);
    queue(&world, effort.open);
    memory(table, &format!("executor, {} tasks queued", effort.open), Some(150.0), pid);
    drop(world);

    let world = generated::world(effort.subtools);
    let started = Instant::now();
    world.run(&["executor", "start"]);
    let pid = world.executor().expect("it runs");
    let took = format!("{:.0} ms", started.elapsed().as_secs_f64() * 1000.0);
    table.row(&format!("executor, start, {} subtools", effort.subtools), "", &took, "", "", Verdict::Told);
    memory(table, &format!("executor, idle, {} subtools", effort.subtools), None, pid);
}

fn memory(table: &mut Table, what: &str, most: Option<f64>, pid: Pid) {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the executor lives");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has memory");
    let kilobytes: f64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    let found = kilobytes / 1024.0;
    let verdict = most.map_or(Verdict::Told, |most| Verdict::of(found <= most));
    let bar = most.map_or_else(String::new, |most| format!("<= {most} MiB"));
    table.row(what, &bar, &format!("{found:.1} MiB"), "", "", verdict);
}

/// Processor time over some seconds without anything to do.
fn idle(table: &mut Table, pid: Pid) {
    // What was begun at the start comes to its end first.
    rest(Duration::from_secs(1));
    let before = ticks(pid);
    rest(IDLE);
    let used = ticks(pid) - before;
    let text = format!("{} ms in {} s", used * 10, IDLE.as_secs());
    table.row("executor, idle, processor time", "0 %", &text, "", "", Verdict::of(used == 0));
}

#[expect(clippy::disallowed_methods, reason = "idleness is measured by waiting")]
fn rest(duration: Duration) {
    thread::sleep(duration);
}

/// Hundredths of a second that the process has used.
fn ticks(pid: Pid) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the executor lives");
    let fields: Vec<_> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    [fields[11], fields[12]].iter().map(|field| field.parse::<u64>().expect("a number")).sum()
}

/// Has so many tasks open, of which one runs.
fn queue(world: &World, tasks: usize) {
    let mailbox = Mailbox::open(&world.mailbox()).expect("it opens");
    for _ in 0..tasks {
        let run = RunRequest {
            tool: "nap".to_owned(),
            input: serde_json::Map::new(),
            words: serde_json::Map::new(),
            ..RunRequest::default()
        };
        let request = Request::new(Operation::run(run), Caller { folder: Some(world.folder()), ..Caller::default() });
        mailbox.post(TaskId::new(), &request).expect("posted");
    }
    until("all are queued", || {
        let status = world.run(&["executor", "status"]).json();
        status["tasks"]["queued"] == tasks - 1
    });
}
