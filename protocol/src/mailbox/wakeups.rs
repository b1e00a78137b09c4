//! What agents are owed: the tasks of a session whose end it has not been told.
//!
//! ```text
//! wakeups/<target>/         made by the client's hook: this session can be woken
//! wakeups/<target>/<id>     made by `run`, before the request is posted
//! wakeups/<target>/.waiter  the hook that waits for this session now
//! ```
//!
//! `run` and `hook` meet here, because the mailbox is all that both can write: `run` may be called in
//! a sandbox. A mark goes when the session was told: its hook woke it, or a command printed the final
//! result to it. Somebody else who reads the same result takes no mark away. The marks live as long as
//! the mailbox; one whose task never was, since `run` was killed, is dropped after a while.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use nix::fcntl::{Flock, FlockArg};
use sha2::{Digest as _, Sha256};

use super::{Mailbox, ensure_private, gone, is_older, replace};
use crate::digest;
use crate::task::TaskId;

/// A mark without a result file is of a `run` that has not been answered yet; or never will be, after this.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(10);
/// A session that was owed nothing for so long is over; if it is not, its hook makes its folder anew.
const MAX_IDLE: Duration = Duration::from_hours(24 * 7);

const FOLDER: &str = "wakeups";
const WAITER: &str = ".waiter";
const TELLING: &str = ".telling";

/// A session that can be woken, as the folder's name: what it is called may not fit one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WakeTarget(String);

impl WakeTarget {
    /// `what` names the session, or stands for it: `session:UUID`, `folder:/home/me/project`.
    pub fn new(client: &str, what: &str) -> Self {
        let digest = digest::hex(&Sha256::digest(what.as_bytes()));
        Self(format!("{client}-{}", &digest[..16]))
    }
}

/// The right to tell a session something: one process at a time has it.
#[derive(Debug)]
pub struct WakeLock {
    folder: PathBuf,
    _lock: Flock<File>,
}

impl Mailbox {
    /// Whether somebody will wake this session.
    pub fn is_wake_target(&self, listener: &WakeTarget) -> bool {
        self.wakeups_folder(listener).is_dir()
    }

    /// From now on somebody does.
    pub fn add_wake_target(&self, listener: &WakeTarget) -> io::Result<()> {
        for folder in [self.root.join(FOLDER), self.wakeups_folder(listener)] {
            ensure_private(&folder).map_err(io::Error::other)?;
        }
        Ok(())
    }

    /// Marks a task whose end this session is to be told.
    pub fn add_wakeup(&self, listener: &WakeTarget, id: TaskId) -> io::Result<()> {
        let folder = self.wakeups_folder(listener);
        fs::DirBuilder::new().mode(0o700).recursive(true).create(&folder)?;
        File::create(folder.join(id.to_string())).map(drop)
    }

    /// The session knows how the task ended, or there is no such task.
    pub fn remove_wakeup(&self, listener: &WakeTarget, id: TaskId) -> io::Result<()> {
        gone(fs::remove_file(self.wakeups_folder(listener).join(id.to_string())))
    }

    /// What this session is owed, in the order in which it was asked for.
    pub fn wakeups_for(&self, listener: &WakeTarget) -> io::Result<Vec<TaskId>> {
        let entries = match fs::read_dir(self.wakeups_folder(listener)) {
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
                gone(fs::remove_file(entry.path()))?;
            }
        }
        ids.sort();
        Ok(ids)
    }

    /// Says that this process waits for the session from now on, and whoever did before need not.
    pub fn set_waiter(&self, listener: &WakeTarget, waiter: &str) -> io::Result<()> {
        replace(&self.wakeups_folder(listener).join(WAITER), waiter.as_bytes(), "waiter")
    }

    /// Whether it still does.
    pub fn is_waiter(&self, listener: &WakeTarget, waiter: &str) -> bool {
        fs::read(self.wakeups_folder(listener).join(WAITER)).is_ok_and(|found| found == waiter.as_bytes())
    }

    /// The right to tell the session something; waits for whoever has it, which takes no time.
    ///
    /// An error if marks could not be taken away afterwards: who is told must not be told for ever.
    pub fn lock_wakeups(&self, listener: &WakeTarget) -> io::Result<WakeLock> {
        let folder = self.wakeups_folder(listener);
        let lock = Flock::lock(File::open(&folder)?, FlockArg::LockExclusive).map_err(|(_, error)| error)?;
        File::create(folder.join(TELLING))?;
        Ok(WakeLock { folder, _lock: lock })
    }

    /// Drops the folders of sessions that have been owed nothing for long.
    pub(super) fn sweep_wakeups(&self, now: SystemTime) -> io::Result<usize> {
        let Ok(sessions) = fs::read_dir(self.root.join(FOLDER)) else { return Ok(0) };
        let mut swept = 0;
        for session in sessions {
            let session = session?;
            if !session.metadata().is_ok_and(|found| is_older(&found, now, MAX_IDLE)) {
                continue;
            }
            for own in [WAITER, TELLING] {
                gone(fs::remove_file(session.path().join(own)))?;
            }
            // One that is still owed something is not empty, and stays.
            swept += usize::from(fs::remove_dir(session.path()).is_ok());
        }
        Ok(swept)
    }

    /// Takes over the folder of an earlier release, which called it `owed`.
    pub(super) fn adopt_old_wakeups(&self) -> io::Result<()> {
        let (old, new) = (self.root.join("owed"), self.root.join(FOLDER));
        if new.exists() { Ok(()) } else { gone(fs::rename(old, new)) }
    }

    fn wakeups_folder(&self, listener: &WakeTarget) -> PathBuf {
        self.root.join(FOLDER).join(&listener.0)
    }
}

impl WakeLock {
    /// The session was told of these.
    pub fn remove_delivered(self, ids: &[TaskId]) -> io::Result<()> {
        for id in ids {
            gone(fs::remove_file(self.folder.join(id.to_string())))?;
        }
        gone(fs::remove_file(self.folder.join(TELLING)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mailbox() -> (tempfile::TempDir, Mailbox) {
        let folder = tempfile::tempdir().expect("a folder");
        let mailbox = Mailbox::open(&folder.path().join("mailbox")).expect("it opens");
        (folder, mailbox)
    }

    #[test]
    fn a_session_is_owed_what_it_asked_for_until_it_was_told() {
        let (_folder, mailbox) = mailbox();
        let (own, other) = (WakeTarget::new("codex", "session:1"), WakeTarget::new("codex", "session:2"));
        assert!(!mailbox.is_wake_target(&own));
        mailbox.add_wake_target(&own).expect("made");
        assert!(mailbox.is_wake_target(&own) && !mailbox.is_wake_target(&other));
        let (first, second, unanswered) = (TaskId::new(), TaskId::new(), TaskId::new());
        for id in [second, first, unanswered] {
            mailbox.add_wakeup(&own, id).expect("marked");
        }
        for id in [first, second] {
            mailbox.publish(id, "{}").expect("published");
        }
        assert_eq!(mailbox.wakeups_for(&own).expect("read"), [first, second]);
        assert_eq!(mailbox.wakeups_for(&other).expect("read"), []);
        mailbox.remove_wakeup(&other, first).expect("nothing to do");
        mailbox.lock_wakeups(&own).expect("mine").remove_delivered(&[second]).expect("told");
        assert_eq!(mailbox.wakeups_for(&own).expect("read"), [first]);
        mailbox.remove_wakeup(&own, first).expect("taken away");
        assert_eq!(mailbox.wakeups_for(&own).expect("read"), []);
    }

    #[test]
    fn the_wakeups_of_an_earlier_release_are_kept() {
        let (_folder, mailbox) = mailbox();
        let target = WakeTarget::new("codex", "session:1");
        mailbox.adopt_old_wakeups().expect("there are none");
        mailbox.add_wake_target(&target).expect("made");
        fs::rename(mailbox.root.join(FOLDER), mailbox.root.join("owed")).expect("renamed");
        mailbox.adopt_old_wakeups().expect("renamed back");
        assert!(mailbox.is_wake_target(&target));
    }

    #[test]
    fn only_the_last_waiter_waits() {
        let (_folder, mailbox) = mailbox();
        let listener = WakeTarget::new("codex", "session:1");
        mailbox.add_wake_target(&listener).expect("made");
        for waiter in ["one", "two"] {
            mailbox.set_waiter(&listener, waiter).expect("written");
        }
        assert!(!mailbox.is_waiter(&listener, "one") && mailbox.is_waiter(&listener, "two"));
    }

    #[test]
    fn the_folder_of_a_session_that_is_over_goes_unless_it_is_owed_something() {
        let (_folder, mailbox) = mailbox();
        let (over, wakeups_folder) = (WakeTarget::new("codex", "session:1"), WakeTarget::new("codex", "session:2"));
        for listener in [&over, &wakeups_folder] {
            mailbox.add_wake_target(listener).expect("made");
            mailbox.set_waiter(listener, "one").expect("written");
        }
        mailbox.add_wakeup(&wakeups_folder, TaskId::new()).expect("marked");
        let now = SystemTime::now();
        assert_eq!(mailbox.sweep_wakeups(now).expect("swept"), 0);
        assert_eq!(mailbox.sweep_wakeups(now + MAX_IDLE * 2).expect("swept"), 1);
        assert!(!mailbox.is_wake_target(&over) && mailbox.is_wake_target(&wakeups_folder));
    }
}
