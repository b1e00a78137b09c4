//! The soak test: runs mixed tasks for a long time and checks that the executor does not grow.
//!
//! `cargo build --release && cargo run --release --example soak -- --minutes 30 docs/soak.svg`
//!
//! Starts an executor of its own, gives it programs, files, HTTP calls, large results and cancels, and
//! samples it once a second. Fails if it uses more memory, descriptors, write-ahead log or disk in the last
//! quarter than in the second one. Old results are deleted continuously, and the log is bounded.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{fs, thread};

use protocol::mailbox::Mailbox;
use serde_json::{Value, json};

mod load;
mod plot;

use load::Counts;

const CONFIGURATION: &str = "[executor]\nkeep = \"60s\"\nlog_bytes = 1000000\n[confirm]\nwrites = \"allow\"\n";

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let (minutes, target) = match &arguments[..] {
        [option, minutes, rest @ ..] if option == "--minutes" => (minutes.parse().ok(), rest.first()),
        rest => (Some(30.0), rest.first()),
    };
    let Some(minutes) = minutes.filter(|minutes: &f64| *minutes > 0.0) else {
        print("usage: soak [--minutes N] [PLOT.svg]");
        return ExitCode::from(2);
    };
    soak(Duration::from_secs_f64(minutes * 60.0), target.map(Path::new))
}

fn soak(length: Duration, target: Option<&Path>) -> ExitCode {
    let folder = tempfile::tempdir().expect("a folder");
    let world = SoakWorld { root: folder.path().to_owned() };
    world.prepare();
    let executor = world.start();
    let mailbox = Mailbox::open(&world.mailbox()).expect("a mailbox");
    let (stop, counts) = (AtomicBool::new(false), Counts::default());
    let samples = thread::scope(|scope| {
        for number in 0..load::CALLERS {
            let (world, mailbox, stop, counts) = (&world, &mailbox, &stop, &counts);
            scope.spawn(move || load::call(number, world, mailbox, stop, counts));
        }
        let samples = watch(&world, executor, length, &counts.ended);
        stop.store(true, Ordering::Relaxed);
        samples
    });
    world.stop();
    if let Some(target) = target {
        fs::write(target, plot::draw(&samples, length)).expect("the plot can be written");
    }
    judge(&samples, counts)
}

/// Samples the executor once a second.
fn watch(world: &SoakWorld, executor: u32, length: Duration, done: &AtomicU64) -> Vec<Sample> {
    let started = Instant::now();
    let (mut samples, mut before) = (Vec::new(), 0);
    while started.elapsed() < length {
        let next = started + Duration::from_secs(samples.len() as u64 + 1);
        thread::park_timeout(next.saturating_duration_since(Instant::now()));
        let so_far = done.load(Ordering::Relaxed);
        samples.push(Sample::of(world, executor, so_far - before));
        before = so_far;
    }
    samples
}

/// The measurements of one second.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sample {
    pub(crate) memory: u64,
    pub(crate) descriptors: u64,
    pub(crate) wal: u64,
    pub(crate) disk: u64,
    /// Tasks that ended in this second.
    pub(crate) ended: u64,
}

impl Sample {
    fn of(world: &SoakWorld, executor: u32, ended: u64) -> Self {
        let process = PathBuf::from(format!("/proc/{executor}"));
        let status = fs::read_to_string(process.join("status")).expect("the executor is alive");
        let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("`status` has a line `VmRSS`");
        let kilobytes: u64 = memory.trim().trim_end_matches(" kB").parse().expect("a number");
        let descriptors = fs::read_dir(process.join("fd")).expect("the executor is alive").count() as u64;
        let wal = fs::metadata(world.store().with_extension("db-wal")).map_or(0, |found| found.len());
        Self { memory: kilobytes << 10, descriptors, wal, disk: bytes_below(&world.root), ended }
    }
}

fn bytes_below(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.filter_map(|entry| {
        let found = entry.metadata().ok()?;
        Some(if found.is_dir() { bytes_below(&entry.path()) } else { found.len() })
    });
    sizes.sum()
}

/// A measure: its name, its value, and the factor and the amount by which the last quarter may exceed the second.
type Measure = (&'static str, fn(&Sample) -> u64, f64, u64);

const MEASURES: &[Measure] = &[
    ("resident memory, bytes", |sample| sample.memory, 1.1, 4 << 20),
    ("descriptors", |sample| sample.descriptors, 1.1, 4),
    ("write-ahead log, bytes", |sample| sample.wal, 1.1, 1 << 20),
    ("disk, bytes", |sample| sample.disk, 1.15, 4 << 20),
];

fn judge(samples: &[Sample], counts: Counts) -> ExitCode {
    let (done, refused) = (counts.ended.into_inner(), counts.refused.into_inner());
    let quarter = (samples.len() / 4).max(1);
    let (second, last) = (samples.iter().skip(quarter).take(quarter), samples.iter().rev().take(quarter));
    let mut report = serde_json::Map::new();
    let mut is_flat = true;
    for (name, value, factor, margin) in MEASURES {
        let mean = |part: Vec<u64>| part.iter().sum::<u64>() / (part.len() as u64).max(1);
        let (before, after) = (mean(second.clone().map(value).collect()), mean(last.clone().map(value).collect()));
        let max = samples.iter().map(value).max().unwrap_or_default();
        #[expect(clippy::cast_precision_loss, reason = "the values are compared with a margin of ten percent")]
        let holds = after as f64 <= (before as f64).mul_add(*factor, *margin as f64);
        is_flat &= holds;
        report.insert(
            (*name).to_owned(),
            json!({"second_quarter": before, "last_quarter": after, "most": max, "flat": holds}),
        );
    }
    print(
        &json!({"seconds": samples.len(), "tasks_ended": done, "refused": refused, "measures": Value::Object(report)})
            .to_string(),
    );
    if is_flat && done > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[expect(clippy::print_stdout, reason = "an example prints its result")]
fn print(text: &str) {
    println!("{text}");
}

/// The folders of one executor, isolated from the machine's own installation.
#[derive(Debug)]
pub(crate) struct SoakWorld {
    root: PathBuf,
}

impl SoakWorld {
    fn prepare(&self) {
        let config = self.root.join("home/.config/agent-magic-tool");
        fs::create_dir_all(config.join("subtools")).expect("made");
        fs::create_dir_all(self.work()).expect("made");
        fs::write(self.work().join("note.txt"), "one\ntwo\n").expect("written");
        fs::write(config.join("config.toml"), CONFIGURATION).expect("written");
        let server_url = load::start_server();
        fs::write(config.join("subtools/soak.json"), load::definitions(&server_url).to_string()).expect("written");
    }

    pub(crate) fn mailbox(&self) -> PathBuf {
        self.root.join("mailbox")
    }

    /// The working directory of callers.
    pub(crate) fn work(&self) -> PathBuf {
        self.root.join("work")
    }

    fn store(&self) -> PathBuf {
        let executors = self.root.join("home/.local/state/agent-magic-tool/executors");
        let mut folders = fs::read_dir(executors).expect("an executor has run").flatten();
        folders.next().expect("an executor has run").path().join("tasks.db")
    }

    /// The program with `arguments`, in this world's environment.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let program = std::env::current_exe().expect("a path").with_file_name("../agent-magic-tool");
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env_clear()
            .env("HOME", self.root.join("home"))
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("AGENT_MAGIC_TOOL_DIR", self.mailbox())
            .current_dir(self.work())
            .stdin(Stdio::null());
        command
    }

    /// Starts the executor and returns its process id.
    fn start(&self) -> u32 {
        let output = self
            .command(&["executor", "start"])
            .output()
            .expect("the program must be built first: cargo build --release");
        let status: Value = serde_json::from_slice(&output.stdout).expect("a status");
        status["pid"].as_u64().and_then(|pid| pid.try_into().ok()).expect("a process id")
    }

    fn stop(&self) {
        let stopped = self.command(&["executor", "stop"]).output().expect("the program starts");
        assert!(stopped.status.success(), "{}", String::from_utf8_lossy(&stopped.stderr));
    }
}
