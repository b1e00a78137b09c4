//! The lock on the record of tasks: one executor at a time may use the record.
//!
//! The executor lock of the mailbox decides who serves callers. But a mailbox, and its lock with it, can be removed
//! and created again while its executor lives. The record lies elsewhere and has its own lock. An executor that lost
//! its mailbox stops its attempts before it releases the record, and its successor waits for that, so a task never
//! runs in two executors.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};

/// How long to wait before trying again to take a lock that another executor holds.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Held for as long as its owner may use the record.
pub(super) type RecordLock = Flock<File>;

/// Acquires the lock in `folder`, which is created if necessary. Returns `None` if another executor still holds it
/// after `timeout`.
pub(super) fn acquire(folder: &Path, timeout: Duration) -> io::Result<Option<RecordLock>> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let options = || fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).to_owned();
    let mut file = options().open(folder.join("lock"))?;
    let deadline = Instant::now() + timeout;
    loop {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(Some(lock)),
            Err((_, nix::Error::EWOULDBLOCK)) if Instant::now() >= deadline => return Ok(None),
            Err((same, nix::Error::EWOULDBLOCK | nix::Error::EINTR)) => file = same,
            Err((_, error)) => return Err(error.into()),
        }
        std::thread::park_timeout(RETRY_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_executor_at_a_time_holds_the_lock() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let folder = folder.path().join("executor");
        let first = acquire(&folder, Duration::ZERO).expect("the lock works").expect("it is free");
        assert!(acquire(&folder, Duration::from_millis(30)).expect("the lock works").is_none());
        let waiting = std::thread::spawn({
            let folder = folder.clone();
            move || acquire(&folder, Duration::from_secs(30)).expect("the lock works").is_some()
        });
        drop(first);
        assert!(waiting.join().expect("the thread ends"), "a waiting executor gets the lock when it is released");
    }
}
