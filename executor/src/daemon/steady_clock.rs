//! The daemon's clock: the time of day, but never a jump back.
//!
//! A pause before another attempt is kept as a time of day, since it outlives its executor. Were the
//! clock set back a day meanwhile, the attempt would come a day late. So time goes on here as it
//! passed, be it while the machine slept; a clock that is set forward is followed. An executor goes on from
//! where the one before it was when it asked a human: setting the clock back between the two gives nobody
//! more time to say yes. A schedule means what the clock shows: so it is told by how much time here is ahead
//! of that.

use std::cell::Cell;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use protocol::clock::{self, MonotonicTime};

use crate::task::Task;

/// Clocks are corrected by this much all the time; that is no jump.
const CORRECTION: SignedDuration = SignedDuration::from_secs(2);

#[derive(Debug)]
pub(super) struct SteadyClock {
    last: Cell<(Timestamp, Duration)>,
    ahead: Cell<SignedDuration>,
}

impl SteadyClock {
    /// Not earlier than it is by what was noted when a human was asked about `open` tasks.
    pub(super) fn over(open: &[Task]) -> Self {
        let (hooks_delivered, uptime) = (clock::now(), clock::uptime());
        let time = MonotonicTime::now().map_or(hooks_delivered, |moment| latest(open, &moment, hooks_delivered));
        Self { last: Cell::new((time, uptime)), ahead: Cell::default() }
    }

    pub(super) fn now(&self) -> Timestamp {
        let (then, at) = self.last.get();
        let now = clock::uptime();
        let hooks_delivered = clock::now();
        let time = advance(then, now.saturating_sub(at), hooks_delivered);
        self.last.set((time, now));
        let ahead = time.duration_since(hooks_delivered);
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

/// The time at `moment`, when the time of day is `hooks_delivered`.
fn latest(open: &[Task], moment: &MonotonicTime, hooks_delivered: Timestamp) -> Timestamp {
    let asked = open.iter().filter_map(|task| task.confirmation.as_ref());
    let noted = asked.filter_map(|asked| Some((asked.asked_at, moment.since(asked.asked_moment.as_ref()?)?)));
    noted.map(|(then, passed)| advance(then, passed, hooks_delivered)).max().unwrap_or(hooks_delivered)
}

/// The time now, when it was `then` so long ago and the time of day is `hooks_delivered`.
fn advance(then: Timestamp, passed: Duration, hooks_delivered: Timestamp) -> Timestamp {
    // Whole microseconds, like everything that is stored.
    let passed = SignedDuration::from_micros(i64::try_from(passed.as_micros()).unwrap_or(i64::MAX));
    let expected = then.saturating_add(passed).unwrap_or(hooks_delivered);
    let is_back = hooks_delivered < expected.saturating_sub(CORRECTION).unwrap_or(Timestamp::MIN);
    if is_back { expected } else { hooks_delivered }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::confirmation::{Confirmation, ConfirmationRequest};

    #[test]
    fn a_new_executor_goes_on_from_when_a_human_was_asked() {
        let mut task = crate::store::contract::task(None);
        let moment = MonotonicTime::now().expect("this system tells its starts apart");
        let (asked_at, hour) = (task.created_at, SignedDuration::from_hours(1));
        let asking = ConfirmationRequest {
            why: "w".to_owned(),
            reason: None,
            instance: "i".to_owned(),
            wait: Duration::from_hours(1),
            files: Vec::new(),
            has_preview: false,
        };
        let asked = Confirmation::ask(&task, asking, "n".to_owned(), asked_at);
        let mut time = |noted: Option<&MonotonicTime>, hooks_delivered: Timestamp| {
            task.confirmation = Some(Box::new(Confirmation { asked_moment: noted.cloned(), ..asked.clone() }));
            latest(&[task.clone()], &moment, hooks_delivered)
        };
        assert_eq!(time(Some(&moment), asked_at - hour), asked_at, "set back");
        assert_eq!(time(Some(&moment), asked_at + hour), asked_at + hour, "set forward, or it is later");
        assert_eq!(time(None, asked_at - hour), asked_at - hour, "asked by an executor that noted nothing");
        assert_eq!(latest(&[], &moment, asked_at), asked_at);
    }

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
