//! How an executor stops: a grace period for running attempts, then an interrupt, then the end.

use std::time::{Duration, Instant};

use super::ExitReason;

/// How long interrupted attempts may take to report their ends. A process gets two seconds to end after SIGTERM, and
/// two more after SIGKILL.
pub(super) const INTERRUPT_TIMEOUT: Duration = Duration::from_secs(5);

/// How far stopping has come.
#[derive(Debug)]
pub(super) struct Stop {
    reason: ExitReason,
    phase: StopPhase,
    /// When the phase ends, if attempts still run.
    deadline: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StopPhase {
    /// Running attempts may finish.
    Draining,
    /// Running attempts were interrupted and may report their ends.
    Interrupted,
    /// Interrupted attempts did not report in time. They stay recorded as running, and the next executor repeats them
    /// or ends them as `unknown`.
    TimedOut,
}

impl Stop {
    pub(super) fn new(reason: ExitReason, grace: Duration) -> Self {
        Self { reason, phase: StopPhase::Draining, deadline: Instant::now() + grace }
    }

    pub(super) fn reason(&self) -> ExitReason {
        self.reason
    }

    /// When to call [`Self::interrupts_at`].
    pub(super) fn next_deadline(&self) -> Instant {
        self.deadline
    }

    /// Ends the grace period, since the executor was asked to stop once more.
    pub(super) fn end_grace(&mut self, now: Instant) {
        if self.phase == StopPhase::Draining {
            self.deadline = now;
        }
    }

    /// Goes on to the next phase if the deadline has passed. Returns whether to interrupt the running attempts now.
    pub(super) fn interrupts_at(&mut self, now: Instant) -> bool {
        if now < self.deadline {
            return false;
        }
        let is_first = self.phase == StopPhase::Draining;
        (self.phase, self.deadline) = match self.phase {
            StopPhase::Draining => (StopPhase::Interrupted, now + INTERRUPT_TIMEOUT),
            StopPhase::Interrupted | StopPhase::TimedOut => (StopPhase::TimedOut, self.deadline),
        };
        is_first
    }

    /// Whether the executor waited long enough for attempts that do not report.
    pub(super) fn has_timed_out(&self) -> bool {
        self.phase == StopPhase::TimedOut
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_hours(1);

    #[test]
    fn attempts_are_interrupted_once_after_the_grace_period() {
        let mut stop = Stop::new(ExitReason::Asked, GRACE);
        let end_of_grace = stop.next_deadline();
        assert!(!stop.interrupts_at(end_of_grace.checked_sub(Duration::from_millis(1)).expect("a valid time")));
        assert!(stop.interrupts_at(end_of_grace) && !stop.has_timed_out());
        let last = end_of_grace + INTERRUPT_TIMEOUT;
        assert_eq!(stop.next_deadline(), last);
        stop.end_grace(end_of_grace);
        assert_eq!(stop.next_deadline(), last, "a further request to stop does not shorten the interrupt");
        assert!(!stop.interrupts_at(last) && stop.has_timed_out());
    }

    #[test]
    fn a_second_request_to_stop_ends_the_grace_period() {
        let mut stop = Stop::new(ExitReason::Asked, GRACE);
        let now = Instant::now();
        stop.end_grace(now);
        assert!(stop.interrupts_at(now));
    }
}
