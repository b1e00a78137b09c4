//! Whose turn it is: callers wait in line, and are served one task each in turn.
//!
//! A caller with a hundred tasks delays another caller's first task by one place, not by a hundred.
//! Decides only the order; how many may run at once is the dispatcher's.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use crate::subtool::SubtoolName;
use crate::task::{Caller, TaskId};

/// A caller as far as fairness goes: a user's sessions do not starve each other either.
pub(super) type Party = (u32, Option<String>);

/// The waiting tasks of every caller.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// By subtool, so that one whose places are all taken is passed over in one step, however many
    /// of its tasks wait. Each task with the number of its arrival.
    parties: BTreeMap<Party, BTreeMap<SubtoolName, VecDeque<(u64, TaskId)>>>,
    /// The one that was served last; the next one is served first.
    last: Option<Party>,
    arrivals: u64,
}

impl Lines {
    pub(super) fn join(&mut self, caller: &Caller, tool: &SubtoolName, id: TaskId) {
        self.arrivals += 1;
        let party = self.parties.entry(party(caller)).or_default();
        party.entry(tool.clone()).or_default().push_back((self.arrivals, id));
    }

    /// Takes a task out that will not start. Without effect if it does not wait here.
    pub(super) fn leave(&mut self, caller: &Caller, tool: &SubtoolName, id: TaskId) {
        let party = party(caller);
        let Some(queue) = self.parties.get_mut(&party).and_then(|queues| queues.get_mut(tool)) else { return };
        queue.retain(|(_, waiting)| *waiting != id);
        self.drop_if_empty(&party, tool);
    }

    /// The task whose turn it is, of those whose subtool `has_place`: of the next caller the one that
    /// waits longest.
    pub(super) fn next(&mut self, has_place: impl Fn(&SubtoolName) -> bool) -> Option<TaskId> {
        let free = |queues: &BTreeMap<SubtoolName, VecDeque<(u64, TaskId)>>| {
            let fronts = queues.iter().filter(|(tool, _)| has_place(tool)).filter_map(|(tool, queue)| {
                let (arrival, _) = queue.front()?;
                Some((*arrival, tool.clone()))
            });
            fronts.min().map(|(_, tool)| tool)
        };
        let found = |(party, queues): (&Party, &BTreeMap<_, _>)| Some((party.clone(), free(queues)?));
        let (party, tool) = match &self.last {
            Some(last) => {
                let later = self.parties.range((Bound::Excluded(last), Bound::Unbounded));
                later.chain(self.parties.range(..=last)).find_map(found)?
            }
            None => self.parties.iter().find_map(found)?,
        };
        let (_, id) = self.parties.get_mut(&party)?.get_mut(&tool)?.pop_front()?;
        self.drop_if_empty(&party, &tool);
        self.last = Some(party);
        Some(id)
    }

    fn drop_if_empty(&mut self, party: &Party, tool: &SubtoolName) {
        let Some(queues) = self.parties.get_mut(party) else { return };
        if queues.get(tool).is_some_and(VecDeque::is_empty) {
            queues.remove(tool);
        }
        if queues.is_empty() {
            self.parties.remove(party);
        }
    }
}

pub(super) fn party(caller: &Caller) -> Party {
    (caller.uid, caller.session.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(session: &str) -> Caller {
        Caller { uid: 1, session: Some(session.to_owned()), folder: None, depth: 0, wakes: false }
    }

    fn tool(name: &str) -> SubtoolName {
        name.parse().expect("a name")
    }

    #[test]
    fn callers_take_turns_and_each_is_served_in_order() {
        let mut lines = Lines::default();
        let ids: Vec<_> = (0..6).map(|_| TaskId::new()).collect();
        for id in &ids[..4] {
            lines.join(&caller("busy"), &tool("a"), *id);
        }
        for id in &ids[4..] {
            lines.join(&caller("other"), &tool("a"), *id);
        }
        let order: Vec<_> = std::iter::from_fn(|| lines.next(|_| true)).collect();
        assert_eq!(order, [ids[0], ids[4], ids[1], ids[5], ids[2], ids[3]]);
    }

    #[test]
    fn a_subtool_without_a_place_is_passed_over() {
        let mut lines = Lines::default();
        let (full, free) = (TaskId::new(), TaskId::new());
        lines.join(&caller("s"), &tool("full"), full);
        lines.join(&caller("s"), &tool("free"), free);
        assert_eq!(lines.next(|tool| tool.as_str() == "free"), Some(free));
        assert_eq!(lines.next(|tool| tool.as_str() == "free"), None);
        assert_eq!(lines.next(|_| true), Some(full));
    }

    #[test]
    fn who_leaves_is_not_served() {
        let mut lines = Lines::default();
        let (gone, stays) = (TaskId::new(), TaskId::new());
        lines.join(&caller("s"), &tool("a"), gone);
        lines.join(&caller("s"), &tool("a"), stays);
        lines.leave(&caller("s"), &tool("a"), gone);
        lines.leave(&caller("s"), &tool("a"), gone);
        assert_eq!(lines.next(|_| true), Some(stays));
        assert_eq!(lines.next(|_| true), None);
        assert!(lines.parties.is_empty(), "nothing is kept of a caller without tasks");
    }
}
