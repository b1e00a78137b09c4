//! The time of day, as precise as the store keeps it, and the time that nobody sets.

use std::fs;
use std::time::Duration;

use jiff::Timestamp;
use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// The clock that goes on while the machine sleeps.
#[cfg(any(target_os = "linux", target_os = "android"))]
const UPTIME: ClockId = ClockId::CLOCK_BOOTTIME;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const UPTIME: ClockId = ClockId::CLOCK_MONOTONIC;

/// Another text after each start of the machine.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// Now, in whole microseconds: what was stored and read back is equal to what was written.
pub fn now() -> Timestamp {
    Timestamp::from_microsecond(Timestamp::now().as_microsecond()).expect("the present lies in the range of timestamps")
}

/// For how long this machine is up, its sleep included.
pub fn uptime() -> Duration {
    clock_gettime(UPTIME).expect("every system has this clock").into()
}

/// A moment by a clock that nobody sets, to be kept: it means something until the machine starts anew.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MonotonicTime {
    boot: String,
    micros: u64,
}

impl MonotonicTime {
    /// `None` where the system does not tell one start of the machine from another.
    pub fn now() -> Option<Self> {
        let boot = fs::read_to_string(BOOT).ok()?.trim().to_owned();
        Some(Self { boot, micros: u64::try_from(uptime().as_micros()).ok()? })
    }

    /// How much time passed since `earlier`; `None` if the machine was started anew meanwhile.
    pub fn since(&self, earlier: &Self) -> Option<Duration> {
        let passed = self.micros.checked_sub(earlier.micros).filter(|_| self.boot == earlier.boot)?;
        Some(Duration::from_micros(passed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passed_is_known_within_one_start_of_the_machine() {
        let at = |boot: &str, micros| MonotonicTime { boot: boot.to_owned(), micros };
        assert_eq!(at("a", 7).since(&at("a", 5)), Some(Duration::from_micros(2)));
        assert_eq!(at("b", 7).since(&at("a", 5)), None);
        assert_eq!(at("a", 5).since(&at("a", 7)), None, "a copy of another machine's record");
        let (first, second) = (uptime(), uptime());
        assert!(first <= second);
    }
}
