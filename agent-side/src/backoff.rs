//! How a short-lived process waits: the only place that sleeps.
//!
//! Polls with growing pauses, which the executor cuts short when it publishes something. A file watch would be simpler,
//! but tearing one down when the process ends takes more than ten milliseconds.

use std::time::{Duration, Instant};

use protocol::mailbox::publication::PublicationWatch;

/// Short, since most answers arrive within the first few polls.
const FIRST_PAUSE: Duration = Duration::from_micros(100);

/// The shortest pause if the executor's publications end it.
const MIN_WATCHED_PAUSE: Duration = Duration::from_millis(2);

/// Pauses between polls, each longer than the one before.
#[derive(Debug)]
pub struct Backoff {
    started: Instant,
    pause: Duration,
    max_pause: Duration,
}

impl Backoff {
    /// Pauses never exceed `max_pause`.
    pub fn new(max_pause: Duration) -> Self {
        Self { started: Instant::now(), pause: FIRST_PAUSE, max_pause }
    }

    pub fn waited(&self) -> Duration {
        self.started.elapsed()
    }

    /// Sleeps for the next pause, at most until `deadline`.
    pub fn pause(&mut self, deadline: Option<Instant>) {
        #[expect(clippy::disallowed_methods, reason = "the only place where the command line sleeps")]
        std::thread::sleep(self.next_pause(deadline));
    }

    /// Like [`Self::pause`], but ends as soon as the executor publishes something, and is longer in return.
    pub fn pause_until_published(&mut self, watch: &mut PublicationWatch, deadline: Option<Instant>) {
        if !watch.is_open() {
            return self.pause(deadline);
        }
        self.pause = self.pause.max(MIN_WATCHED_PAUSE).min(self.max_pause);
        let pause = self.next_pause(deadline);
        // Whatever ended the pause, the caller looks.
        if watch.wait(pause) {}
    }

    fn next_pause(&mut self, deadline: Option<Instant>) -> Duration {
        let left = deadline.map_or(self.pause, |deadline| deadline.saturating_duration_since(Instant::now()));
        let pause = self.pause.min(left);
        // An eighth more each time, so a pause is about a ninth of the time waited so far.
        self.pause = (self.pause + self.pause / 8).min(self.max_pause);
        pause
    }
}
