//! Killed at random: executors while they work, and commands between their request and their word.
//!
//! A seed says who asks for what and what is killed when; the machine's own timing does the rest. A
//! failure names its seed, and `AGENT_MAGIC_TOOL_SEED=17` runs that one again.

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
const TASKS_OF_EACH: u64 = 6;
/// One more, and a task that each of them took along would be given up.
const MAX_KILLS: u64 = 2;

#[test]
fn killed_at_random_moments_everything_that_was_promised_holds() {
    let one = std::env::var("AGENT_MAGIC_TOOL_SEED").ok();
    let one = one.map(|seed| seed.parse::<u64>().expect("a seed is a number"));
    let (first, end) = one.map_or((0, size(6, 200) as u64), |seed| (seed, seed + 1));
    // Each normal run has other seeds; all of them are those from 0.
    let base = if one.is_none() && end < 200 { clock() } else { 0 };
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

fn clock() -> u64 {
    std::time::UNIX_EPOCH.elapsed().expect("a clock").as_secs() % 1_000_000 * 1000
}

/// Names its seed when the test fails.
struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            writeln!(std::io::stderr(), "it failed with AGENT_MAGIC_TOOL_SEED={}", self.0).expect("said");
        }
    }
}

fn run(seed: u64) {
    let _named = Named(seed);
    let oracle = Oracle::with("concurrency = 4");
    std::thread::scope(|scope| {
        for caller in 0..CALLERS {
            let (oracle, mut chance) = (&oracle, Chance::new(seed, caller));
            scope.spawn(move || {
                for _ in 0..TASKS_OF_EACH {
                    let class = chance.pick(&Class::ALL);
                    let pause = json!({"pause": chance.pick(&["0", "0.01", "0.05"])});
                    if chance.below(3) == 0 {
                        oracle.ask_and_kill(class, &pause, Duration::from_micros(chance.below(12_000)));
                    } else {
                        // One whose executor was killed under it may say that it does not know.
                        drop(oracle.ask(class, &pause));
                    }
                }
            });
        }
        let (oracle, mut chance) = (&oracle, Chance::new(seed, CALLERS));
        scope.spawn(move || {
            for _ in 0..=chance.below(MAX_KILLS) {
                std::thread::park_timeout(Duration::from_micros(chance.below(150_000)));
                kill_whoever_is_in_office(oracle);
            }
        });
    });
    oracle.judge();
}

fn kill_whoever_is_in_office(oracle: &Oracle) {
    let mailbox = Mailbox::open(&oracle.world.mailbox()).expect("a mailbox");
    if let Some(pid) = mailbox.executor().expect("asked") {
        // One that has ended meanwhile is as good as killed.
        kill(Pid::from_raw(i32::try_from(pid).expect("a process id")), Signal::SIGKILL).ok();
    }
}

/// Numbers that follow from a seed: `SplitMix64`.
struct Chance(u64);

impl Chance {
    fn new(seed: u64, who: u64) -> Self {
        Self(seed.wrapping_mul(1000).wrapping_add(who))
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
