//! How much each client may use at once. Every use is counted until its permit is dropped.
//!
//! A permit belongs to the work and not to the connection: the permit of a turn is dropped when the turn ends, whether or
//! not its client still listens.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// At most so many uses at once by each client.
#[derive(Debug)]
pub(crate) struct ConcurrencyLimit<K> {
    max: usize,
    counts: Counts<K>,
}

/// The clients that use something now, and how often.
type Counts<K> = Arc<Mutex<HashMap<K, usize>>>;

/// One use, until it is dropped.
#[derive(Debug)]
pub(crate) struct ConcurrencyPermit<K: Hash + Eq> {
    client: K,
    counts: Counts<K>,
}

impl<K: Hash + Eq + Clone> ConcurrencyLimit<K> {
    pub(crate) fn new(max: usize) -> Self {
        Self { max, counts: Arc::default() }
    }

    pub(crate) fn max(&self) -> usize {
        self.max
    }

    /// Counts a use of this client; `None` if it has as many as it may.
    pub(crate) fn try_acquire(&self, client: &K) -> Option<ConcurrencyPermit<K>> {
        let mut counts = lock(&self.counts);
        if counts.get(client).is_some_and(|count| *count >= self.max) {
            return None;
        }
        Some(self.count(&mut counts, client))
    }

    /// Whether this client uses it now.
    pub(crate) fn is_used(&self, client: &K) -> bool {
        lock(&self.counts).contains_key(client)
    }

    /// Whether a client uses it now for which this holds.
    pub(crate) fn is_used_by(&self, holds: impl Fn(&K) -> bool) -> bool {
        lock(&self.counts).keys().any(holds)
    }

    /// Counts a use that has begun already, however many there are.
    pub(crate) fn acquire(&self, client: &K) -> ConcurrencyPermit<K> {
        self.count(&mut lock(&self.counts), client)
    }

    fn count(&self, counts: &mut HashMap<K, usize>, client: &K) -> ConcurrencyPermit<K> {
        *counts.entry(client.clone()).or_default() += 1;
        ConcurrencyPermit { client: client.clone(), counts: Arc::clone(&self.counts) }
    }
}

impl<K: Hash + Eq> Drop for ConcurrencyPermit<K> {
    fn drop(&mut self) {
        let mut counts = lock(&self.counts);
        if let Some(count) = counts.get_mut(&self.client) {
            *count -= 1;
            // Who uses nothing is not remembered.
            if *count == 0 {
                counts.remove(&self.client);
            }
        }
    }
}

fn lock<K>(counts: &Counts<K>) -> MutexGuard<'_, HashMap<K, usize>> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_its_share_until_its_permits_are_dropped() {
        let limit = ConcurrencyLimit::new(2);
        let (first, second) = (limit.try_acquire(&"a"), limit.try_acquire(&"a"));
        assert!(first.is_some() && second.is_some() && limit.try_acquire(&"a").is_none());
        let other = limit.try_acquire(&"b");
        assert!(other.is_some(), "another client has its own share");
        drop(first);
        let third = limit.try_acquire(&"a");
        assert!(third.is_some() && limit.try_acquire(&"a").is_none());
        let resumed = limit.acquire(&"a");
        drop((second, third));
        assert!(limit.try_acquire(&"a").is_some());
        assert!(limit.is_used(&"b") && limit.is_used(&"a") && !limit.is_used(&"c"));
        drop((resumed, other));
        assert!(lock(&limit.counts).is_empty(), "who uses nothing is not remembered");
    }

    #[test]
    fn permits_are_counted_across_threads() {
        let limit = ConcurrencyLimit::new(8);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1_000 {
                        drop((limit.try_acquire(&1).expect("room"), limit.try_acquire(&1).expect("room")));
                    }
                });
            }
        });
        assert!(lock(&limit.counts).is_empty());
    }
}
