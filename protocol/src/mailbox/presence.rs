//! Who is there: the executor's lock on the mailbox, kept by the kernel.
//!
//! A POSIX record lock: it goes with its process, however that ends, and anybody may ask for its
//! holder without taking it for a moment. It must never be opened a second time in the executor:
//! closing any descriptor of the file would release it.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::PathBuf;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc;
use serde::{Deserialize, Serialize};

use super::Mailbox;

/// Held by the one executor of a mailbox, for as long as it lives.
#[derive(Debug)]
pub struct ExecutorLock {
    lock: File,
    path: PathBuf,
}

impl ExecutorLock {
    /// Whether the lock is still the one at its path.
    ///
    /// Not so when the mailbox was removed, by a cleaner of `/tmp` or by hand: another executor can
    /// take office there, so this one must go. Looks at the path without opening it.
    pub fn is_current(&self) -> bool {
        let identity = |found: fs::Metadata| (found.dev(), found.ino());
        match (self.lock.metadata(), fs::symlink_metadata(&self.path)) {
            (Ok(held), Ok(found)) => identity(held) == identity(found),
            _ => false,
        }
    }

    /// Whether an executor brought this mailbox up to date before; a new one lacks the results that
    /// an earlier mailbox at this path held.
    pub fn is_restored(&self) -> bool {
        self.lock.metadata().is_ok_and(|held| held.len() > 0)
    }

    pub fn mark_restored(&mut self) -> io::Result<()> {
        self.lock.set_len(0)?;
        self.lock.write_all(b"restored\n")
    }
}

/// Who the executor is, as it says itself; for people, never for decisions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutorIdentity {
    pub pid: u32,
    pub version: String,
    /// Where it reads definitions.
    pub subtools: Vec<PathBuf>,
    pub started_at: jiff::Timestamp,
}

impl Mailbox {
    fn lock_file(&self) -> PathBuf {
        self.root().join("executor.lock")
    }

    pub(super) fn identity_file(&self) -> PathBuf {
        self.root().join("executor.json")
    }

    /// Becomes the executor of this mailbox; `None` if there is one.
    pub fn acquire_executor_lock(&self, identity: &ExecutorIdentity) -> io::Result<Option<ExecutorLock>> {
        let lock = open(&self.lock_file())?;
        match fcntl(lock.as_fd(), FcntlArg::F_SETLK(&whole_file())) {
            Ok(_) => {
                self.adopt_old_wakeups()?;
                super::replace(&self.identity_file(), &serde_json::to_vec(identity)?, "identity")?;
                Ok(Some(ExecutorLock { lock, path: self.lock_file() }))
            }
            Err(nix::Error::EACCES | nix::Error::EAGAIN) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The process id of the executor, 0 if it is in another namespace; `None` if there is none.
    pub fn executor(&self) -> io::Result<Option<u32>> {
        let lock = match fs::OpenOptions::new().read(true).custom_flags(OFlag::O_NOFOLLOW.bits()).open(self.lock_file())
        {
            Ok(lock) => lock,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut asked = whole_file();
        fcntl(lock.as_fd(), FcntlArg::F_GETLK(&mut asked))?;
        let is_free = libc::c_int::from(asked.l_type) == libc::F_UNLCK;
        Ok((!is_free).then(|| u32::try_from(asked.l_pid).unwrap_or(0)))
    }

    /// Takes the executor's word on itself away: it leaves with nothing open.
    pub fn release_executor_lock(&self) -> io::Result<()> {
        super::gone(fs::remove_file(self.identity_file()))
    }

    /// What the executor last said of itself.
    pub fn identity(&self) -> Option<ExecutorIdentity> {
        serde_json::from_slice(&fs::read(self.identity_file()).ok()?).ok()
    }

    /// Lets one caller at a time start an executor; `None` while another does.
    pub fn start_guard(&self) -> io::Result<Option<nix::fcntl::Flock<File>>> {
        let file = open(&self.root().join("start.lock"))?;
        match nix::fcntl::Flock::lock(file, nix::fcntl::FlockArg::LockExclusiveNonblock) {
            Ok(guard) => Ok(Some(guard)),
            Err((_, nix::Error::EWOULDBLOCK)) => Ok(None),
            Err((_, error)) => Err(error.into()),
        }
    }
}

fn open(path: &std::path::Path) -> io::Result<File> {
    fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(OFlag::O_NOFOLLOW.bits())
        .open(path)
}

fn whole_file() -> libc::flock {
    libc::flock {
        l_type: libc::F_WRLCK.try_into().expect("the constant fits the field that it is for"),
        l_whence: libc::SEEK_SET.try_into().expect("the constant fits the field that it is for"),
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
            started_at: jiff::Timestamp::UNIX_EPOCH,
        }
    }

    fn office(mailbox: &Mailbox) -> ExecutorLock {
        mailbox.acquire_executor_lock(&identity()).expect("it works").expect("nobody has it")
    }

    #[test]
    fn a_lock_is_current_until_the_mailbox_is_removed_or_another_is_in_its_place() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().join("mailbox");
        let first = office(&Mailbox::open(&root).expect("it opens"));
        assert!(first.is_current());
        fs::remove_dir_all(&root).expect("removed");
        assert!(!first.is_current());
        let second = office(&Mailbox::open(&root).expect("it opens"));
        assert!(!first.is_current() && second.is_current());
    }

    #[test]
    fn only_a_new_mailbox_lacks_what_an_earlier_one_held() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().join("mailbox");
        let mailbox = Mailbox::open(&root).expect("it opens");
        let mut first = office(&mailbox);
        assert!(!first.is_restored());
        for _ in 0..2 {
            first.mark_restored().expect("written");
            assert!(first.is_restored());
        }
        drop(first);
        assert!(office(&mailbox).is_restored(), "it outlives its executor");
    }
}
