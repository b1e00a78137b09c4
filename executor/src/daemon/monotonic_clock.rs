//! The daemon's clock: the time of day, without jumps backwards.
//!
//! The pause before a retry is stored as a time of day, because it must survive a restart. If the system clock were
//! set back by a day, the retry would come a day late. So this clock keeps running when the system clock is set back
//! (time asleep counts too) and follows it when it is set forward. A new executor continues from the times noted when
//! its predecessor asked a human, so setting the clock back between the two does not extend the time to approve.
//! Schedules refer to the system clock; [`MonotonicClock::ahead`] gives the difference.

use std::cell::Cell;
use std::time::Duration;

use ground::task::Task;
use jiff::{SignedDuration, Timestamp};
use protocol::clock::{self, MonotonicTime};

/// Time synchronization adjusts the system clock by this much; larger differences count as jumps.
const MAX_CORRECTION: SignedDuration = SignedDuration::from_secs(2);

#[derive(Debug)]
pub(super) struct MonotonicClock {
    /// The last time returned, and the uptime then.
    last: Cell<(Timestamp, Duration)>,
    ahead: Cell<SignedDuration>,
}

impl MonotonicClock {
    /// A clock that is not behind the times noted when humans were asked about the `open` tasks.
    pub(super) fn new(open: &[Task]) -> Self {
        let (system_time, uptime) = (clock::now(), clock::uptime());
        let time = MonotonicTime::now().map_or(system_time, |moment| latest(open, &moment, system_time));
        Self { last: Cell::new((time, uptime)), ahead: Cell::default() }
    }

    pub(super) fn now(&self) -> Timestamp {
        let (last, last_uptime) = self.last.get();
        let uptime = clock::uptime();
        let system_time = clock::now();
        let time = advance(last, uptime.saturating_sub(last_uptime), system_time);
        self.last.set((time, uptime));
        let ahead = time.duration_since(system_time);
        if (ahead - self.ahead.get()).abs() > MAX_CORRECTION {
            self.ahead.set(if ahead.abs() > MAX_CORRECTION { ahead } else { SignedDuration::ZERO });
        }
        time
    }

    /// How far [`Self::now`] is ahead of the system clock, within [`MAX_CORRECTION`].
    pub(super) fn ahead(&self) -> SignedDuration {
        self.ahead.get()
    }

    /// How long it takes until `deadline`; zero if it has passed.
    pub(super) fn time_until(&self, deadline: Timestamp) -> Duration {
        Duration::try_from(self.now().duration_until(deadline)).unwrap_or_default()
    }
}

/// The latest time noted for an `open` task, continued until `moment`; `system_time` if no time was noted.
fn latest(open: &[Task], moment: &MonotonicTime, system_time: Timestamp) -> Timestamp {
    let confirmations = open.iter().filter_map(|task| task.confirmation.as_ref());
    let noted = confirmations.filter_map(|asked| Some((asked.asked_at, moment.since(asked.asked_moment.as_ref()?)?)));
    noted.map(|(then, elapsed)| advance(then, elapsed, system_time)).max().unwrap_or(system_time)
}

/// The time now, `elapsed` after `then`: the system time, unless it was set back.
fn advance(then: Timestamp, elapsed: Duration, system_time: Timestamp) -> Timestamp {
    // Whole microseconds, like every stored time.
    let elapsed = SignedDuration::from_micros(i64::try_from(elapsed.as_micros()).unwrap_or(i64::MAX));
    let expected = then.saturating_add(elapsed).unwrap_or(system_time);
    let was_set_back = system_time < expected.saturating_sub(MAX_CORRECTION).unwrap_or(Timestamp::MIN);
    if was_set_back { expected } else { system_time }
}

#[cfg(test)]
mod tests {
    use ground::task::confirmation::Confirmation;

    use super::*;

    #[test]
    fn a_new_executor_continues_from_the_time_a_human_was_asked() {
        let mut task = ground::task::sample::stored(None);
        let moment = MonotonicTime::now().expect("this system has boot ids");
        let (asked_at, hour) = (task.created_at, SignedDuration::from_hours(1));
        let asked = Confirmation::sample(&task);
        let mut time = |noted: Option<&MonotonicTime>, system_time: Timestamp| {
            task.confirmation = Some(Box::new(Confirmation { asked_moment: noted.cloned(), ..asked.clone() }));
            latest(&[task.clone()], &moment, system_time)
        };
        assert_eq!(time(Some(&moment), asked_at - hour), asked_at, "set back");
        assert_eq!(time(Some(&moment), asked_at + hour), asked_at + hour, "set forward, or later");
        assert_eq!(time(None, asked_at - hour), asked_at - hour, "asked by an executor that noted no moment");
        assert_eq!(latest(&[], &moment, asked_at), asked_at);
    }

    #[test]
    fn a_clock_set_back_is_ignored_and_one_set_forward_is_followed() {
        let at = |seconds: i64| Timestamp::from_second(1_000_000 + seconds).expect("a time");
        let second = Duration::from_secs(1);
        assert_eq!(advance(at(0), second, at(1)), at(1));
        assert_eq!(advance(at(0), second, at(0)), at(0), "a correction");
        assert_eq!(advance(at(0), second, at(-86_400)), at(1), "set back");
        assert_eq!(advance(at(0), second, at(86_400)), at(86_400), "set forward, or asleep");
    }
}
