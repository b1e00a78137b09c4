//! Who looks on: whether a human has the page open.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use jiff::Timestamp;
use protocol::clock;

/// The open pages, counted by their streams of events.
#[derive(Debug, Default)]
pub struct ApproverPresence {
    open: AtomicUsize,
    last_seen: Mutex<Option<Timestamp>>,
}

impl ApproverPresence {
    pub fn is_there(&self) -> bool {
        self.open.load(Ordering::Relaxed) > 0
    }

    /// When somebody was last there, if anybody ever was and nobody is now.
    pub fn last_seen(&self) -> Option<Timestamp> {
        *self.last_seen.lock().expect("nobody panics with it")
    }

    pub(crate) fn enter(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn leave(&self) {
        *self.last_seen.lock().expect("nobody panics with it") = Some(clock::now());
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}
