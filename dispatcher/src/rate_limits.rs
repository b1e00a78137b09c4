//! Rate limits: sliding windows of the calls of each session to each limited subtool, and of each Unix user.
//!
//! A caller chooses the name of its session. So all sessions of a user together have a limit too, which a new name does
//! not change.

use std::collections::{HashMap, VecDeque};

use ground::config::RateLimit;
use ground::task::name::SubtoolName;
use jiff::{SignedDuration, Timestamp};
use protocol::caller::Caller;
use protocol::code::Code;
use protocol::duration::PositiveDuration;
use protocol::error::ErrorBody;
use protocol::wording::counted;

use super::fair_queue::{QueueKey, queue_key};

/// The number of windows below which empty ones are never pruned.
const MIN_PRUNED_WINDOWS: usize = 1_000;

/// How many times the limit of a session one Unix user has in all sessions together.
const MAX_SHARES_PER_USER: u32 = 10;

/// What a rate limit counts the calls of.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RateLimitKey {
    Tool(SubtoolName),
    /// All subtools with this tag.
    Tag(String),
    /// All calls of a caller with this profile, in a window of this length.
    Profile {
        name: String,
        per: PositiveDuration,
    },
    /// All calls for this question of our own loop.
    Question(String),
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
            RateLimitKey::Profile { name, .. } => format!("the profile `{name}` allows"),
            RateLimitKey::Question(_) => "a question may make".to_owned(),
        }
    }
}

/// Whose calls a window counts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum WindowOwner {
    Session(QueueKey),
    User(u32),
    /// A client of a server that several share, or all other callers of a user together.
    Client(u32, Option<String>),
    /// All who work for one question of this user.
    Question(u32),
}

impl WindowOwner {
    /// The owners of the windows in which a call of `caller` counts.
    fn of(caller: &Caller, key: &RateLimitKey) -> Vec<Self> {
        match key {
            // What a caller calls its session changes nothing.
            RateLimitKey::Profile { .. } => vec![Self::Client(caller.uid, caller.client().map(str::to_owned))],
            RateLimitKey::Question(_) => vec![Self::Question(caller.uid)],
            RateLimitKey::Tool(_) | RateLimitKey::Tag(_) => {
                vec![Self::Session(queue_key(caller)), Self::User(caller.uid)]
            }
        }
    }

    fn max_calls(&self, limit: RateLimit) -> u32 {
        match self {
            Self::Session(_) | Self::Client(..) | Self::Question(_) => limit.calls,
            Self::User(_) => limit.calls.saturating_mul(MAX_SHARES_PER_USER),
        }
    }

    /// What the owner is allowed, for messages.
    fn share(&self, limit: RateLimit) -> String {
        let calls = counted(self.max_calls(limit), "call");
        match self {
            Self::Session(_) => format!("a session {calls} per {}", limit.per),
            Self::User(_) => format!("a user {calls} per {} in all sessions", limit.per),
            Self::Client(_, Some(_)) => format!("a client {calls} per {}", limit.per),
            Self::Question(_) => calls,
            Self::Client(_, None) => format!("{calls} per {} to all who have it without a key", limit.per),
        }
    }
}

/// The recent calls of each session and user to each subtool, and to the subtools of each tag, with a rate limit.
#[derive(Debug, Default)]
pub(super) struct RateLimits {
    windows: HashMap<(WindowOwner, RateLimitKey), RateWindow>,
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
        if applied.limit.calls == 0 {
            return None;
        }
        WindowOwner::of(caller, &applied.key).into_iter().find_map(|owner| self.refuse_owner(owner, applied, now))
    }

    fn refuse_owner(&mut self, owner: WindowOwner, applied: &AppliedRateLimit, now: Timestamp) -> Option<ErrorBody> {
        let limit = applied.limit;
        let max_calls = owner.max_calls(limit) as usize;
        let key = (owner, applied.key.clone());
        let window = self.windows.get_mut(&key)?;
        window.per = length(limit);
        window.forget(now);
        let per = window.per;
        let first = applied.switched_on.map_or(0, |since| window.calls.partition_point(|at| *at <= since));
        let counted = window.calls.len() - first;
        if counted < max_calls {
            return None;
        }
        // After the limit was lowered, more than one call must leave the window.
        let last_to_leave = window.calls.get(window.calls.len() - max_calls).map_or(now, |at| *at);
        let wait = per - now.duration_since(last_to_leave);
        let message = format!("{} {}", applied.subject(), key.0.share(limit));
        if let RateLimitKey::Question(_) = applied.key {
            return Some(ErrorBody::new(Code::BudgetExhausted, message).hint(
                "answer from what you have, and say what is missing; the user can ask again, or raise `calls` under [agent]",
            ));
        }
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
        for owner in WindowOwner::of(caller, &applied.key) {
            let empty = || RateWindow { per: length(limit), calls: VecDeque::new() };
            let calls = &mut self.windows.entry((owner, applied.key.clone())).or_insert_with(empty).calls;
            // This is the end, unless the clock was set back or calls are restored out of order.
            let index = calls.partition_point(|at| *at <= now);
            calls.insert(index, now);
        }
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
    use super::*;

    #[test]
    fn a_new_session_name_is_not_a_new_limit() {
        let mut limits = RateLimits::default();
        let limit = RateLimit { calls: 2, per: PositiveDuration::from_secs(60), auto_disable: false };
        let applied = AppliedRateLimit::new(RateLimitKey::Tag("mail".to_owned()), limit);
        let mut call = |uid, session: u32, second| {
            let now = Timestamp::from_second(second).expect("a time");
            let caller = Caller { uid, session: Some(session.to_string()), ..Caller::default() };
            let refusal = limits.refuse(&caller, &applied, now);
            if refusal.is_none() {
                limits.count(&caller, &applied, now);
            }
            refusal.map(|error| error.message)
        };
        assert_eq!((call(1, 0, 0), call(1, 0, 0)), (None, None));
        assert!(call(1, 0, 0).is_some_and(|message| message.ends_with("allow a session 2 calls per 1m")));
        for session in 1..19 {
            assert_eq!(call(1, session, 1), None);
        }
        assert!(
            call(1, 19, 1).is_some_and(|message| message.ends_with("allow a user 20 calls per 1m in all sessions"))
        );
        assert_eq!(call(2, 19, 1), None, "each user has a share");
        assert_eq!(call(1, 20, 60), None, "the window slides");
    }

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
