//! Places: how many tasks run, of each kind that has places of its own.
//!
//! A task that waits for others takes no place from them, or a full executor would wait for itself for ever:
//! those have as many places again, at each depth, since one can only wait for what is deeper than itself.

use std::collections::HashMap;

use crate::task::name::SubtoolName;

/// Tasks that need the same places.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct SlotKind {
    pub(super) tool: SubtoolName,
    /// The depth of its caller, if other tasks come of it for which it waits.
    pub(super) delegates_at: Option<u8>,
}

/// The places that are taken.
#[derive(Debug, Default)]
pub(super) struct Slots {
    /// Of those that wait for nobody, and of the others at each depth.
    running: HashMap<Option<u8>, u32>,
    running_of: HashMap<SlotKind, u32>,
}

impl Slots {
    /// How many tasks run.
    pub(super) fn taken(&self) -> u32 {
        self.running.values().sum()
    }

    /// Whether there is a place for a task that waits for nobody, if `most` of them may run.
    pub(super) fn has_any(&self, most: u32) -> bool {
        self.running.get(&None).copied().unwrap_or(0) < most
    }

    /// Whether one more of this kind may run, where `most` may in all, and of its subtool `most_of`.
    pub(super) fn has_one(&self, kind: &SlotKind, most: u32, most_of: Option<u32>) -> bool {
        let running = self.running.get(&kind.delegates_at).copied().unwrap_or(0);
        let of_kind = self.running_of.get(kind).copied().unwrap_or(0);
        running < most && most_of.is_none_or(|most_of| of_kind < most_of)
    }

    pub(super) fn take(&mut self, kind: SlotKind) {
        *self.running.entry(kind.delegates_at).or_default() += 1;
        *self.running_of.entry(kind).or_default() += 1;
    }

    pub(super) fn free(&mut self, kind: &SlotKind) {
        if let Some(running) = self.running.get_mut(&kind.delegates_at) {
            *running -= 1;
        }
        if let Some(running) = self.running_of.get_mut(kind) {
            *running -= 1;
            if *running == 0 {
                self.running_of.remove(kind);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_waits_for_others_leaves_them_their_places() {
        let kind = |delegates_at| SlotKind { tool: "t".parse().expect("a name"), delegates_at };
        let mut slots = Slots::default();
        slots.take(kind(Some(0)));
        assert!(!slots.has_one(&kind(Some(0)), 1, None), "they have their own limit");
        assert!(slots.has_any(1) && slots.has_one(&kind(None), 1, None));
        assert!(slots.has_one(&kind(Some(1)), 1, Some(1)), "nor does a subtool wait for itself");
        slots.take(kind(None));
        assert!(!slots.has_any(1));
        assert_eq!(slots.taken(), 2);
        slots.free(&kind(Some(0)));
        assert!(slots.has_one(&kind(Some(0)), 1, Some(1)));
    }
}
