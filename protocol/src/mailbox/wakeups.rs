//! What agents are owed: the tasks of a session whose end it has not been told.
//!
//! ```text
//! owed/<listener>/         made by the client's hook: this session can be woken
//! owed/<listener>/<id>     made by `run`, before the request is posted
//! owed/<listener>/.waiter  the hook that waits for this session now
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

use super::{Mailbox, ensure_private, gone, replace};
use crate::digest;
use crate::task::TaskId;

/// A mark without a result file is of a `run` that has not been answered yet; or never will be, after this.
const ANSWERED_BY_THEN: Duration = Duration::from_mins(10);
/// A session that was owed nothing for so long is over; if it is not, its hook makes its folder anew.
const FORGOTTEN_AFTER: Duration = Duration::from_hours(24 * 7);

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
    pub fn listens(&self, listener: &WakeTarget) -> bool {
        self.owed(listener).is_dir()
    }

    /// From now on somebody does.
    pub fn listen(&self, listener: &WakeTarget) -> io::Result<()> {
        for folder in [self.root.join("owed"), self.owed(listener)] {
            ensure_private(&folder).map_err(io::Error::other)?;
        }
        Ok(())
    }

    /// Marks a task whose end this session is to be told.
    pub fn owe(&self, listener: &WakeTarget, id: TaskId) -> io::Result<()> {
        let folder = self.owed(listener);
        fs::DirBuilder::new().mode(0o700).recursive(true).create(&folder)?;
        File::create(folder.join(id.to_string())).map(drop)
    }

    /// The session knows how the task ended, or there is no such task.
    pub fn owe_no_more(&self, listener: &WakeTarget, id: TaskId) -> io::Result<()> {
        gone(fs::remove_file(self.owed(listener).join(id.to_string())))
    }

    /// What this session is owed, in the order in which it was asked for.
    pub fn owed_to(&self, listener: &WakeTarget) -> io::Result<Vec<TaskId>> {
        let entries = match fs::read_dir(self.owed(listener)) {
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
            } else if is_older(entry.metadata().ok().as_ref(), SystemTime::now(), ANSWERED_BY_THEN) {
                gone(fs::remove_file(entry.path()))?;
            }
        }
        ids.sort();
        Ok(ids)
    }

    /// Says that this process waits for the session from now on, and whoever did before need not.
    pub fn take_over(&self, listener: &WakeTarget, waiter: &str) -> io::Result<()> {
        replace(&self.owed(listener).join(WAITER), waiter.as_bytes(), "waiter")
    }

    /// Whether it still does.
    pub fn is_waiter(&self, listener: &WakeTarget, waiter: &str) -> bool {
        fs::read(self.owed(listener).join(WAITER)).is_ok_and(|found| found == waiter.as_bytes())
    }

    /// The right to tell the session something; waits for whoever has it, which takes no time.
    ///
    /// An error if marks could not be taken away afterwards: who is told must not be told for ever.
    pub fn telling(&self, listener: &WakeTarget) -> io::Result<WakeLock> {
        let folder = self.owed(listener);
        let lock = Flock::lock(File::open(&folder)?, FlockArg::LockExclusive).map_err(|(_, error)| error)?;
        File::create(folder.join(TELLING))?;
        Ok(WakeLock { folder, _lock: lock })
    }

    /// Drops the folders of sessions that have been owed nothing for long.
    pub(super) fn sweep_owed(&self, now: SystemTime) -> io::Result<usize> {
        let Ok(sessions) = fs::read_dir(self.root.join("owed")) else { return Ok(0) };
        let mut swept = 0;
        for session in sessions {
            let session = session?;
            if !is_older(session.metadata().ok().as_ref(), now, FORGOTTEN_AFTER) {
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

    fn owed(&self, listener: &WakeTarget) -> PathBuf {
        self.root.join("owed").join(&listener.0)
    }
}

impl WakeLock {
    /// The session was told of these.
    pub fn told(self, ids: &[TaskId]) -> io::Result<()> {
        for id in ids {
            gone(fs::remove_file(self.folder.join(id.to_string())))?;
        }
        gone(fs::remove_file(self.folder.join(TELLING)))
    }
}

fn is_older(found: Option<&fs::Metadata>, now: SystemTime, age: Duration) -> bool {
    let modified = found.and_then(|found| found.modified().ok());
    modified.is_some_and(|at| now.duration_since(at).is_ok_and(|passed| passed >= age))
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
        assert!(!mailbox.listens(&own));
        mailbox.listen(&own).expect("made");
        assert!(mailbox.listens(&own) && !mailbox.listens(&other));
        let (first, second, unanswered) = (TaskId::new(), TaskId::new(), TaskId::new());
        for id in [second, first, unanswered] {
            mailbox.owe(&own, id).expect("marked");
        }
        for id in [first, second] {
            mailbox.publish(id, "{}").expect("published");
        }
        assert_eq!(mailbox.owed_to(&own).expect("read"), [first, second]);
        assert_eq!(mailbox.owed_to(&other).expect("read"), []);
        mailbox.owe_no_more(&other, first).expect("nothing to do");
        mailbox.telling(&own).expect("mine").told(&[second]).expect("told");
        assert_eq!(mailbox.owed_to(&own).expect("read"), [first]);
        mailbox.owe_no_more(&own, first).expect("taken away");
        assert_eq!(mailbox.owed_to(&own).expect("read"), []);
    }

    #[test]
    fn only_the_last_waiter_waits() {
        let (_folder, mailbox) = mailbox();
        let listener = WakeTarget::new("codex", "session:1");
        mailbox.listen(&listener).expect("made");
        for waiter in ["one", "two"] {
            mailbox.take_over(&listener, waiter).expect("written");
        }
        assert!(!mailbox.is_waiter(&listener, "one") && mailbox.is_waiter(&listener, "two"));
    }

    #[test]
    fn the_folder_of_a_session_that_is_over_goes_unless_it_is_owed_something() {
        let (_folder, mailbox) = mailbox();
        let (over, owed) = (WakeTarget::new("codex", "session:1"), WakeTarget::new("codex", "session:2"));
        for listener in [&over, &owed] {
            mailbox.listen(listener).expect("made");
            mailbox.take_over(listener, "one").expect("written");
        }
        mailbox.owe(&owed, TaskId::new()).expect("marked");
        let now = SystemTime::now();
        assert_eq!(mailbox.sweep_owed(now).expect("swept"), 0);
        assert_eq!(mailbox.sweep_owed(now + FORGOTTEN_AFTER * 2).expect("swept"), 1);
        assert!(!mailbox.listens(&over) && mailbox.listens(&owed));
    }
}
