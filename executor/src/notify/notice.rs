//! Notices: a human is told now and then that something waits for them.
//!
//! A nudge, which may be missed and is not recorded; the page is the truth. Decides when, and what is
//! said: how many tasks wait and which subtools they are for, never what is in them. `notice/send.rs`
//! says it.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::task::Task;

pub mod send;

/// However many questions come, no notice comes sooner after the one before.
pub const PAUSE: SignedDuration = SignedDuration::from_secs(30);

/// Subtools that are named to a human; a screen is small.
const NAMED: usize = 5;

/// When the next one is to be given.
#[derive(Debug, Default)]
pub struct NoticeSchedule {
    /// Of how many questions, of all that were ever asked, was told.
    told: u64,
    last: Option<Timestamp>,
}

impl NoticeSchedule {
    /// When to tell, if so many questions were asked so far.
    pub fn next(&self, asked: u64) -> Option<Timestamp> {
        (asked > self.told).then(|| self.last.map_or(Timestamp::MIN, |at| at.saturating_add(PAUSE).unwrap_or(at)))
    }

    /// Whether to tell now; it is not told a second time. `waiting`: whether anything still waits.
    pub fn take(&mut self, asked: u64, waiting: bool, now: Timestamp) -> bool {
        if self.next(asked).is_none_or(|at| at > now) {
            return false;
        }
        self.told = asked;
        if waiting {
            self.last = Some(now);
        }
        waiting
    }
}

/// What is said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    waiting: usize,
    tools: BTreeSet<String>,
    /// Where it can be confirmed: the page's address without any secret; `None` if none is served.
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

    /// As a command gets it.
    fn event(&self) -> String {
        let Self { waiting, tools, page } = self;
        json!({"type": "confirmation.waiting", "waiting": waiting, "tools": tools, "page": page}).to_string()
    }

    /// As a human reads it on a desktop: a title, and what stands below.
    fn words(&self) -> (String, String) {
        let title = match self.waiting {
            1 => "A task waits for your yes".to_owned(),
            count => format!("{count} tasks wait for your yes"),
        };
        let named: Vec<_> = self.tools.iter().take(NAMED).map(String::as_str).collect();
        let more = match self.tools.len() - named.len() {
            0 => String::new(),
            count => format!(" and {count} more"),
        };
        (title, format!("{}{more}", named.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    #[test]
    fn the_first_question_is_told_at_once_and_what_follows_together() {
        let mut notices = NoticeSchedule::default();
        assert_eq!((notices.next(0), notices.take(0, false, at(0))), (None, false));
        assert!(notices.take(1, true, at(10)));
        assert_eq!(notices.next(1), None, "told once");
        for asked in 2..50 {
            assert!(!notices.take(asked, true, at(39)));
        }
        assert_eq!(notices.next(50), Some(at(40)));
        assert!(notices.take(50, true, at(40)) && !notices.take(50, true, at(400)));
    }

    #[test]
    fn what_was_decided_meanwhile_is_not_told() {
        let mut notices = NoticeSchedule::default();
        assert!(notices.take(1, true, at(0)));
        assert!(!notices.take(2, false, at(30)), "it waits no more");
        assert_eq!(notices.next(2), None);
        assert!(notices.take(3, true, at(31)), "none was given since the first");
    }

    #[test]
    fn it_names_subtools_and_counts_and_says_nothing_else() {
        let mut tasks = Vec::new();
        for tool in ["send", "pay", "send", "c", "d", "e", "f"] {
            let mut task = crate::store::contract::task(None);
            task.tool = tool.parse().expect("a name");
            tasks.push(task);
        }
        let all = Notice::of(tasks.iter(), Some("http://amt-1.localhost:1".to_owned()));
        assert_eq!(all.words(), ("7 tasks wait for your yes".to_owned(), "c, d, e, f, pay and 1 more".to_owned()));
        let one = Notice::of(tasks.iter().take(1), None);
        assert_eq!(one.words(), ("A task waits for your yes".to_owned(), "send".to_owned()));
        let expected = json!({"type": "confirmation.waiting", "waiting": 1, "tools": ["send"], "page": null});
        assert_eq!(one.event(), expected.to_string());
    }
}
