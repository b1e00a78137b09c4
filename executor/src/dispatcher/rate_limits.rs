//! Rate limits: when each session last called each limited subtool.

use std::collections::{HashMap, VecDeque};

use jiff::{SignedDuration, Timestamp};
use protocol::caller::Caller;
use protocol::code::Code;
use protocol::error::ErrorBody;

use super::fair_queue::{QueueKey, queue_key};
use crate::catalog::definition::RateLimit;
use crate::task::name::SubtoolName;

/// So many windows are kept before those that are empty by now are looked for.
const TIDY_FROM: usize = 1_000;

/// The accepted calls of every subtool that has a limit, by the session that made them.
#[derive(Debug, Default)]
pub(super) struct RateLimits {
    calls: HashMap<(QueueKey, SubtoolName), RateWindow>,
    /// Twice as many as there were when the empty ones were dropped last.
    tidy_at: usize,
}

#[derive(Debug)]
struct RateWindow {
    per: SignedDuration,
    calls: VecDeque<Timestamp>,
}

impl RateLimits {
    /// Why a call at `now` is one too many, if it is. Counts nothing: a refused call costs nothing.
    pub(super) fn refuse(
        &mut self,
        caller: &Caller,
        tool: &SubtoolName,
        limit: RateLimit,
        now: Timestamp,
    ) -> Option<ErrorBody> {
        if limit.calls == 0 {
            return None;
        }
        let window = self.calls.get_mut(&(queue_key(caller), tool.clone()))?;
        window.per = length(limit);
        window.forget(now);
        let (per, calls) = (window.per, &window.calls);
        if calls.len() < limit.calls as usize {
            return None;
        }
        // Enough of them must leave the window, which is more than one after a limit was lowered.
        let leaves = calls.get(calls.len() - limit.calls as usize).map_or(now, |at| *at);
        let wait = per - now.duration_since(leaves);
        let message = format!("`{tool}` allows a session {} calls per {}", limit.calls, limit.per);
        Some(
            ErrorBody::new(Code::RateLimited, message)
                .hint(format!("try again in {}s", wait.as_secs() + 1))
                .detail("retry_after_ms", i64::try_from(wait.as_millis()).unwrap_or(i64::MAX)),
        )
    }

    pub(super) fn count(&mut self, caller: &Caller, tool: &SubtoolName, limit: RateLimit, now: Timestamp) {
        if limit.calls == 0 {
            return;
        }
        if self.calls.len() >= self.tidy_at.max(TIDY_FROM) {
            self.calls.values_mut().for_each(|window| window.forget(now));
            self.calls.retain(|_, window| !window.calls.is_empty());
            self.tidy_at = 2 * self.calls.len();
        }
        let empty = || RateWindow { per: length(limit), calls: VecDeque::new() };
        let calls = &mut self.calls.entry((queue_key(caller), tool.clone())).or_insert_with(empty).calls;
        // At the end, unless the clock was set back or calls are remembered out of order.
        let place = calls.partition_point(|at| *at <= now);
        calls.insert(place, now);
    }
}

impl RateWindow {
    fn forget(&mut self, now: Timestamp) {
        while self.calls.front().is_some_and(|at| now.duration_since(*at) >= self.per) {
            self.calls.pop_front();
        }
    }
}

fn length(limit: RateLimit) -> SignedDuration {
    SignedDuration::try_from(limit.per.get()).unwrap_or(SignedDuration::MAX)
}

#[cfg(test)]
mod tests {
    use protocol::duration::PositiveDuration;

    use super::*;

    #[test]
    fn sessions_that_are_gone_are_forgotten() {
        let mut windows = RateLimits::default();
        let limit = RateLimit { calls: 1, per: PositiveDuration::from_secs(1), auto_disable: false };
        let tool = "t".parse().expect("a name");
        for second in 0..5_000 {
            let caller = Caller { uid: 1, session: Some(second.to_string()), ..Caller::default() };
            windows.count(&caller, &tool, limit, Timestamp::from_second(second).expect("a time"));
        }
        assert!(windows.calls.len() <= TIDY_FROM, "{}", windows.calls.len());
    }
}
