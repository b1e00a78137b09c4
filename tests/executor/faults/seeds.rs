//! Random kills of executors and of commands.
//!
//! A seed determines the tasks and the kills; the timing of the machine adds more variation. A failure reports its
//! seed, and `AGENT_MAGIC_TOOL_SEED=17` runs that seed again.

use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use protocol::mailbox::Mailbox;
use serde_json::json;

use super::oracle::{Class, Oracle};
use super::size;

const CALLERS: u64 = 4;
const TASKS_PER_CALLER: u64 = 6;
/// With a third kill, a task that was running at each of them would be given up.
const MAX_KILLS: u64 = 2;

#[test]
fn all_guarantees_hold_after_kills_at_random_moments() {
    let given = std::env::var("AGENT_MAGIC_TOOL_SEED").ok();
    let given = given.map(|seed| seed.parse::<u64>().expect("a seed is a number"));
    let (first, end) = given.map_or((0, size(6, 200) as u64), |seed| (seed, seed + 1));
    // A normal run uses the seeds from 0; a full run uses new seeds each time.
    let base = if given.is_none() { size(0, clock()) as u64 } else { 0 };
    let next = AtomicU64::new(first);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    run(base + seed);
                }
            });
        }
    });
}

fn clock() -> usize {
    let seconds = std::time::UNIX_EPOCH.elapsed().expect("a clock").as_secs() % 1_000_000;
    usize::try_from(seconds * 1000).expect("small")
}

/// Reports the seed on drop if the test fails.
struct ReportSeed(u64);

impl Drop for ReportSeed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            writeln!(std::io::stderr(), "failed with AGENT_MAGIC_TOOL_SEED={}", self.0).expect("written");
        }
    }
}

fn run(seed: u64) {
    let _report = ReportSeed(seed);
    let oracle = Oracle::with("concurrency = 4");
    std::thread::scope(|scope| {
        for caller in 0..CALLERS {
            let (oracle, mut random) = (&oracle, Random::new(seed, caller));
            scope.spawn(move || {
                for _ in 0..TASKS_PER_CALLER {
                    let class = random.pick(&Class::ALL);
                    let pause = json!({"pause": random.pick(&["0", "0.01", "0.05"])});
                    if random.below(3) == 0 {
                        oracle.run_and_kill(class, &pause, Duration::from_micros(random.below(12_000)));
                    } else {
                        // If the executor is killed, the command may report an unknown outcome.
                        drop(oracle.run(class, &pause));
                    }
                }
            });
        }
        let (oracle, mut random) = (&oracle, Random::new(seed, CALLERS));
        scope.spawn(move || {
            for _ in 0..=random.below(MAX_KILLS) {
                std::thread::park_timeout(Duration::from_micros(random.below(150_000)));
                kill_executor(oracle);
            }
        });
    });
    oracle.verify();
}

fn kill_executor(oracle: &Oracle) {
    let mailbox = Mailbox::open(&oracle.world.mailbox()).expect("a mailbox");
    if let Some(pid) = mailbox.executor().expect("readable") {
        // The executor may have ended meanwhile.
        kill(Pid::from_raw(i32::try_from(pid).expect("a process id")), Signal::SIGKILL).ok();
    }
}

/// A seeded generator of random numbers: `SplitMix64`.
struct Random(u64);

impl Random {
    fn new(seed: u64, stream: u64) -> Self {
        Self(seed.wrapping_mul(1000).wrapping_add(stream))
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.below(from.len() as u64)).expect("less than the length")]
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}
