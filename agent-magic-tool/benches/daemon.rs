//! Measures the executor: memory and processor time, idle and with many open tasks.

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

/// The target for starting with a large catalog.
const MAX_START: Duration = Duration::from_millis(150);
/// About how many different subtools are used before the memory is measured again.
const DISTINCT: usize = 100;
const IDLE: Duration = Duration::from_secs(5);

pub(crate) fn measure(effort: Effort, table: &mut Table) {
    let world = generated::world(10);
    world.run(&["executor", "start"]);
    let pid = world.executor().expect("the executor is running");
    memory(table, "executor, idle, 10 subtools", Some(40.0), pid);
    idle(table, pid);
    queue(&world, effort.open);
    memory(table, &format!("executor, {} tasks queued", effort.open), Some(150.0), pid);
    drop(world);

    let world = generated::world(effort.subtools);
    let started = Instant::now();
    world.run(&["executor", "start"]);
    let pid = world.executor().expect("the executor is running");
    let took = started.elapsed();
    let verdict = Verdict::of(took <= MAX_START);
    let took = format!("{:.0} ms", took.as_secs_f64() * 1000.0);
    table.row(&format!("executor, start, {} subtools", effort.subtools), "<= 150 ms", &took, "", "", verdict);
    memory(table, &format!("executor, idle, {} subtools", effort.subtools), Some(80.0), pid);
    for name in generated::names(effort.subtools).step_by(effort.subtools / DISTINCT) {
        let ran = world.run(&["run", &name, "parent=x", "--dry-run"]);
        assert_eq!(ran.exit, 0, "{ran}");
    }
    let what = format!("executor, {DISTINCT} of {} subtools used", effort.subtools);
    memory(table, &what, Some(80.0), pid);
}

fn memory(table: &mut Table, what: &str, max_mib: Option<f64>, pid: Pid) {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the executor is alive");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("`status` has a line `VmRSS`");
    let kilobytes: f64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    let found = kilobytes / 1024.0;
    let verdict = max_mib.map_or(Verdict::NoTarget, |max| Verdict::of(found <= max));
    let target = max_mib.map_or_else(String::new, |max| format!("<= {max} MiB"));
    table.row(what, &target, &format!("{found:.1} MiB"), "", "", verdict);
}

/// Measures the processor time over some seconds without any task.
fn idle(table: &mut Table, pid: Pid) {
    // Lets the work of the start finish first.
    sleep(Duration::from_secs(1));
    let before = ticks(pid);
    sleep(IDLE);
    let used = ticks(pid) - before;
    let text = format!("{} ms in {} s", used * 10, IDLE.as_secs());
    table.row("executor, idle, processor time", "0 %", &text, "", "", Verdict::of(used == 0));
}

#[expect(clippy::disallowed_methods, reason = "idle time is measured by sleeping")]
fn sleep(duration: Duration) {
    thread::sleep(duration);
}

/// The processor time that the process has used, in hundredths of a second.
fn ticks(pid: Pid) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the executor is alive");
    let fields: Vec<_> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    [fields[11], fields[12]].iter().map(|field| field.parse::<u64>().expect("a number")).sum()
}

/// Opens this many tasks, of which only one runs.
fn queue(world: &World, tasks: usize) {
    let mailbox = Mailbox::open(&world.mailbox()).expect("a mailbox");
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
