//! The daemon's clock: the time of day, but never a jump back.
//!
//! A pause before another attempt is kept as a time of day, since it outlives its executor. Were the
//! clock set back a day meanwhile, the attempt would come a day late. So time goes on here as it
//! passed; a clock that is set forward is followed, for it may be that the machine slept. A schedule
//! means what the clock shows: so it is told by how much time here is ahead of that.

use std::cell::Cell;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};

use crate::clock;

/// Clocks are corrected by this much all the time; that is no jump.
const CORRECTION: SignedDuration = SignedDuration::from_secs(2);

#[derive(Debug)]
pub(super) struct Steady {
    last: Cell<(Timestamp, Instant)>,
    ahead: Cell<SignedDuration>,
}

impl Steady {
    pub(super) fn new() -> Self {
        Self { last: Cell::new((clock::now(), Instant::now())), ahead: Cell::default() }
    }

    pub(super) fn now(&self) -> Timestamp {
        let (then, at) = self.last.get();
        let now = Instant::now();
        let told = clock::now();
        let time = advance(then, now - at, told);
        self.last.set((time, now));
        let ahead = time.duration_since(told);
        if (ahead - self.ahead.get()).abs() > CORRECTION {
            self.ahead.set(if ahead.abs() > CORRECTION { ahead } else { SignedDuration::ZERO });
        }
        time
    }

    /// By how much [`Self::now`] was ahead of the clock, as near as a clock is ever right.
    pub(super) fn ahead(&self) -> SignedDuration {
        self.ahead.get()
    }
}

/// The time now, when it was `then` so long ago and the time of day is `told`.
fn advance(then: Timestamp, passed: Duration, told: Timestamp) -> Timestamp {
    // Whole microseconds, like everything that is stored.
    let passed = SignedDuration::from_micros(i64::try_from(passed.as_micros()).unwrap_or(i64::MAX));
    let expected = then.saturating_add(passed).unwrap_or(told);
    let is_back = told < expected.saturating_sub(CORRECTION).unwrap_or(Timestamp::MIN);
    if is_back { expected } else { told }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_set_back_does_not_stop_time_and_one_set_forward_is_followed() {
        let at = |seconds: i64| Timestamp::from_second(1_000_000 + seconds).expect("a time");
        let second = Duration::from_secs(1);
        assert_eq!(advance(at(0), second, at(1)), at(1));
        assert_eq!(advance(at(0), second, at(0)), at(0), "corrected");
        assert_eq!(advance(at(0), second, at(-86_400)), at(1), "set back");
        assert_eq!(advance(at(0), second, at(86_400)), at(86_400), "set forward, or slept");
    }
}
