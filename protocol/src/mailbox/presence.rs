//! Whether an executor is running: its lock on the mailbox, and the identity that it publishes.
//!
//! The lock is a POSIX record lock. The kernel releases it when the process ends, however it ends, and
//! anyone can query its holder without acquiring it. The executor must never open the lock file a second
//! time: closing any descriptor of the file releases the lock.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc;
use serde::{Deserialize, Serialize};

use super::{MAX_FILE_BYTES, Mailbox};
use crate::error::ErrorBody;
use crate::regular_file;

/// The lock that the one executor of a mailbox holds while it runs.
#[derive(Debug)]
pub struct ExecutorLock {
    lock: File,
    path: PathBuf,
}

impl ExecutorLock {
    /// Whether the locked file is still the one at its path.
    ///
    /// It is not if the mailbox was removed, for example by a cleaner of `/tmp`. Another executor can then
    /// lock the new file, so this one must stop. Checks the path without opening the file.
    pub fn is_current(&self) -> bool {
        let identity = |found: fs::Metadata| (found.dev(), found.ino());
        match (self.lock.metadata(), fs::symlink_metadata(&self.path)) {
            (Ok(held), Ok(found)) => identity(held) == identity(found),
            _ => false,
        }
    }

    /// Whether an executor has restored the results into this mailbox before. A new mailbox lacks the results
    /// that an earlier mailbox at this path had.
    pub fn is_restored(&self) -> bool {
        self.lock.metadata().is_ok_and(|held| held.len() > 0)
    }

    pub fn mark_restored(&mut self) -> io::Result<()> {
        self.lock.set_len(0)?;
        self.lock.write_all(b"restored\n")
    }
}

/// How the executor describes itself. For display only, never for decisions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutorIdentity {
    pub pid: u32,
    pub version: String,
    /// The folders from which it loads definitions.
    pub subtools: Vec<PathBuf>,
    /// The configuration file that it reads; executors of earlier versions name none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<PathBuf>,
    pub started_at: jiff::Timestamp,
    #[serde(default)]
    pub phase: ExecutorPhase,
}

/// How far an executor has come that holds the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExecutorPhase {
    /// It opens the record and takes over what earlier executors left.
    Starting,
    /// It takes requests. Executors of earlier versions name no phase.
    #[default]
    Serving,
}

/// Why an executor goes on with an earlier configuration. For display only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigProblem {
    pub message: String,
    pub hint: String,
    pub since: jiff::Timestamp,
}

impl Mailbox {
    fn lock_file(&self) -> PathBuf {
        self.root().join("executor.lock")
    }

    pub(super) fn identity_file(&self) -> PathBuf {
        self.root().join("executor.json")
    }

    fn failure_file(&self) -> PathBuf {
        self.root().join("executor-failed.json")
    }

    /// Publishes what changed about the running executor.
    pub fn update_identity(&self, identity: &ExecutorIdentity) -> io::Result<()> {
        super::replace(&self.identity_file(), &serde_json::to_vec(identity)?, "identity")
    }

    /// Leaves the error with which the executor ends, for commands that find no executor running.
    pub fn record_failure(&self, error: &ErrorBody) -> io::Result<()> {
        super::replace(&self.failure_file(), &serde_json::to_vec(error)?, "failure")
    }

    /// The error with which the last executor ended; `None` if a later one started without an error.
    pub fn failure(&self) -> Option<ErrorBody> {
        serde_json::from_slice(&fs::read(self.failure_file()).ok()?).ok()
    }

    pub fn remove_failure(&self) -> io::Result<()> {
        super::ignore_not_found(fs::remove_file(self.failure_file()))
    }

    /// Makes this process the executor of this mailbox; `None` if there already is one.
    pub fn acquire_executor_lock(&self, identity: &ExecutorIdentity) -> io::Result<Option<ExecutorLock>> {
        let lock = open(&self.lock_file())?;
        match fcntl(lock.as_fd(), FcntlArg::F_SETLK(&whole_file())) {
            Ok(_) => {
                self.adopt_old_wakeups()?;
                self.update_identity(identity)?;
                Ok(Some(ExecutorLock { lock, path: self.lock_file() }))
            }
            Err(nix::Error::EACCES | nix::Error::EAGAIN) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the process id of the executor, 0 if it runs in another PID namespace; `None` if no executor
    /// is running.
    pub fn executor(&self) -> io::Result<Option<u32>> {
        let lock = match regular_file::open_itself(&self.lock_file()) {
            Ok(lock) => lock,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut holder = whole_file();
        fcntl(lock.as_fd(), FcntlArg::F_GETLK(&mut holder))?;
        let is_free = libc::c_int::from(holder.l_type) == libc::F_UNLCK;
        Ok((!is_free).then(|| u32::try_from(holder.l_pid).unwrap_or(0)))
    }

    /// Removes the executor's identity file, as a sign that it ended without open tasks. The kernel releases
    /// the lock when the process ends.
    pub fn remove_identity(&self) -> io::Result<()> {
        super::ignore_not_found(fs::remove_file(self.identity_file()))
    }

    /// Returns the identity that the running or last executor published.
    pub fn identity(&self) -> Option<ExecutorIdentity> {
        serde_json::from_slice(&regular_file::read(&self.identity_file(), MAX_FILE_BYTES).ok()?).ok()
    }

    /// Whether the running or last executor said that it reads the configuration `file`, in these very characters. Each
    /// `run` asks, so nothing is parsed: a path that JSON writes with escapes is not found.
    pub fn names_configuration(&self, file: &Path) -> bool {
        let Ok(said) = regular_file::read_text(&self.identity_file(), MAX_FILE_BYTES) else { return false };
        let file = file.to_string_lossy();
        said.match_indices(&*file)
            .any(|(at, _)| said[..at].ends_with("\"config\":\"") && said[at + file.len()..].starts_with('"'))
    }

    fn config_problem_file(&self) -> PathBuf {
        self.root().join("config-problem.json")
    }

    /// Tells every caller why the executor does not use the configuration file as it is now; `None` if it does.
    pub fn publish_config_problem(&self, problem: Option<&ConfigProblem>) -> io::Result<()> {
        match problem {
            Some(problem) => super::replace(&self.config_problem_file(), &serde_json::to_vec(problem)?, "problem"),
            None => super::ignore_not_found(fs::remove_file(self.config_problem_file())),
        }
    }

    /// Returns why the running executor does not use the configuration file as it is now.
    pub fn config_problem(&self) -> Option<ConfigProblem> {
        serde_json::from_slice(&fs::read(self.config_problem_file()).ok()?).ok()
    }

    /// Acquires the lock that lets one caller at a time start an executor; `None` while another caller holds it.
    pub fn acquire_start_lock(&self) -> io::Result<Option<nix::fcntl::Flock<File>>> {
        let file = open(&self.root().join("start.lock"))?;
        match nix::fcntl::Flock::lock(file, nix::fcntl::FlockArg::LockExclusiveNonblock) {
            Ok(guard) => Ok(Some(guard)),
            Err((_, nix::Error::EWOULDBLOCK)) => Ok(None),
            Err((_, error)) => Err(error.into()),
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
        .open(path)
}

fn whole_file() -> libc::flock {
    libc::flock {
        l_type: libc::F_WRLCK.try_into().expect("the constant fits its field"),
        l_whence: libc::SEEK_SET.try_into().expect("the constant fits its field"),
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> ExecutorIdentity {
        ExecutorIdentity {
            pid: 1,
            version: "0".to_owned(),
            subtools: Vec::new(),
            config: None,
            started_at: jiff::Timestamp::UNIX_EPOCH,
            phase: ExecutorPhase::Starting,
        }
    }

    fn open(root: &Path) -> Mailbox {
        Mailbox::open(root).expect("failed to open the mailbox")
    }

    fn acquire(mailbox: &Mailbox) -> ExecutorLock {
        mailbox.acquire_executor_lock(&identity()).expect("failed to acquire the lock").expect("the lock is free")
    }

    #[test]
    fn a_lock_is_current_until_the_mailbox_is_removed_or_replaced() {
        let folder = tempfile::tempdir().expect("failed to create a temporary folder");
        let root = folder.path().join("mailbox");
        let first = acquire(&open(&root));
        assert!(first.is_current());
        fs::remove_dir_all(&root).expect("failed to remove");
        assert!(!first.is_current());
        let second = acquire(&open(&root));
        assert!(!first.is_current() && second.is_current());
    }

    #[test]
    fn an_executor_of_an_earlier_version_counts_as_serving() {
        let earlier = r#"{"pid": 7, "version": "0.1.0", "subtools": [], "started_at": "2026-01-01T00:00:00Z"}"#;
        let identity: ExecutorIdentity = serde_json::from_str(earlier).expect("it is valid");
        assert_eq!(identity.phase, ExecutorPhase::Serving);
    }

    #[test]
    fn a_mailbox_stays_restored_after_its_executor_ended() {
        let folder = tempfile::tempdir().expect("failed to create a temporary folder");
        let mailbox = open(&folder.path().join("mailbox"));
        let mut first = acquire(&mailbox);
        assert!(!first.is_restored());
        for _ in 0..2 {
            first.mark_restored().expect("failed to write");
            assert!(first.is_restored());
        }
        drop(first);
        assert!(acquire(&mailbox).is_restored());
    }
}
