//! Rate limits: when each limited subtool was last called.

use std::collections::{HashMap, VecDeque};

use jiff::{SignedDuration, Timestamp};

use crate::code::Code;
use crate::subtool::{RateLimit, SubtoolName};
use crate::task::ErrorBody;

/// The accepted calls of every subtool that has a limit.
#[derive(Debug, Default)]
pub(super) struct Windows {
    calls: HashMap<SubtoolName, VecDeque<Timestamp>>,
}

impl Windows {
    /// Why a call at `now` is one too many, if it is. Counts nothing: a refused call costs nothing.
    pub(super) fn refuse(&mut self, tool: &SubtoolName, limit: RateLimit, now: Timestamp) -> Option<ErrorBody> {
        let per = SignedDuration::try_from(limit.per.get()).unwrap_or(SignedDuration::MAX);
        let window = self.calls.get_mut(tool)?;
        while window.front().is_some_and(|at| now.duration_since(*at) >= per) {
            window.pop_front();
        }
        if window.len() < limit.calls as usize {
            return None;
        }
        // Enough of them must leave the window, which is more than one after a limit was lowered.
        let leaves = window.get(window.len() - limit.calls as usize).map_or(now, |at| *at);
        let wait = per - now.duration_since(leaves);
        let message = format!("`{tool}` allows {} calls per {}", limit.calls, limit.per);
        Some(
            ErrorBody::new(Code::RateLimited, message)
                .hint(format!("try again in {}s", wait.as_secs() + 1))
                .detail("retry_after_ms", i64::try_from(wait.as_millis()).unwrap_or(i64::MAX)),
        )
    }

    pub(super) fn count(&mut self, tool: &SubtoolName, now: Timestamp) {
        let window = self.calls.entry(tool.clone()).or_default();
        // At the end, unless the clock was set back or calls are remembered out of order.
        let place = window.partition_point(|at| *at <= now);
        window.insert(place, now);
    }
}
