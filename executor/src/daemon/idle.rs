//! The idle timer: when an executor without open tasks ends.

use std::time::{Duration, Instant};

pub(super) struct IdleTimer {
    limit: Duration,
    since: Instant,
}

impl IdleTimer {
    pub(super) fn new(limit: Duration) -> Self {
        Self { limit, since: Instant::now() }
    }

    /// How long the executor stays idle before it ends.
    pub(super) fn limit(&self) -> Duration {
        self.limit
    }

    pub(super) fn set_limit(&mut self, limit: Duration) {
        self.limit = limit;
    }

    /// Starts again: something happened, or the executor is busy.
    pub(super) fn restart(&mut self) {
        self.since = Instant::now();
    }

    pub(super) fn deadline(&self) -> Instant {
        self.since + self.limit
    }

    pub(super) fn is_over(&self) -> bool {
        self.since.elapsed() >= self.limit
    }
}
