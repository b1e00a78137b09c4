//! A fair queue: serves callers round-robin, one task each.
//!
//! A caller with a hundred tasks delays another caller's first task by one task, not by a hundred. The queue decides
//! only the order; the dispatcher decides how many tasks may run.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use protocol::caller::Caller;
use protocol::task::TaskId;

use super::slots::SlotKind;

/// The unit of fairness: one session of a user, so that sessions of the same user do not starve each other either; of a
/// server that several clients share, one client.
pub(super) type QueueKey = (u32, Option<String>);

/// The queued tasks of every caller.
#[derive(Debug, Default)]
pub(super) struct FairQueue {
    /// By slot kind, so that a kind without a free slot is skipped in one step. Each task has its arrival number.
    queues: BTreeMap<QueueKey, BTreeMap<SlotKind, VecDeque<(u64, TaskId)>>>,
    /// The caller that was served last; the search starts after it.
    last: Option<QueueKey>,
    arrivals: u64,
    /// The number of queued tasks that delegate.
    delegates: usize,
}

impl FairQueue {
    pub(super) fn push(&mut self, caller: &Caller, kind: SlotKind, id: TaskId) {
        self.arrivals += 1;
        self.delegates += usize::from(kind.delegates_at.is_some());
        let key = self.queues.entry(queue_key(caller)).or_default();
        key.entry(kind).or_default().push_back((self.arrivals, id));
    }

    /// Removes a task that will not start. Does nothing if it is not queued.
    pub(super) fn remove(&mut self, caller: &Caller, kind: &SlotKind, id: TaskId) {
        let key = queue_key(caller);
        let Some(queue) = self.queues.get_mut(&key).and_then(|queues| queues.get_mut(kind)) else { return };
        let before = queue.len();
        queue.retain(|(_, waiting)| *waiting != id);
        if kind.delegates_at.is_some() {
            self.delegates -= before - queue.len();
        }
        self.drop_if_empty(&key, kind);
    }

    /// Takes out the oldest task, of the next caller in turn, whose kind `has_slot`.
    pub(super) fn pop(&mut self, has_slot: impl Fn(&SlotKind) -> bool) -> Option<TaskId> {
        let free = |queues: &BTreeMap<SlotKind, VecDeque<(u64, TaskId)>>| {
            let fronts = queues.iter().filter(|(kind, _)| has_slot(kind)).filter_map(|(kind, queue)| {
                let (arrival, _) = queue.front()?;
                Some((*arrival, kind.clone()))
            });
            fronts.min().map(|(_, kind)| kind)
        };
        let found = |(key, queues): (&QueueKey, &BTreeMap<_, _>)| Some((key.clone(), free(queues)?));
        let (key, kind) = match &self.last {
            Some(last) => {
                let later = self.queues.range((Bound::Excluded(last), Bound::Unbounded));
                later.chain(self.queues.range(..=last)).find_map(found)?
            }
            None => self.queues.iter().find_map(found)?,
        };
        let (_, id) = self.queues.get_mut(&key)?.get_mut(&kind)?.pop_front()?;
        self.delegates -= usize::from(kind.delegates_at.is_some());
        self.drop_if_empty(&key, &kind);
        self.last = Some(key);
        Some(id)
    }

    pub(super) fn has_delegates(&self) -> bool {
        self.delegates > 0
    }

    fn drop_if_empty(&mut self, key: &QueueKey, kind: &SlotKind) {
        let Some(queues) = self.queues.get_mut(key) else { return };
        if queues.get(kind).is_some_and(VecDeque::is_empty) {
            queues.remove(kind);
        }
        if queues.is_empty() {
            self.queues.remove(key);
        }
    }
}

pub(super) fn queue_key(caller: &Caller) -> QueueKey {
    // All sessions of a client that shares a server with others are one, however many it makes.
    (caller.uid, caller.client().map(str::to_owned).or_else(|| caller.session.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(session: &str) -> Caller {
        Caller { uid: 1, session: Some(session.to_owned()), ..Caller::default() }
    }

    fn tool(name: &str) -> SlotKind {
        SlotKind { tool: name.parse().expect("a name"), delegates_at: None, client: None, is_suspect: false }
    }

    #[test]
    fn callers_take_turns_and_each_is_served_in_order() {
        let mut queue = FairQueue::default();
        let ids: Vec<_> = (0..6).map(|_| TaskId::new()).collect();
        for id in &ids[..4] {
            queue.push(&caller("busy"), tool("a"), *id);
        }
        for id in &ids[4..] {
            queue.push(&caller("other"), tool("a"), *id);
        }
        let order: Vec<_> = std::iter::from_fn(|| queue.pop(|_| true)).collect();
        assert_eq!(order, [ids[0], ids[4], ids[1], ids[5], ids[2], ids[3]]);
    }

    #[test]
    fn a_subtool_without_a_free_slot_is_skipped() {
        let mut queue = FairQueue::default();
        let (full, free) = (TaskId::new(), TaskId::new());
        queue.push(&caller("s"), tool("full"), full);
        queue.push(&caller("s"), tool("free"), free);
        assert_eq!(queue.pop(|kind| kind.tool.as_str() == "free"), Some(free));
        assert_eq!(queue.pop(|kind| kind.tool.as_str() == "free"), None);
        assert_eq!(queue.pop(|_| true), Some(full));
    }

    #[test]
    fn a_removed_task_is_not_served() {
        let mut queue = FairQueue::default();
        let (gone, stays) = (TaskId::new(), TaskId::new());
        queue.push(&caller("s"), tool("a"), gone);
        queue.push(&caller("s"), tool("a"), stays);
        queue.remove(&caller("s"), &tool("a"), gone);
        queue.remove(&caller("s"), &tool("a"), gone);
        assert_eq!(queue.pop(|_| true), Some(stays));
        assert_eq!(queue.pop(|_| true), None);
        assert!(queue.queues.is_empty(), "a caller without tasks leaves nothing behind");
    }
}
