//! How much is open: of every caller, and in all.
//!
//! A caller that asks for more than it may is refused, and told when there will be room. The session
//! is the caller's own word, so what holds against a hostile one is the limit on all of them.

use std::collections::{BTreeSet, HashMap};

use protocol::code::Code;
use protocol::error::ErrorBody;
use protocol::layout::compact_bytes;
use protocol::task::TaskId;

use super::fair_queue::{QueueKey, queue_key};
use super::{DispatcherLimits, OpenTaskLimit};
use crate::task::Task;

/// The open tasks and their inputs' bytes.
#[derive(Debug, Default)]
pub(super) struct Quotas {
    all: QuotaUsage,
    queues: HashMap<QueueKey, QuotaUsage>,
}

#[derive(Debug, Default)]
struct QuotaUsage {
    /// Ids sort by time: the first is the oldest.
    tasks: BTreeSet<TaskId>,
    bytes: u64,
}

impl Quotas {
    pub(super) fn add(&mut self, task: &Task) {
        let bytes = input_bytes(task);
        self.all.add(task.id, bytes);
        self.queues.entry(queue_key(&task.caller)).or_default().add(task.id, bytes);
    }

    pub(super) fn remove(&mut self, task: &Task) {
        let (bytes, queue_key) = (input_bytes(task), queue_key(&task.caller));
        self.all.remove(task.id, bytes);
        if let Some(share) = self.queues.get_mut(&queue_key) {
            share.remove(task.id, bytes);
            if share.tasks.is_empty() {
                self.queues.remove(&queue_key);
            }
        }
    }

    /// Why `task` is one too many, if it is. What is open already is never touched, even if it is more
    /// than the limits, which may have been lowered.
    pub(super) fn refuse(&self, task: &Task, limits: DispatcherLimits) -> Option<ErrorBody> {
        let bytes = input_bytes(task);
        let own = self.queues.get(&queue_key(&task.caller));
        let (whose, exceeded, most, share) = match own.and_then(|own| own.exceeded(bytes, limits.open_per_session)) {
            Some(exceeded) => (" of this session", exceeded, limits.open_per_session, own?),
            None if bytes > limits.open_per_session.bytes => {
                return Some(never(bytes, limits.open_per_session));
            }
            None => ("", self.all.exceeded(bytes, limits.open)?, limits.open, &self.all),
        };
        let (message, most) = match exceeded {
            QuotaExceeded::Tasks => {
                (format!("{} tasks{whose} are open; the most is {}", share.tasks.len(), most.tasks), most.tasks as u64)
            }
            QuotaExceeded::Bytes => {
                let message = format!(
                    "the inputs of open tasks{whose} have {} bytes, and this one {bytes}; the most is {}",
                    share.bytes, most.bytes
                );
                (message, most.bytes)
            }
        };
        let hint = match own.and_then(|own| own.tasks.first()) {
            Some(oldest) => format!("come back when a task has ended; your oldest one: agent-magic-tool wait {oldest}"),
            None => "others have filled it; try again in a minute".to_owned(),
        };
        Some(
            ErrorBody::new(Code::Throttled, message).hint(hint).detail("limit", most).detail("open", share.tasks.len()),
        )
    }
}

/// An input that is larger than all inputs together may be.
fn never(bytes: u64, most: OpenTaskLimit) -> ErrorBody {
    ErrorBody::new(
        Code::Throttled,
        format!("the input has {bytes} bytes; all open tasks of a session may have {}", most.bytes),
    )
    .hint("put large data into a file and pass its path")
    .detail("limit", most.bytes)
}

enum QuotaExceeded {
    Tasks,
    Bytes,
}

impl QuotaUsage {
    fn add(&mut self, id: TaskId, bytes: u64) {
        if self.tasks.insert(id) {
            self.bytes += bytes;
        }
    }

    fn remove(&mut self, id: TaskId, bytes: u64) {
        if self.tasks.remove(&id) {
            self.bytes -= bytes;
        }
    }

    fn exceeded(&self, bytes: u64, most: OpenTaskLimit) -> Option<QuotaExceeded> {
        if self.tasks.len() >= most.tasks {
            Some(QuotaExceeded::Tasks)
        } else {
            (self.bytes + bytes > most.bytes).then_some(QuotaExceeded::Bytes)
        }
    }
}

/// The input never changes once it was accepted, so neither does this.
fn input_bytes(task: &Task) -> u64 {
    let punctuation = 2 + 2 * task.input.len() as u64;
    task.input.iter().fold(punctuation, |bytes, (key, value)| bytes + key.len() as u64 + compact_bytes(value))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use protocol::caller::Caller;
    use serde_json::json;

    use super::super::tests::limits;
    use super::*;
    use crate::task::effect::EffectClass;

    fn of(uid: u32, session: &str, text: &str) -> Task {
        let mut task = Task::sample("t", EffectClass::Once, Timestamp::UNIX_EPOCH);
        task.caller = Caller { uid, session: Some(session.to_owned()), ..Caller::default() };
        task.input.insert("text".to_owned(), json!(text));
        task
    }

    fn refusal(load: &Quotas, task: &Task, limits: DispatcherLimits) -> Option<(String, String)> {
        let error = load.refuse(task, limits)?;
        assert_eq!(error.code, Code::Throttled);
        Some((error.message, error.hint.expect("a hint")))
    }

    #[test]
    fn each_session_has_its_share_and_learns_when_to_come_back() {
        let limits = DispatcherLimits {
            open: OpenTaskLimit { tasks: 3, bytes: 1000 },
            open_per_session: OpenTaskLimit { tasks: 2, bytes: 600 },
            ..limits(1)
        };
        let mut load = Quotas::default();
        let busy = [of(1, "a", "x"), of(1, "a", "x")];
        for task in &busy {
            assert_eq!(refusal(&load, task, limits), None);
            load.add(task);
        }
        let (message, hint) = refusal(&load, &of(1, "a", "x"), limits).expect("refused");
        assert_eq!(message, "2 tasks of this session are open; the most is 2");
        assert!(hint.contains(&format!("agent-magic-tool wait {}", busy[0].id)), "{hint}");
        for other in [of(1, "b", "x"), of(2, "a", "x")] {
            assert_eq!(refusal(&load, &other, limits), None, "sessions and users have shares of their own");
        }
        let third = of(2, "a", "x");
        load.add(&third);
        assert_eq!(
            refusal(&load, &of(3, "c", "x"), limits),
            Some((
                "3 tasks are open; the most is 3".to_owned(),
                "others have filled it; try again in a minute".to_owned()
            ))
        );
        load.remove(&busy[0]);
        load.remove(&busy[0]);
        assert_eq!(refusal(&load, &of(1, "a", "x"), limits), None, "who ended makes room");
    }

    #[test]
    fn bytes_are_limited_as_well() {
        let limits = DispatcherLimits {
            open: OpenTaskLimit { tasks: 100, bytes: 1000 },
            open_per_session: OpenTaskLimit { tasks: 100, bytes: 600 },
            ..limits(1)
        };
        let mut load = Quotas::default();
        let text = "x".repeat(400);
        let tasks = [of(1, "a", &text), of(1, "b", &text)];
        load.add(&tasks[0]);
        let (message, _) = refusal(&load, &of(1, "a", &text), limits).expect("refused");
        assert_eq!(
            message,
            "the inputs of open tasks of this session have 410 bytes, and this one 410; the most is 600"
        );
        load.add(&tasks[1]);
        let (message, _) = refusal(&load, &of(1, "c", &text), limits).expect("refused");
        assert_eq!(message, "the inputs of open tasks have 820 bytes, and this one 410; the most is 1000");
        let (message, _) = refusal(&load, &of(1, "c", &"x".repeat(700)), limits).expect("refused");
        assert_eq!(message, "the input has 710 bytes; all open tasks of a session may have 600");
        for task in &tasks {
            load.remove(task);
        }
        assert_eq!((load.all.bytes, load.queues.len()), (0, 0), "nothing is kept of a caller without tasks");
    }
}
