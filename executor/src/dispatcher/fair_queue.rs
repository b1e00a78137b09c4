//! Whose turn it is: callers wait in line, and are served one task each in turn.
//!
//! A caller with a hundred tasks delays another caller's first task by one place, not by a hundred.
//! Decides only the order; how many may run at once is the dispatcher's.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use protocol::caller::Caller;
use protocol::task::TaskId;

use super::slots::SlotKind;

/// A caller as far as fairness goes: a user's sessions do not starve each other either.
pub(super) type QueueKey = (u32, Option<String>);

/// The waiting tasks of every caller.
#[derive(Debug, Default)]
pub(super) struct FairQueue {
    /// By kind, so that one whose places are all taken is passed over in one step, however many
    /// of its tasks wait. Each task with the number of its arrival.
    queues: BTreeMap<QueueKey, BTreeMap<SlotKind, VecDeque<(u64, TaskId)>>>,
    /// The one that was served last; the next one is served first.
    last: Option<QueueKey>,
    arrivals: u64,
    /// How many of those that wait will wait for others when they run.
    delegates: usize,
}

impl FairQueue {
    pub(super) fn join(&mut self, caller: &Caller, kind: SlotKind, id: TaskId) {
        self.arrivals += 1;
        self.delegates += usize::from(kind.delegates_at.is_some());
        let key = self.queues.entry(queue_key(caller)).or_default();
        key.entry(kind).or_default().push_back((self.arrivals, id));
    }

    /// Takes a task out that will not start. Without effect if it does not wait here.
    pub(super) fn leave(&mut self, caller: &Caller, kind: &SlotKind, id: TaskId) {
        let key = queue_key(caller);
        let Some(queue) = self.queues.get_mut(&key).and_then(|queues| queues.get_mut(kind)) else { return };
        let before = queue.len();
        queue.retain(|(_, waiting)| *waiting != id);
        if kind.delegates_at.is_some() {
            self.delegates -= before - queue.len();
        }
        self.drop_if_empty(&key, kind);
    }

    /// The task whose turn it is, of those whose kind `has_place`: of the next caller the one that
    /// waits longest.
    pub(super) fn next(&mut self, has_place: impl Fn(&SlotKind) -> bool) -> Option<TaskId> {
        let free = |queues: &BTreeMap<SlotKind, VecDeque<(u64, TaskId)>>| {
            let fronts = queues.iter().filter(|(kind, _)| has_place(kind)).filter_map(|(kind, queue)| {
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
    (caller.uid, caller.session.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(session: &str) -> Caller {
        Caller { uid: 1, session: Some(session.to_owned()), ..Caller::default() }
    }

    fn tool(name: &str) -> SlotKind {
        SlotKind { tool: name.parse().expect("a name"), delegates_at: None }
    }

    #[test]
    fn callers_take_turns_and_each_is_served_in_order() {
        let mut lines = FairQueue::default();
        let ids: Vec<_> = (0..6).map(|_| TaskId::new()).collect();
        for id in &ids[..4] {
            lines.join(&caller("busy"), tool("a"), *id);
        }
        for id in &ids[4..] {
            lines.join(&caller("other"), tool("a"), *id);
        }
        let order: Vec<_> = std::iter::from_fn(|| lines.next(|_| true)).collect();
        assert_eq!(order, [ids[0], ids[4], ids[1], ids[5], ids[2], ids[3]]);
    }

    #[test]
    fn a_subtool_without_a_place_is_passed_over() {
        let mut lines = FairQueue::default();
        let (full, free) = (TaskId::new(), TaskId::new());
        lines.join(&caller("s"), tool("full"), full);
        lines.join(&caller("s"), tool("free"), free);
        assert_eq!(lines.next(|kind| kind.tool.as_str() == "free"), Some(free));
        assert_eq!(lines.next(|kind| kind.tool.as_str() == "free"), None);
        assert_eq!(lines.next(|_| true), Some(full));
    }

    #[test]
    fn who_leaves_is_not_served() {
        let mut lines = FairQueue::default();
        let (gone, stays) = (TaskId::new(), TaskId::new());
        lines.join(&caller("s"), tool("a"), gone);
        lines.join(&caller("s"), tool("a"), stays);
        lines.leave(&caller("s"), &tool("a"), gone);
        lines.leave(&caller("s"), &tool("a"), gone);
        assert_eq!(lines.next(|_| true), Some(stays));
        assert_eq!(lines.next(|_| true), None);
        assert!(lines.queues.is_empty(), "nothing is kept of a caller without tasks");
    }
}
