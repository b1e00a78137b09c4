//! How a short-lived process waits: the only place that sleeps.
//!
//! It looks again and again, at first after a tenth of a millisecond, then less and less often.
//! Opening a file watch would be quicker to write, but tearing one down when the process ends
//! costs more than ten milliseconds.

use std::time::{Duration, Instant};

/// Most answers come within the first looks.
const FIRST: Duration = Duration::from_micros(100);

/// Pauses that grow, up to a deadline.
#[derive(Debug)]
pub(crate) struct Backoff {
    started: Instant,
    pause: Duration,
    longest: Duration,
}

impl Backoff {
    /// Pauses never grow beyond `longest`.
    pub(crate) fn new(longest: Duration) -> Self {
        Self { started: Instant::now(), pause: FIRST, longest }
    }

    pub(crate) fn waited(&self) -> Duration {
        self.started.elapsed()
    }

    /// Sleeps a little, at most until `deadline`.
    pub(crate) fn pause(&mut self, deadline: Option<Instant>) {
        let left = deadline.map_or(self.pause, |deadline| deadline.saturating_duration_since(Instant::now()));
        #[expect(clippy::disallowed_methods, reason = "this is where the command line waits")]
        std::thread::sleep(self.pause.min(left));
        // An eighth more each time: the hundredth look comes after about a tenth of the time waited.
        self.pause = (self.pause + self.pause / 8).min(self.longest);
    }
}
