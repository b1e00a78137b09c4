//! Notices: tell the human from time to time that tasks are waiting.
//!
//! A notice is only a nudge: it may be missed and is not recorded, since the page shows what waits. Decides when a
//! notice is due and what it contains: the number of waiting tasks and their subtools, never their inputs.
//! `notice/send.rs` sends it.

use std::collections::BTreeSet;

use ground::task::Task;
use jiff::{SignedDuration, Timestamp};
use protocol::wording::at_most;
use serde_json::json;

pub mod send;

/// The shortest time between two notices, however many tasks begin to wait.
pub const MIN_PAUSE: SignedDuration = SignedDuration::from_secs(30);

/// The most subtools that a notice names; a desktop notification is small.
const MAX_NAMED: usize = 5;

/// Decides when the next notice is due.
#[derive(Debug, Default)]
pub struct NoticeSchedule {
    /// How many confirmations had been asked for at the last notice, or when none was needed.
    notified: u64,
    last: Option<Timestamp>,
}

impl NoticeSchedule {
    /// Returns when the next notice is due, given the total number of confirmations asked for; `None` without a new
    /// one.
    pub fn next(&self, asked: u64) -> Option<Timestamp> {
        (asked > self.notified)
            .then(|| self.last.map_or(Timestamp::MIN, |at| at.saturating_add(MIN_PAUSE).unwrap_or(at)))
    }

    /// Whether to send a notice at `now`. If so, counts the notice as sent. `waiting` is whether any task still waits.
    pub fn take(&mut self, asked: u64, waiting: bool, now: Timestamp) -> bool {
        if self.next(asked).is_none_or(|at| at > now) {
            return false;
        }
        self.notified = asked;
        if waiting {
            self.last = Some(now);
        }
        waiting
    }
}

/// The content of a notice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    waiting: usize,
    tools: BTreeSet<String>,
    /// The address of the page, without a secret; `None` if no page is served.
    page: Option<String>,
}

impl Notice {
    pub fn of<'a>(waiting: impl Iterator<Item = &'a Task>, page: Option<String>) -> Self {
        let mut notice = Self { waiting: 0, tools: BTreeSet::new(), page };
        for task in waiting {
            notice.waiting += 1;
            notice.tools.insert(task.tool.to_string());
        }
        notice
    }

    /// The notice as JSON, for a command.
    fn event(&self) -> String {
        let Self { waiting, tools, page } = self;
        json!({"type": "confirmation.waiting", "waiting": waiting, "tools": tools, "page": page}).to_string()
    }

    /// The title and the body of a desktop notification.
    fn text(&self) -> (String, String) {
        let title = match self.waiting {
            1 => "A task waits for your yes".to_owned(),
            count => format!("{count} tasks wait for your yes"),
        };
        (title, at_most(MAX_NAMED, &self.tools))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    #[test]
    fn the_first_confirmation_causes_a_notice_immediately_and_later_ones_share_one() {
        let mut notices = NoticeSchedule::default();
        assert_eq!((notices.next(0), notices.take(0, false, at(0))), (None, false));
        assert!(notices.take(1, true, at(10)));
        assert_eq!(notices.next(1), None, "the notice was sent");
        for asked in 2..50 {
            assert!(!notices.take(asked, true, at(39)));
        }
        assert_eq!(notices.next(50), Some(at(40)));
        assert!(notices.take(50, true, at(40)) && !notices.take(50, true, at(400)));
    }

    #[test]
    fn a_confirmation_that_was_decided_meanwhile_causes_no_notice() {
        let mut notices = NoticeSchedule::default();
        assert!(notices.take(1, true, at(0)));
        assert!(!notices.take(2, false, at(30)), "no task is waiting");
        assert_eq!(notices.next(2), None);
        assert!(notices.take(3, true, at(31)), "the first notice was long enough ago");
    }

    #[test]
    fn a_notice_contains_only_the_count_and_the_subtools() {
        let mut tasks = Vec::new();
        for tool in ["send", "pay", "send", "c", "d", "e", "f"] {
            let mut task = ground::task::sample::stored(None);
            task.tool = tool.parse().expect("a name");
            tasks.push(task);
        }
        let all = Notice::of(tasks.iter(), Some("http://amt-1.localhost:1".to_owned()));
        assert_eq!(all.text(), ("7 tasks wait for your yes".to_owned(), "c, d, e, f, pay and 1 more".to_owned()));
        let one = Notice::of(tasks.iter().take(1), None);
        assert_eq!(one.text(), ("A task waits for your yes".to_owned(), "send".to_owned()));
        let expected = json!({"type": "confirmation.waiting", "waiting": 1, "tools": ["send"], "page": null});
        assert_eq!(one.event(), expected.to_string());
    }
}
