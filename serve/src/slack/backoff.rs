//! Growing pauses between attempts, with chance in them, so that many clients do not come back at once.

use std::time::Duration;

use super::contract::SlackTiming;

/// The pauses of one row of failures.
#[derive(Debug)]
pub(crate) struct SlackBackoff {
    timing: SlackTiming,
    pause: Duration,
}

impl SlackBackoff {
    pub(crate) fn new(timing: SlackTiming) -> Self {
        Self { timing, pause: timing.min_pause }
    }

    /// The next pause: twice as long as the one before, and up to a half shorter by chance.
    pub(crate) fn next(&mut self) -> Duration {
        let pause = self.pause;
        self.pause = (pause * 2).min(self.timing.max_pause);
        // Without chance the pause is whole, which is only less polite.
        let share = getrandom::u32().map_or(1.0, |chance| 0.5 + f64::from(chance) / f64::from(u32::MAX) / 2.0);
        pause.mul_f64(share)
    }

    pub(crate) fn reset(&mut self) {
        self.pause = self.timing.min_pause;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_bound() {
        let mut backoff = SlackBackoff::new(SlackTiming::default());
        let (min, max) = (SlackTiming::default().min_pause, SlackTiming::default().max_pause);
        let first = backoff.next();
        assert!(first >= min / 2 && first <= min);
        let pauses: Vec<_> = (0..30).map(|_| backoff.next()).collect();
        assert!(pauses.iter().all(|pause| *pause <= max));
        assert!(pauses[29] >= max / 2);
        backoff.reset();
        assert!(backoff.next() <= min);
    }
}
