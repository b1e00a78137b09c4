//! How a short-lived process waits: the only place that sleeps.
//!
//! Polls with growing pauses, starting at a tenth of a millisecond. A file watch would be simpler,
//! but tearing one down when the process ends takes more than ten milliseconds.

use std::time::{Duration, Instant};

/// Short, since most answers arrive within the first few polls.
const FIRST_PAUSE: Duration = Duration::from_micros(100);

/// Pauses between polls, each longer than the one before.
#[derive(Debug)]
pub(crate) struct Backoff {
    started: Instant,
    pause: Duration,
    max_pause: Duration,
}

impl Backoff {
    /// Pauses never exceed `max_pause`.
    pub(crate) fn new(max_pause: Duration) -> Self {
        Self { started: Instant::now(), pause: FIRST_PAUSE, max_pause }
    }

    pub(crate) fn waited(&self) -> Duration {
        self.started.elapsed()
    }

    /// Sleeps for the next pause, at most until `deadline`.
    pub(crate) fn pause(&mut self, deadline: Option<Instant>) {
        let left = deadline.map_or(self.pause, |deadline| deadline.saturating_duration_since(Instant::now()));
        #[expect(clippy::disallowed_methods, reason = "the only place where the command line sleeps")]
        std::thread::sleep(self.pause.min(left));
        // An eighth more each time, so a pause is about a ninth of the time waited so far.
        self.pause = (self.pause + self.pause / 8).min(self.max_pause);
    }
}
