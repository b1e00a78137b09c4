//! Quotas: limit the open tasks and the size of their inputs, for each session and in total.
//!
//! A refusal says when to try again. A caller can choose any session name, so only the total limit stops a hostile
//! one.

use std::collections::{BTreeSet, HashMap};

use ground::task::Task;
use protocol::code::Code;
use protocol::error::ErrorBody;
use protocol::layout::compact_bytes;
use protocol::task::TaskId;
use protocol::wording::counted;

use super::fair_queue::{QueueKey, queue_key};
use super::{DispatcherLimits, OpenTaskLimit};

/// The open tasks and the size of their inputs.
#[derive(Debug, Default)]
pub(super) struct Quotas {
    total: QuotaUsage,
    per_session: HashMap<QueueKey, QuotaUsage>,
}

#[derive(Debug, Default)]
struct QuotaUsage {
    /// Ids sort by time, so the first is the oldest.
    tasks: BTreeSet<TaskId>,
    bytes: u64,
}

impl Quotas {
    pub(super) fn add(&mut self, task: &Task) {
        let bytes = compact_bytes(&task.input);
        self.total.add(task.id, bytes);
        self.per_session.entry(queue_key(&task.caller)).or_default().add(task.id, bytes);
    }

    pub(super) fn remove(&mut self, task: &Task) {
        let (bytes, queue_key) = (compact_bytes(&task.input), queue_key(&task.caller));
        self.total.remove(task.id, bytes);
        if let Some(usage) = self.per_session.get_mut(&queue_key) {
            usage.remove(task.id, bytes);
            if usage.tasks.is_empty() {
                self.per_session.remove(&queue_key);
            }
        }
    }

    /// Returns the refusal if `task` exceeds a limit. Tasks that are already open stay open, even if lowered limits
    /// would not allow them.
    pub(super) fn refuse(&self, task: &Task, limits: DispatcherLimits) -> Option<ErrorBody> {
        let bytes = compact_bytes(&task.input);
        let own = self.per_session.get(&queue_key(&task.caller));
        let (whose, exceeded, limit, usage) = match own.and_then(|own| own.exceeded(bytes, limits.open_per_session)) {
            Some(exceeded) => (" of this session", exceeded, limits.open_per_session, own?),
            None if bytes > limits.open_per_session.bytes => {
                return Some(too_large(bytes, limits.open_per_session));
            }
            None => ("", self.total.exceeded(bytes, limits.open)?, limits.open, &self.total),
        };
        let open = usage.tasks.len();
        let (message, limit) = match exceeded {
            QuotaExceeded::Tasks => {
                let are = if open == 1 { "is" } else { "are" };
                (
                    format!("{}{whose} {are} open; the limit is {}", counted(open, "task"), limit.tasks),
                    limit.tasks as u64,
                )
            }
            QuotaExceeded::Bytes => {
                let message = format!(
                    "the inputs of open tasks{whose} have {} bytes, and this one has {bytes}; the limit is {}",
                    usage.bytes, limit.bytes
                );
                (message, limit.bytes)
            }
        };
        let hint = match own.and_then(|own| own.tasks.first()) {
            Some(oldest) => format!("try again when a task has ended; your oldest one: agent-magic-tool wait {oldest}"),
            None => "other sessions use all of it; try again in a minute".to_owned(),
        };
        Some(ErrorBody::new(Code::Throttled, message).hint(hint).detail("limit", limit).detail("open", open))
    }
}

/// The refusal of an input that alone exceeds the limit for all inputs of a session.
fn too_large(bytes: u64, limit: OpenTaskLimit) -> ErrorBody {
    let message = format!("the input has {bytes} bytes; the limit for all open tasks of a session is {}", limit.bytes);
    ErrorBody::new(Code::Throttled, message)
        .hint("put large data into a file and pass its path")
        .detail("limit", limit.bytes)
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

    fn exceeded(&self, bytes: u64, limit: OpenTaskLimit) -> Option<QuotaExceeded> {
        if self.tasks.len() >= limit.tasks {
            Some(QuotaExceeded::Tasks)
        } else {
            (self.bytes + bytes > limit.bytes).then_some(QuotaExceeded::Bytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use ground::task::effect::EffectClass;
    use jiff::Timestamp;
    use protocol::caller::Caller;
    use serde_json::json;

    use super::super::tests::limits;
    use super::*;

    fn of(uid: u32, session: &str, text: &str) -> Task {
        let mut task = Task::sample("t", EffectClass::Once, Timestamp::UNIX_EPOCH);
        task.caller = Caller { uid, session: Some(session.to_owned()), ..Caller::default() };
        task.input.insert("text".to_owned(), json!(text));
        task
    }

    fn refusal(quotas: &Quotas, task: &Task, limits: DispatcherLimits) -> Option<(String, String)> {
        let error = quotas.refuse(task, limits)?;
        assert_eq!(error.code, Code::Throttled);
        Some((error.message, error.hint.expect("a hint")))
    }

    #[test]
    fn each_session_has_its_own_quota_and_a_refusal_says_when_to_try_again() {
        let limits = DispatcherLimits {
            open: OpenTaskLimit { tasks: 3, bytes: 1000 },
            open_per_session: OpenTaskLimit { tasks: 2, bytes: 600 },
            ..limits(1)
        };
        let mut quotas = Quotas::default();
        let busy = [of(1, "a", "x"), of(1, "a", "x")];
        for task in &busy {
            assert_eq!(refusal(&quotas, task, limits), None);
            quotas.add(task);
        }
        let (message, hint) = refusal(&quotas, &of(1, "a", "x"), limits).expect("refused");
        assert_eq!(message, "2 tasks of this session are open; the limit is 2");
        assert!(hint.contains(&format!("agent-magic-tool wait {}", busy[0].id)), "{hint}");
        for other in [of(1, "b", "x"), of(2, "a", "x")] {
            assert_eq!(refusal(&quotas, &other, limits), None, "each session and user has its own quota");
        }
        let third = of(2, "a", "x");
        quotas.add(&third);
        assert_eq!(
            refusal(&quotas, &of(3, "c", "x"), limits),
            Some((
                "3 tasks are open; the limit is 3".to_owned(),
                "other sessions use all of it; try again in a minute".to_owned()
            ))
        );
        quotas.remove(&busy[0]);
        quotas.remove(&busy[0]);
        assert_eq!(refusal(&quotas, &of(1, "a", "x"), limits), None, "an ended task frees its quota");
    }

    #[test]
    fn bytes_are_limited_as_well() {
        let limits = DispatcherLimits {
            open: OpenTaskLimit { tasks: 100, bytes: 1000 },
            open_per_session: OpenTaskLimit { tasks: 100, bytes: 600 },
            ..limits(1)
        };
        let mut quotas = Quotas::default();
        let text = "x".repeat(400);
        let tasks = [of(1, "a", &text), of(1, "b", &text)];
        quotas.add(&tasks[0]);
        let (message, _) = refusal(&quotas, &of(1, "a", &text), limits).expect("refused");
        assert_eq!(
            message,
            "the inputs of open tasks of this session have 411 bytes, and this one has 411; the limit is 600"
        );
        quotas.add(&tasks[1]);
        let (message, _) = refusal(&quotas, &of(1, "c", &text), limits).expect("refused");
        assert_eq!(message, "the inputs of open tasks have 822 bytes, and this one has 411; the limit is 1000");
        let (message, _) = refusal(&quotas, &of(1, "c", &"x".repeat(700)), limits).expect("refused");
        assert_eq!(message, "the input has 711 bytes; the limit for all open tasks of a session is 600");
        for task in &tasks {
            quotas.remove(task);
        }
        assert_eq!(
            (quotas.total.bytes, quotas.per_session.len()),
            (0, 0),
            "a caller without tasks leaves nothing behind"
        );
    }
}
