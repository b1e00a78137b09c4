//! Growing pauses between attempts: each is twice as long as the one before, up to a bound.

use std::time::Duration;

/// The pauses of one kind of attempt.
#[derive(Debug, Clone, Copy)]
pub struct Backoff {
    pub first: Duration,
    pub max: Duration,
}

impl Backoff {
    /// The pause after an attempt that failed; `before` attempts in a row had failed before it.
    pub fn pause(self, before: u32) -> Duration {
        self.first.saturating_mul(1 << before.min(20)).min(self.max)
    }

    /// The same, and up to a quarter more: as much as follows from `seed`, so that what failed together is not tried
    /// together again.
    pub fn spread_pause(self, before: u32, seed: &str) -> Duration {
        let pause = self.pause(before);
        // The last characters of an id are random.
        let last = seed.bytes().rev().take(8);
        let spread = last.fold(before, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(byte)));
        pause + pause.mul_f64(f64::from(spread % 256) / 1024.0)
    }
}

/// The pauses of one row of failures, each up to a half shorter by chance, so that many clients do not come back at once.
#[derive(Debug)]
pub struct RandomPauses {
    backoff: Backoff,
    failures: u32,
}

impl RandomPauses {
    pub fn new(backoff: Backoff) -> Self {
        Self { backoff, failures: 0 }
    }

    /// The pause after one more failure.
    pub fn next_pause(&mut self) -> Duration {
        let pause = self.backoff.pause(self.failures);
        self.failures += 1;
        // Without chance the pause is whole, which is only less polite.
        let share = getrandom::u32().map_or(1.0, |chance| 0.5 + f64::from(chance) / f64::from(u32::MAX) / 2.0);
        pause.mul_f64(share)
    }

    /// An attempt did not fail.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), max: Duration::from_mins(1) };

    #[test]
    fn pauses_grow_up_to_a_bound() {
        let seconds: Vec<_> = (0..8).map(|before| BACKOFF.pause(before).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(BACKOFF.pause(u32::MAX), BACKOFF.max);
        let endless = Backoff { first: Duration::MAX, max: Duration::MAX };
        assert_eq!(endless.pause(9), Duration::MAX);
        for seed in ["a", "b", "0198c0de"] {
            let spread = BACKOFF.spread_pause(2, seed);
            assert!(spread >= BACKOFF.pause(2) && spread <= BACKOFF.pause(2).mul_f64(1.25), "{spread:?}");
            assert_eq!(spread, BACKOFF.spread_pause(2, seed));
        }
    }

    #[test]
    fn random_pauses_grow_up_to_a_bound() {
        let (Backoff { first: min, max }, mut pauses) = (BACKOFF, RandomPauses::new(BACKOFF));
        let first = pauses.next_pause();
        assert!(first >= min / 2 && first <= min);
        let later: Vec<_> = (0..30).map(|_| pauses.next_pause()).collect();
        assert!(later.iter().all(|pause| *pause <= max));
        assert!(later[29] >= max / 2);
        pauses.reset();
        assert!(pauses.next_pause() <= min);
    }
}
