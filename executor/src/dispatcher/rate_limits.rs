//! Rate limits: sliding windows of the calls of each session to each limited subtool.

use std::collections::{HashMap, VecDeque};

use jiff::{SignedDuration, Timestamp};
use protocol::caller::Caller;
use protocol::code::Code;
use protocol::error::ErrorBody;

use super::fair_queue::{QueueKey, queue_key};
use crate::config::RateLimit;
use crate::task::name::SubtoolName;

/// The number of windows below which empty ones are never pruned.
const MIN_PRUNED_WINDOWS: usize = 1_000;

/// What a rate limit counts the calls of.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RateLimitKey {
    Tool(SubtoolName),
    /// All subtools with this tag.
    Tag(String),
}

/// A rate limit that applies to a call.
#[derive(Debug, Clone)]
pub struct AppliedRateLimit {
    pub key: RateLimitKey,
    pub limit: RateLimit,
    /// When a human switched the subtool on again: calls up to then do not count any more.
    pub switched_on: Option<Timestamp>,
}

impl AppliedRateLimit {
    pub fn new(key: RateLimitKey, limit: RateLimit) -> Self {
        Self { key, limit, switched_on: None }
    }

    /// Returns who is limited, for messages.
    fn subject(&self) -> String {
        match &self.key {
            RateLimitKey::Tool(tool) => format!("`{tool}` allows"),
            RateLimitKey::Tag(tag) => format!("the subtools with the tag `{tag}` allow"),
        }
    }
}

/// The recent calls of each session to each subtool, and to the subtools of each tag, with a rate limit.
#[derive(Debug, Default)]
pub(super) struct RateLimits {
    windows: HashMap<(QueueKey, RateLimitKey), RateWindow>,
    /// Prune when there are this many windows: twice as many as were left after the last time.
    prune_at: usize,
}

#[derive(Debug)]
struct RateWindow {
    per: SignedDuration,
    calls: VecDeque<Timestamp>,
}

impl RateLimits {
    /// Returns the refusal if a call at `now` exceeds the limit. Does not count the call.
    pub(super) fn refuse(&mut self, caller: &Caller, applied: &AppliedRateLimit, now: Timestamp) -> Option<ErrorBody> {
        let limit = applied.limit;
        if limit.calls == 0 {
            return None;
        }
        let window = self.windows.get_mut(&(queue_key(caller), applied.key.clone()))?;
        window.per = length(limit);
        window.forget(now);
        let per = window.per;
        let first = applied.switched_on.map_or(0, |since| window.calls.partition_point(|at| *at <= since));
        let counted = window.calls.len() - first;
        if counted < limit.calls as usize {
            return None;
        }
        // After the limit was lowered, more than one call must leave the window.
        let last_to_leave = window.calls.get(window.calls.len() - limit.calls as usize).map_or(now, |at| *at);
        let wait = per - now.duration_since(last_to_leave);
        let message = format!("{} a session {} calls per {}", applied.subject(), limit.calls, limit.per);
        Some(
            ErrorBody::new(Code::RateLimited, message)
                .hint(format!("try again in {}s", wait.as_secs() + 1))
                .detail("retry_after_ms", i64::try_from(wait.as_millis()).unwrap_or(i64::MAX)),
        )
    }

    /// Counts a call at `now`.
    pub(super) fn count(&mut self, caller: &Caller, applied: &AppliedRateLimit, now: Timestamp) {
        let limit = applied.limit;
        if limit.calls == 0 {
            return;
        }
        if self.windows.len() >= self.prune_at.max(MIN_PRUNED_WINDOWS) {
            self.windows.values_mut().for_each(|window| window.forget(now));
            self.windows.retain(|_, window| !window.calls.is_empty());
            self.prune_at = 2 * self.windows.len();
        }
        let empty = || RateWindow { per: length(limit), calls: VecDeque::new() };
        let calls = &mut self.windows.entry((queue_key(caller), applied.key.clone())).or_insert_with(empty).calls;
        // This is the end, unless the clock was set back or calls are restored out of order.
        let index = calls.partition_point(|at| *at <= now);
        calls.insert(index, now);
    }
}

impl RateWindow {
    /// Drops the calls that have left the window.
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
    fn the_windows_of_inactive_sessions_are_pruned() {
        let mut limits = RateLimits::default();
        let limit = RateLimit { calls: 1, per: PositiveDuration::from_secs(1), auto_disable: false };
        let applied = AppliedRateLimit::new(RateLimitKey::Tag("mail".to_owned()), limit);
        for second in 0..5_000 {
            let caller = Caller { uid: 1, session: Some(second.to_string()), ..Caller::default() };
            limits.count(&caller, &applied, Timestamp::from_second(second).expect("a time"));
        }
        assert!(limits.windows.len() <= MIN_PRUNED_WINDOWS, "{}", limits.windows.len());
    }
}
