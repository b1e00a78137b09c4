//! Whether a human has the page open, and how strongly they can approve.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ground::task::confirmation::Assurance;
use jiff::Timestamp;
use protocol::clock;

/// Counts the open pages by their event streams.
#[derive(Debug, Default)]
pub struct ApproverPresence {
    open: AtomicUsize,
    last_seen: Mutex<Option<Timestamp>>,
    /// Whether a key is enrolled, or was and is lost.
    has_keys: AtomicBool,
}

impl ApproverPresence {
    pub fn is_present(&self) -> bool {
        self.open.load(Ordering::Relaxed) > 0
    }

    /// Returns when the last page was closed; `None` if none ever was.
    pub fn last_seen(&self) -> Option<Timestamp> {
        *self.last_seen.lock().expect("no thread panics while it holds this lock")
    }

    /// How strong an approval can be here.
    pub fn assurance(&self) -> Assurance {
        if self.has_keys.load(Ordering::Relaxed) { Assurance::Touch } else { Assurance::Page }
    }

    pub(crate) fn set_has_keys(&self, has_keys: bool) {
        self.has_keys.store(has_keys, Ordering::Relaxed);
    }

    pub(crate) fn enter(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn leave(&self) {
        *self.last_seen.lock().expect("no thread panics while it holds this lock") = Some(clock::now());
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}
