//! Locks on stored secrets, for what reads one and then replaces it: the executor and a command may do so at once.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};
use tokio::time::Instant;

use super::{SecretError, SecretName, Secrets};

/// How long to wait before trying again to take a lock that another process holds.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);
/// How long to try. What is done under a lock takes one request at most, which has a time limit.
const MAX_WAIT: Duration = Duration::from_secs(30);

impl Secrets {
    /// Waits until no other process replaces `name` for this `purpose`. The system releases the lock of a process that
    /// ends.
    pub async fn lock(&self, name: &SecretName, purpose: &str) -> Result<Flock<File>, SecretError> {
        let failed = |source| SecretError::Folder { path: self.folder.clone(), source };
        let mut file = self.open_lock(name, purpose).map_err(failed)?;
        let deadline = Instant::now() + MAX_WAIT;
        loop {
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(lock) => return Ok(lock),
                Err((_, nix::Error::EWOULDBLOCK)) if Instant::now() >= deadline => {
                    return Err(failed(io::ErrorKind::TimedOut.into()));
                }
                Err((same, nix::Error::EWOULDBLOCK | nix::Error::EINTR)) => file = same,
                Err((_, error)) => return Err(failed(error.into())),
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    /// Waits until no other process replaces the lists of hosts, which takes a moment.
    pub(super) fn lock_hosts(&self) -> Result<Flock<File>, SecretError> {
        let failed = |source| SecretError::Folder { path: self.folder.clone(), source };
        let mut file = self.open_lock_file(".hosts.lock").map_err(failed)?;
        loop {
            match Flock::lock(file, FlockArg::LockExclusive) {
                Ok(lock) => return Ok(lock),
                Err((same, nix::Error::EINTR)) => file = same,
                Err((_, error)) => return Err(failed(error.into())),
            }
        }
    }

    fn open_lock(&self, name: &SecretName, purpose: &str) -> io::Result<File> {
        self.open_lock_file(&format!(".{}.{purpose}", name.as_str()))
    }

    /// Names of secrets have no dot, so a `name` with one is not taken for a secret.
    fn open_lock_file(&self, name: &str) -> io::Result<File> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let path = self.folder.join(name);
        fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_at_a_time_holds_a_lock_and_locks_are_not_secrets() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = || Secrets::new(folder.path().join("secrets"), std::collections::BTreeMap::new());
        let (one, other) = (store(), store());
        let name: SecretName = "account".parse().expect("a name");
        let held = one.lock(&name, "renewal").await.expect("it is free");
        let changing = other.lock(&name, "change").await.expect("another purpose");
        drop(changing);
        let mut waiting = Box::pin(other.lock(&name, "renewal"));
        assert!(tokio::time::timeout(2 * RETRY_INTERVAL, &mut waiting).await.is_err(), "it is held");
        drop(held);
        waiting.await.expect("it is free again");
        assert_eq!(one.names().expect("read"), []);
    }
}
