//! Pending wake-ups: for each session, the tasks whose end it has not been notified of.
//!
//! ```text
//! wakeups/<target>/         created by the client's hook: this session can be woken
//! wakeups/<target>/<id>     created by `run`, before the request is posted
//! wakeups/<target>/.waiter  names the hook process that waits for this session
//! ```
//!
//! `run` and `hook` share this state through the mailbox because it is the only place that both can write
//! to: `run` may be called in a sandbox. A wake-up is removed when the session knows the result: its hook
//! woke it, or a command printed the final result to it. Another session that reads the same result does
//! not remove it. A wake-up whose request never became a task, because `run` was killed, is removed after
//! a while.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use nix::fcntl::{Flock, FlockArg};
use sha2::{Digest as _, Sha256};

use super::{MAX_FILE_BYTES, Mailbox, ensure_private, ignore_not_found, is_older, replace};
use crate::task::TaskId;
use crate::{digest, regular_file};

/// Age at which a wake-up without a result file is removed: its request will not become a task any longer.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(10);
/// Age at which an empty folder of a session is removed. If the session still exists, its hook creates the
/// folder again.
const MAX_IDLE: Duration = Duration::from_hours(24 * 7);

const FOLDER: &str = "wakeups";
const WAITER: &str = ".waiter";
const DELIVERING: &str = ".telling";

/// A session that can be woken. Holds the name of its folder, since a session's own name may not be a valid
/// file name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WakeTarget(String);

impl WakeTarget {
    /// `session` identifies the session within its client, like `session:UUID` or `folder:/home/me/project`.
    pub fn new(client: &str, session: &str) -> Self {
        let digest = digest::hex(&Sha256::digest(session.as_bytes()));
        Self(format!("{client}-{}", &digest[..16]))
    }
}

/// The right to deliver wake-ups to a session; one process at a time holds it.
#[derive(Debug)]
pub struct WakeLock {
    folder: PathBuf,
    _lock: Flock<File>,
}

impl Mailbox {
    /// Whether a hook wakes this session.
    pub fn is_wake_target(&self, target: &WakeTarget) -> bool {
        self.wakeups_folder(target).is_dir()
    }

    /// Records that a hook wakes this session from now on.
    pub fn add_wake_target(&self, target: &WakeTarget) -> io::Result<()> {
        for folder in [self.root.join(FOLDER), self.wakeups_folder(target)] {
            ensure_private(&folder).map_err(io::Error::other)?;
        }
        Ok(())
    }

    /// Records that this session is to be woken when the task is final.
    pub fn add_wakeup(&self, target: &WakeTarget, id: TaskId) -> io::Result<()> {
        let folder = self.wakeups_folder(target);
        fs::DirBuilder::new().mode(0o700).recursive(true).create(&folder)?;
        File::create(folder.join(id.to_string())).map(drop)
    }

    /// Removes a wake-up: the session knows how the task ended, or there is no such task.
    pub fn remove_wakeup(&self, target: &WakeTarget, id: TaskId) -> io::Result<()> {
        ignore_not_found(fs::remove_file(self.wakeups_folder(target).join(id.to_string())))
    }

    /// Returns the tasks that this session is to be woken for, oldest first.
    pub fn wakeups_for(&self, target: &WakeTarget) -> io::Result<Vec<TaskId>> {
        let entries = match fs::read_dir(self.wakeups_folder(target)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut ids = Vec::new();
        for entry in entries {
            let entry = entry?;
            let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            if self.result_file(id).exists() {
                ids.push(id);
            } else if entry.metadata().is_ok_and(|found| is_older(&found, SystemTime::now(), ANSWER_TIMEOUT)) {
                ignore_not_found(fs::remove_file(entry.path()))?;
            }
        }
        ids.sort();
        Ok(ids)
    }

    /// Makes `waiter` the one process that waits for this session, in place of any earlier one.
    pub fn set_waiter(&self, target: &WakeTarget, waiter: &str) -> io::Result<()> {
        replace(&self.wakeups_folder(target).join(WAITER), waiter.as_bytes(), "waiter")
    }

    /// Whether `waiter` is still the process that waits for this session.
    pub fn is_waiter(&self, target: &WakeTarget, waiter: &str) -> bool {
        regular_file::read(&self.wakeups_folder(target).join(WAITER), MAX_FILE_BYTES)
            .is_ok_and(|found| found == waiter.as_bytes())
    }

    /// Acquires the right to deliver wake-ups to this session. Blocks while another process holds it, which
    /// is brief.
    ///
    /// Fails if the folder is not writable: the wake-ups could then not be removed after their delivery, and
    /// the session would be woken again and again.
    pub fn lock_wakeups(&self, target: &WakeTarget) -> io::Result<WakeLock> {
        let folder = self.wakeups_folder(target);
        let lock = Flock::lock(File::open(&folder)?, FlockArg::LockExclusive).map_err(|(_, error)| error)?;
        File::create(folder.join(DELIVERING))?;
        Ok(WakeLock { folder, _lock: lock })
    }

    /// Removes the folders of sessions that have had no wake-ups for a long time; returns how many.
    pub(super) fn sweep_wakeups(&self, now: SystemTime) -> io::Result<usize> {
        let Ok(sessions) = fs::read_dir(self.root.join(FOLDER)) else { return Ok(0) };
        let mut swept = 0;
        for session in sessions {
            let session = session?;
            if !session.metadata().is_ok_and(|found| is_older(&found, now, MAX_IDLE)) {
                continue;
            }
            for own in [WAITER, DELIVERING] {
                ignore_not_found(fs::remove_file(session.path().join(own)))?;
            }
            // Fails for a session with pending wake-ups, since its folder is not empty.
            swept += usize::from(fs::remove_dir(session.path()).is_ok());
        }
        Ok(swept)
    }

    /// Renames the folder of an earlier release, which called it `owed`.
    pub(super) fn adopt_old_wakeups(&self) -> io::Result<()> {
        let (old, new) = (self.root.join("owed"), self.root.join(FOLDER));
        if new.exists() { Ok(()) } else { ignore_not_found(fs::rename(old, new)) }
    }

    fn wakeups_folder(&self, target: &WakeTarget) -> PathBuf {
        self.root.join(FOLDER).join(&target.0)
    }
}

impl WakeLock {
    /// Removes the wake-ups for `ids`, which were delivered to the session.
    pub fn remove_delivered(self, ids: &[TaskId]) -> io::Result<()> {
        for id in ids {
            ignore_not_found(fs::remove_file(self.folder.join(id.to_string())))?;
        }
        ignore_not_found(fs::remove_file(self.folder.join(DELIVERING)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::mailbox;
    use super::*;

    #[test]
    fn a_wakeup_is_pending_until_it_is_delivered_or_removed() {
        let (_folder, mailbox) = mailbox();
        let (own, other) = (WakeTarget::new("codex", "session:1"), WakeTarget::new("codex", "session:2"));
        assert!(!mailbox.is_wake_target(&own));
        mailbox.add_wake_target(&own).expect("failed to create");
        assert!(mailbox.is_wake_target(&own) && !mailbox.is_wake_target(&other));
        let (first, second, unanswered) = (TaskId::new(), TaskId::new(), TaskId::new());
        for id in [second, first, unanswered] {
            mailbox.add_wakeup(&own, id).expect("failed to record the wake-up");
        }
        for id in [first, second] {
            mailbox.publish(id, "{}").expect("failed to publish the result");
        }
        assert_eq!(mailbox.wakeups_for(&own).expect("failed to read"), [first, second]);
        assert_eq!(mailbox.wakeups_for(&other).expect("failed to read"), []);
        mailbox.remove_wakeup(&other, first).expect("nothing to remove is not an error");
        mailbox.lock_wakeups(&own).expect("failed to lock").remove_delivered(&[second]).expect("failed to remove");
        assert_eq!(mailbox.wakeups_for(&own).expect("failed to read"), [first]);
        mailbox.remove_wakeup(&own, first).expect("failed to remove");
        assert_eq!(mailbox.wakeups_for(&own).expect("failed to read"), []);
    }

    #[test]
    fn the_wakeups_of_an_earlier_release_are_kept() {
        let (_folder, mailbox) = mailbox();
        let target = WakeTarget::new("codex", "session:1");
        mailbox.adopt_old_wakeups().expect("no old folder is not an error");
        mailbox.add_wake_target(&target).expect("failed to create");
        fs::rename(mailbox.root.join(FOLDER), mailbox.root.join("owed")).expect("failed to rename");
        mailbox.adopt_old_wakeups().expect("failed to rename");
        assert!(mailbox.is_wake_target(&target));
    }

    #[test]
    fn a_new_waiter_replaces_the_earlier_one() {
        let (_folder, mailbox) = mailbox();
        let target = WakeTarget::new("codex", "session:1");
        mailbox.add_wake_target(&target).expect("failed to create");
        for waiter in ["one", "two"] {
            mailbox.set_waiter(&target, waiter).expect("failed to write");
        }
        assert!(!mailbox.is_waiter(&target, "one") && mailbox.is_waiter(&target, "two"));
    }

    #[test]
    fn the_folder_of_an_idle_session_is_removed_unless_a_wakeup_is_pending() {
        let (_folder, mailbox) = mailbox();
        let (idle, waiting) = (WakeTarget::new("codex", "session:1"), WakeTarget::new("codex", "session:2"));
        for target in [&idle, &waiting] {
            mailbox.add_wake_target(target).expect("failed to create");
            mailbox.set_waiter(target, "one").expect("failed to write");
        }
        mailbox.add_wakeup(&waiting, TaskId::new()).expect("failed to record the wake-up");
        let now = SystemTime::now();
        assert_eq!(mailbox.sweep_wakeups(now).expect("failed to sweep"), 0);
        assert_eq!(mailbox.sweep_wakeups(now + MAX_IDLE * 2).expect("failed to sweep"), 1);
        assert!(!mailbox.is_wake_target(&idle) && mailbox.is_wake_target(&waiting));
    }
}
