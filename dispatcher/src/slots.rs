//! Slots: limit how many tasks run at once, in total and for each subtool.
//!
//! A delegating task waits for the tasks that it delegates. If both used the same slots, a full executor would
//! deadlock. So delegating tasks have slots of their own, as many again at each depth, since a task only waits for
//! deeper ones.
//!
//! A task that was running when an executor ended is suspected to have ended it. Suspects run one at a time, so that
//! a second crash is blamed on the task that was running, and on no other.

use std::collections::HashMap;

use ground::task::Task;
use ground::task::name::SubtoolName;

use super::confirmations::count_down;

/// One of several clients that share a server may use this part of the slots, 1 of so many.
const CLIENT_SHARE: u32 = 4;

/// The kind of slot that a task needs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct SlotKind {
    pub(super) tool: SubtoolName,
    /// The depth of its caller, if the task delegates to others.
    pub(super) delegates_at: Option<u8>,
    /// The client of its caller, if that shares a server with others.
    pub(super) client: Option<String>,
    /// Whether it was running when an earlier executor ended.
    pub(super) is_suspect: bool,
}

impl SlotKind {
    pub(super) fn of(task: &Task, delegates_at: Option<u8>, is_suspect: bool) -> Self {
        let client = task.caller.client().map(str::to_owned);
        Self { tool: task.tool.clone(), delegates_at, client, is_suspect }
    }

    /// The same kind without suspicion, and of any client: limits apply to all of them together.
    fn cleared(&self) -> Self {
        Self { is_suspect: false, client: None, ..self.clone() }
    }

    fn of_client(&self) -> Option<(String, Option<u8>)> {
        Some((self.client.clone()?, self.delegates_at))
    }
}

/// The slots in use.
#[derive(Debug, Default)]
pub(super) struct Slots {
    /// By `delegates_at`: the tasks that do not delegate, and those that do at each depth.
    running: HashMap<Option<u8>, u32>,
    running_by_kind: HashMap<SlotKind, u32>,
    /// By client and `delegates_at`, for clients that share a server with others.
    running_by_client: HashMap<(String, Option<u8>), u32>,
    /// By `delegates_at`: the suspects that run.
    suspects: HashMap<Option<u8>, u32>,
}

impl Slots {
    /// Returns how many tasks run.
    pub(super) fn in_use(&self) -> u32 {
        self.running.values().sum()
    }

    /// Whether one more task that does not delegate may run, given the total `limit`.
    pub(super) fn has_free(&self, limit: u32) -> bool {
        self.running.get(&None).copied().unwrap_or(0) < limit
    }

    /// Whether one more task of this kind may run, given the total `limit` and that of its subtool.
    pub(super) fn has_free_for(&self, kind: &SlotKind, limit: u32, tool_limit: Option<u32>) -> bool {
        let running = self.running.get(&kind.delegates_at).copied().unwrap_or(0);
        let of_kind = self.running_by_kind.get(&kind.cleared()).copied().unwrap_or(0);
        let is_held = kind.is_suspect && self.suspects.get(&kind.delegates_at).is_some_and(|running| *running > 0);
        let of_client = kind.of_client().and_then(|client| self.running_by_client.get(&client)).copied().unwrap_or(0);
        let client_limit = kind.client.as_ref().map_or(limit, |_| limit.div_ceil(CLIENT_SHARE));
        let has_share = of_client < client_limit && tool_limit.is_none_or(|tool_limit| of_kind < tool_limit);
        running < limit && !is_held && has_share
    }

    pub(super) fn acquire(&mut self, kind: &SlotKind) {
        *self.running.entry(kind.delegates_at).or_default() += 1;
        *self.suspects.entry(kind.delegates_at).or_default() += u32::from(kind.is_suspect);
        *self.running_by_kind.entry(kind.cleared()).or_default() += 1;
        if let Some(client) = kind.of_client() {
            *self.running_by_client.entry(client).or_default() += 1;
        }
    }

    pub(super) fn release(&mut self, kind: &SlotKind) {
        if let Some(running) = self.running.get_mut(&kind.delegates_at) {
            *running -= 1;
        }
        if let Some(suspects) = self.suspects.get_mut(&kind.delegates_at) {
            *suspects -= u32::from(kind.is_suspect);
        }
        count_down(&mut self.running_by_kind, &kind.cleared());
        if let Some(client) = kind.of_client() {
            count_down(&mut self.running_by_client, &client);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(tool: &str, delegates_at: Option<u8>, client: Option<&str>, is_suspect: bool) -> SlotKind {
        let client = client.map(str::to_owned);
        SlotKind { tool: tool.parse().expect("a name"), delegates_at, client, is_suspect }
    }

    #[test]
    fn a_client_that_shares_a_server_leaves_slots_for_others() {
        let kind = |client| of("t", None, client, false);
        let mut slots = Slots::default();
        slots.acquire(&kind(Some("alice")));
        slots.acquire(&kind(Some("alice")));
        assert!(!slots.has_free_for(&kind(Some("alice")), 8, None), "2 of 8 are its share");
        assert!(slots.has_free_for(&of("t", Some(0), Some("alice"), false), 8, None));
        assert!(slots.has_free_for(&kind(Some("bob")), 8, None) && slots.has_free_for(&kind(None), 8, None));
        assert!(!slots.has_free_for(&kind(Some("bob")), 8, Some(2)), "the limit of a subtool is that of all clients");
        slots.release(&kind(Some("alice")));
        assert!(slots.has_free_for(&kind(Some("alice")), 8, None));
    }

    #[test]
    fn a_delegating_task_leaves_slots_for_the_tasks_that_it_waits_for() {
        let kind = |delegates_at| of("t", delegates_at, None, false);
        let mut slots = Slots::default();
        slots.acquire(&kind(Some(0)));
        assert!(!slots.has_free_for(&kind(Some(0)), 1, None), "delegating tasks have a limit of their own");
        assert!(slots.has_free(1) && slots.has_free_for(&kind(None), 1, None));
        assert!(slots.has_free_for(&kind(Some(1)), 1, Some(1)), "the limit of a subtool applies to each depth");
        slots.acquire(&kind(None));
        assert!(!slots.has_free(1));
        assert_eq!(slots.in_use(), 2);
        slots.release(&kind(Some(0)));
        assert!(slots.has_free_for(&kind(Some(0)), 1, Some(1)));
    }

    #[test]
    fn suspects_run_one_at_a_time_beside_other_tasks() {
        let kind = |is_suspect| of("t", None, None, is_suspect);
        let mut slots = Slots::default();
        slots.acquire(&kind(true));
        assert!(!slots.has_free_for(&kind(true), 9, None) && slots.has_free_for(&kind(false), 9, None));
        assert!(!slots.has_free_for(&kind(false), 9, Some(1)), "the limit of a subtool counts suspects too");
        slots.release(&kind(true));
        assert!(slots.has_free_for(&kind(true), 9, Some(1)));
    }
}
