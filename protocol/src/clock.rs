//! Wall-clock time in the precision of the store, and monotonic time that can be stored.

use std::fs;
use std::time::Duration;

use jiff::Timestamp;
use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// A monotonic clock that, where available, includes the time the machine is suspended.
#[cfg(any(target_os = "linux", target_os = "android"))]
const UPTIME: ClockId = ClockId::CLOCK_BOOTTIME;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const UPTIME: ClockId = ClockId::CLOCK_MONOTONIC;

/// Holds an id that changes at each boot.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Returns the current time in whole microseconds, so that a stored time equals the original.
pub fn now() -> Timestamp {
    Timestamp::from_microsecond(Timestamp::now().as_microsecond())
        .expect("the current time is within the range of timestamps")
}

/// Returns the time since boot, including suspend where the system supports it.
pub fn uptime() -> Duration {
    clock_gettime(UPTIME).expect("the clock exists on every supported system").into()
}

/// A moment on a clock that cannot be set. It can be stored, and is meaningful until the next boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MonotonicTime {
    boot: String,
    micros: u64,
}

impl MonotonicTime {
    /// Returns the current moment; `None` if the system has no boot id.
    pub fn now() -> Option<Self> {
        let boot = fs::read_to_string(BOOT_ID).ok()?.trim().to_owned();
        Some(Self { boot, micros: u64::try_from(uptime().as_micros()).ok()? })
    }

    /// Returns the time since `earlier`; `None` if the machine was rebooted in between.
    pub fn since(&self, earlier: &Self) -> Option<Duration> {
        let passed = self.micros.checked_sub(earlier.micros).filter(|_| self.boot == earlier.boot)?;
        Some(Duration::from_micros(passed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elapsed_time_is_known_within_one_boot() {
        let at = |boot: &str, micros| MonotonicTime { boot: boot.to_owned(), micros };
        assert_eq!(at("a", 7).since(&at("a", 5)), Some(Duration::from_micros(2)));
        assert_eq!(at("b", 7).since(&at("a", 5)), None);
        assert_eq!(at("a", 5).since(&at("a", 7)), None, "the store was copied from another machine");
        let (first, second) = (uptime(), uptime());
        assert!(first <= second);
    }
}
