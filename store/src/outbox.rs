//! The outbox: the events that are still to be delivered to hooks.
//!
//! A delivery is stored in the same commit as the end of its task. It stays until the hook acknowledges it or it is
//! given up, even if the task is forgotten before. Like `store.rs` this file only defines the contract.

use jiff::Timestamp;
use protocol::task::TaskId;

use super::StoreError;

/// The event about the end of one task, for one hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookDelivery {
    /// The hook's name in the configuration.
    pub hook: String,
    pub task: TaskId,
    /// The body that is sent, identical in each attempt.
    pub event: String,
    pub created_at: Timestamp,
    /// How many attempts failed.
    pub attempts: u32,
    /// The earliest time of the next attempt.
    pub next_at: Timestamp,
    /// Why the last attempt failed.
    pub reason: Option<String>,
}

/// The state of a [`HookDelivery`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryState {
    /// It has not been attempted.
    Pending,
    /// The hook accepted it; the delivery is removed.
    Acknowledged,
    /// The last attempt failed; [`HookDelivery::next_at`] says when to try again.
    Retrying,
    /// It failed for too long and is not tried again.
    GivenUp,
}

/// A summary of what was not delivered to one hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UndeliveredHook {
    pub hook: String,
    pub waiting: u64,
    /// How many of the waiting deliveries failed at least once.
    pub failing: u64,
    pub given_up: u64,
    pub oldest: Timestamp,
    /// Why one of them failed; an arbitrary one.
    pub reason: Option<String>,
}

/// The contract of an outbox.
pub trait Outbox {
    /// Returns at most `limit` deliveries to `hook` that are due at `now`, the earliest due first.
    fn due(&self, hook: &str, now: Timestamp, limit: usize) -> Result<Vec<HookDelivery>, StoreError>;

    /// Returns when the next delivery to `hook` becomes due after `now`.
    fn next_due(&self, hook: &str, now: Timestamp) -> Result<Option<Timestamp>, StoreError>;

    /// Returns a summary for each hook with undelivered events.
    fn undelivered(&self) -> Result<Vec<UndeliveredHook>, StoreError>;

    /// Moves every delivery that is due after `latest` to `latest`: such a time was recorded before the clock was set
    /// back.
    fn cap_next_at(&mut self, latest: Timestamp) -> Result<(), StoreError>;

    /// Removes the deliveries from before `before` that were given up or whose hook is not in `hooks`.
    fn forget_deliveries(&mut self, before: Timestamp, hooks: &[&str]) -> Result<(), StoreError>;
}

#[cfg(test)]
pub(crate) mod contract {
    //! The contract of an outbox as a test.

    use super::super::{Change, Store};
    use super::*;

    pub(crate) fn delivery(hook: &str, second: i64) -> HookDelivery {
        let at = time(second);
        let task = TaskId::new();
        let event = format!("{{\"id\":\"{task}.final\"}}");
        HookDelivery { hook: hook.to_owned(), task, event, created_at: at, attempts: 0, next_at: at, reason: None }
    }

    fn time(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    pub(crate) fn check(store: &mut dyn Store) {
        let commit = |store: &mut dyn Store, delivery: &HookDelivery, state| {
            store.commit(&[Change::Delivery(Box::new(delivery.clone()), state)]).expect("committed");
        };
        let (first, second, other) = (delivery("a", 100), delivery("a", 101), delivery("b", 100));
        for pending in [&second, &first, &other] {
            commit(store, pending, DeliveryState::Pending);
        }
        assert_eq!(store.due("a", time(99), 9).expect("read"), []);
        assert_eq!(store.next_due("a", time(99)).expect("read"), Some(time(100)));
        assert_eq!(store.due("a", time(101), 1).expect("read"), std::slice::from_ref(&first), "the oldest first");
        assert_eq!(store.due("a", time(101), 9).expect("read"), [first.clone(), second.clone()]);

        let later =
            HookDelivery { attempts: 1, next_at: time(500), reason: Some("refused".to_owned()), ..first.clone() };
        commit(store, &later, DeliveryState::Retrying);
        assert_eq!(store.due("a", time(499), 9).expect("read"), std::slice::from_ref(&second));
        assert_eq!(store.next_due("a", time(101)).expect("read"), Some(time(500)));
        assert_eq!(store.due("a", time(500), 9).expect("read"), [second.clone(), later.clone()]);
        store.cap_next_at(time(200)).expect("changed");
        assert_eq!(store.next_due("a", time(101)).expect("read"), Some(time(200)));

        commit(store, &second, DeliveryState::Acknowledged);
        commit(store, &other, DeliveryState::GivenUp);
        assert_eq!(store.due("b", time(999), 9).expect("read"), [], "a delivery that was given up is not tried again");
        let undelivered = |hook: &str, [waiting, failing, given_up]: [u64; 3], reason: Option<&str>| UndeliveredHook {
            hook: hook.to_owned(),
            waiting,
            failing,
            given_up,
            oldest: time(100),
            reason: reason.map(str::to_owned),
        };
        let (a, b) = (undelivered("a", [1, 1, 0], Some("refused")), undelivered("b", [0, 0, 1], None));
        assert_eq!(store.undelivered().expect("read"), [a.clone(), b]);
        store.forget_deliveries(time(100), &[]).expect("forgotten");
        assert_eq!(store.undelivered().expect("read").len(), 2, "not old enough");
        store.forget_deliveries(time(101), &["a"]).expect("forgotten");
        assert_eq!(store.undelivered().expect("read"), [a], "a delivery that waits for a configured hook stays");
        store.forget_deliveries(time(101), &["b"]).expect("forgotten");
        assert_eq!(store.undelivered().expect("read"), []);
    }
}
