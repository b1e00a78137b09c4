//! Measures whole processes from fork to exit, in turns, so that noise affects all of them equally.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};

/// Unmeasured rounds, until caches are warm and the executor is running.
const WARM_UP: usize = 5;

/// The argument with which this program runs a command and prints its peak memory. It runs in a process of
/// its own, since a child's peak includes what its parent had in memory when it forked.
pub(crate) const PEAK_MEMORY_OF: &str = "--peak-memory-of";

/// The durations of repeated runs, sorted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Samples(Vec<Duration>);

impl Samples {
    pub(crate) fn new(mut durations: Vec<Duration>) -> Self {
        durations.sort_unstable();
        Self(durations)
    }

    pub(crate) fn median(&self) -> Duration {
        self.at(50)
    }

    fn at(&self, percent: usize) -> Duration {
        let last = self.0.len().saturating_sub(1);
        self.0.get(self.0.len() * percent / 100).or(self.0.get(last)).copied().unwrap_or_default()
    }

    pub(crate) fn text(&self) -> String {
        format!("{:.2}, {:.2} ms", milliseconds(self.median()), milliseconds(self.at(95)))
    }
}

pub(crate) fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// Runs each of `tasks` this many times, in turns.
pub(crate) fn in_turns<const N: usize>(runs: usize, tasks: &mut [&mut dyn FnMut(); N]) -> [Samples; N] {
    let mut durations = [const { Vec::new() }; N];
    for round in 0..runs + WARM_UP {
        for offset in 0..N {
            // Rotates the order, so that no task always starts first.
            let index = (offset + round) % N;
            let started = Instant::now();
            tasks[index]();
            if round >= WARM_UP {
                durations[index].push(started.elapsed());
            }
        }
    }
    durations.map(Samples::new)
}

/// Runs a command to its end. Panics if it fails.
pub(crate) fn run(command: &mut Command) {
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status().expect("the program starts");
    assert!(status.success(), "{command:?} ended with {status}");
}

/// Runs a command and returns what it prints. Panics if it fails.
pub(crate) fn output(command: &mut Command) -> Vec<u8> {
    let output = command.stderr(Stdio::piped()).output().expect("the program starts");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// The cheapest process, started by its absolute path, so that no lookup in `PATH` is measured.
pub(crate) fn bare() -> Command {
    static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| {
        let folders = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&folders).map(|folder| folder.join("true")).find(|path| path.is_file());
        found.expect("`true` is installed")
    });
    let mut command = Command::new(&*PROGRAM);
    command.env_clear().stdin(Stdio::null());
    command
}

/// The peak memory of a command, in MiB.
pub(crate) fn peak_memory(command: &Command) -> f64 {
    let mut measured = Command::new(std::env::current_exe().expect("this program"));
    measured.arg(PEAK_MEMORY_OF).arg(command.get_program()).args(command.get_args()).env_clear();
    for (key, value) in command.get_envs() {
        if let Some(value) = value {
            measured.env(key, value);
        }
    }
    let kilobytes = String::from_utf8(output(&mut measured)).expect("digits");
    kilobytes.trim().parse::<f64>().expect("a number") / 1024.0
}

/// Runs in the child process of [`peak_memory`].
pub(crate) fn print_peak_memory(command: &[String]) -> ExitCode {
    let [program, arguments @ ..] = command else { return ExitCode::FAILURE };
    let status = Command::new(program).args(arguments).stdout(Stdio::null()).status();
    if !status.is_ok_and(|status| status.success()) {
        return ExitCode::FAILURE;
    }
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).expect("the kernel returns it");
    writeln!(std::io::stdout(), "{}", usage.max_rss()).expect("standard output is open");
    ExitCode::SUCCESS
}
