//! Who may work with the record of tasks: one executor at a time.
//!
//! The lock on the mailbox says who serves callers; but a mailbox can be removed and made anew
//! while its executor lives, and the lock with it. The record lies elsewhere, and has a lock of its
//! own. An executor that lost its mailbox ends what it runs and lets go of the record; until then
//! its successor waits, so that no task is ever in two hands.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};

/// How often a lock that another holds is tried again.
const TRY_AGAIN: Duration = Duration::from_millis(20);

/// Held for as long as its owner may write to the record.
pub(super) type RecordLock = Flock<File>;

/// Takes the lock in `folder`, which is made if need be; `None` if another still had it after `patience`.
pub(super) fn take(folder: &Path, patience: Duration) -> io::Result<Option<RecordLock>> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let options = || fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).to_owned();
    let mut file = options().open(folder.join("lock"))?;
    let deadline = Instant::now() + patience;
    loop {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(Some(lock)),
            Err((_, nix::Error::EWOULDBLOCK)) if Instant::now() >= deadline => return Ok(None),
            Err((same, nix::Error::EWOULDBLOCK | nix::Error::EINTR)) => file = same,
            Err((_, error)) => return Err(error.into()),
        }
        std::thread::park_timeout(TRY_AGAIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_has_one_owner_at_a_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().join("executor");
        let first = take(&folder, Duration::ZERO).expect("taken").expect("nobody has it");
        assert!(take(&folder, Duration::from_millis(30)).expect("tried").is_none());
        let waiting = std::thread::spawn({
            let folder = folder.clone();
            move || take(&folder, Duration::from_secs(30)).expect("tried").is_some()
        });
        drop(first);
        assert!(waiting.join().expect("it ends"), "who waits gets it when it is free");
    }
}
