//! What is shown of a task that calls others, while it runs.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use ground::task::notes::AttemptProgress;

use super::{Feedback, Invocation};

/// How many calls have ended, and which wait for a human.
#[derive(Debug)]
pub(super) struct CallsProgress {
    feedback: Feedback,
    total: Option<usize>,
    now: Mutex<CallsNow>,
}

#[derive(Debug, Default)]
struct CallsNow {
    ended: usize,
    /// What those that wait for a human are called.
    waiting: BTreeMap<String, String>,
}

impl CallsProgress {
    /// For an invocation that makes `total` calls, if that is known.
    pub(super) fn of(invocation: &Invocation, total: Option<usize>) -> Self {
        Self { feedback: invocation.feedback.clone(), total, now: Mutex::default() }
    }

    /// The call with this `key` waits for a human, who knows it as `name`.
    pub(super) fn on_waiting(&self, key: &str, name: String) {
        self.change(|now| drop(now.waiting.insert(key.to_owned(), name)));
    }

    pub(super) fn on_end(&self, key: &str) {
        self.change(|now| {
            now.ended += 1;
            now.waiting.remove(key);
        });
    }

    /// None of them is waited for any more.
    pub(super) fn on_stop(&self) {
        self.change(|now| now.waiting.clear());
    }

    fn change(&self, change: impl FnOnce(&mut CallsNow)) {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut now);
        let CallsNow { ended, waiting } = &*now;
        self.feedback.progress(AttemptProgress {
            done: Some(count(*ended)),
            total: self.total.map(count),
            message: waiting.values().next().map(|name| format!("{name} waits for the user")),
            asks_human: !waiting.is_empty(),
        });
    }
}

/// A number of calls, which is small.
fn count(calls: usize) -> f64 {
    u32::try_from(calls).map_or(f64::MAX, f64::from)
}
