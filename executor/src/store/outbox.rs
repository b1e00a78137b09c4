//! The outbox: what hooks are still to be told.
//!
//! What is owed is recorded with the end that it tells of, and stays until it was acknowledged or given
//! up; it needs the task no more. Says *what*, like `store.rs`.

use jiff::Timestamp;
use protocol::task::TaskId;

use super::StoreError;

/// One end of a task that one hook is to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookDelivery {
    /// The hook's name in the configuration.
    pub hook: String,
    pub task: TaskId,
    /// As it is sent, byte by byte the same each time.
    pub event: String,
    pub created_at: Timestamp,
    /// How often it was tried.
    pub attempts: u32,
    /// It is not tried before this.
    pub next_at: Timestamp,
    /// Why the last attempt failed.
    pub reason: Option<String>,
}

/// What became of a [`HookDelivery`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryState {
    Pending,
    Acknowledged,
    /// It failed; the delivery says when it is tried again.
    Retrying,
    /// It failed for so long that it is not tried any more.
    GivenUp,
}

/// What one hook was not told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UndeliveredHook {
    pub hook: String,
    pub waiting: u64,
    /// How many of these failed at least once.
    pub failing: u64,
    pub given_up: u64,
    pub oldest: Timestamp,
    /// Why one of them failed.
    pub reason: Option<String>,
}

/// The contract of an outbox.
pub trait Outbox {
    /// What `hook` is to be told by `now`, at most so many, what is due longest first.
    fn due(&self, hook: &str, now: Timestamp, most: usize) -> Result<Vec<HookDelivery>, StoreError>;

    /// When next something comes due for `hook`, later than `now`.
    fn next_due(&self, hook: &str, now: Timestamp) -> Result<Option<Timestamp>, StoreError>;

    /// What was not told, by hook.
    fn undelivered(&self) -> Result<Vec<UndeliveredHook>, StoreError>;

    /// Sees to it that nothing comes due after `latest`: what says so was recorded under another clock.
    fn cap_next_at(&mut self, latest: Timestamp) -> Result<(), StoreError>;

    /// Drops what is owed since before `before` and was given up, or is for none of `hooks`.
    fn forget_deliveries(&mut self, before: Timestamp, hooks: &[&str]) -> Result<(), StoreError>;
}

#[cfg(test)]
pub(crate) mod contract {
    //! What every outbox must do.

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

    pub(crate) fn holds(store: &mut dyn Store) {
        let commit = |store: &mut dyn Store, delivery: &HookDelivery, telling| {
            store.commit(&[Change::Delivery(Box::new(delivery.clone()), telling)]).expect("committed");
        };
        let (first, second, other) = (delivery("a", 100), delivery("a", 101), delivery("b", 100));
        for owed in [&second, &first, &other] {
            commit(store, owed, DeliveryState::Pending);
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
        assert_eq!(store.due("b", time(999), 9).expect("read"), [], "what was given up is not tried");
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
        assert_eq!(store.undelivered().expect("read"), [a], "what waits for a known hook stays");
        store.forget_deliveries(time(101), &["b"]).expect("forgotten");
        assert_eq!(store.undelivered().expect("read"), []);
    }
}
