//! Sessions: which browsers may show the page and decide.
//!
//! A command in the human's terminal makes a link, which works once within a minute. The link's secret is in the
//! fragment of the URL, which servers and logs do not see. Signing in with it gives two secrets: a cookie, and a token
//! that the page stores and sends with each POST. Browsers send a cookie to all ports of a host; they do not share the
//! token, and a cookie alone decides nothing.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use protocol::{clock, digest};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::write_private;
use crate::task::confirmation::nonce;

/// The file with the sessions in the executor's folder.
const FILE_NAME: &str = "sessions.json";
/// How long a link can be used.
pub const LINK_LIFETIME: Duration = Duration::from_mins(1);

/// How often a session's last use is saved at most, since each time writes to the disk.
const SAVE_INTERVAL: Duration = Duration::from_mins(1);

/// Makes a link and returns its secret. `folder` is the executor's folder, where sandboxed agents cannot write.
pub fn make_link(folder: &Path) -> io::Result<String> {
    let links = links_folder(folder);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&links)?;
    let secret = nonce();
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(links.join(hash(&secret)))?;
    Ok(secret)
}

/// Uses up a link and returns whether it was valid. Of two concurrent attempts, one succeeds.
fn use_link(folder: &Path, secret: &str, now: SystemTime) -> bool {
    let links = links_folder(folder);
    let path = links.join(hash(secret));
    let made = fs::metadata(&path).and_then(|found| found.modified());
    let is_young = |made: SystemTime| now.duration_since(made).is_ok_and(|age| age <= LINK_LIFETIME);
    let is_valid = fs::remove_file(&path).is_ok() && made.is_ok_and(is_young);
    for old in fs::read_dir(&links).into_iter().flatten().flatten() {
        let made = old.metadata().and_then(|found| found.modified());
        if made.is_ok_and(|made| !is_young(made)) && fs::remove_file(old.path()).is_err() {
            tracing::debug!("failed to remove an expired link");
        }
    }
    is_valid
}

/// The folder of unused links, and of the files that open a browser. Files older than `LINK_LIFETIME` are removed.
pub fn links_folder(folder: &Path) -> PathBuf {
    folder.join("links")
}

/// Secrets are stored and compared as hashes, so the time of a comparison reveals nothing about them.
fn hash(secret: &str) -> String {
    digest::hex(&Sha256::digest(secret.as_bytes()))
}

/// The sessions of the page.
#[derive(Debug)]
pub(super) struct PageSessions {
    folder: PathBuf,
    all: Mutex<Vec<PageSession>>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PageSession {
    /// Not secret: the record of a decision names it.
    name: String,
    cookie: String,
    token: String,
    last_used: Timestamp,
}

/// The secrets of a new session, for the browser.
pub(super) struct SessionKeys {
    pub(super) cookie: String,
    pub(super) token: String,
}

impl PageSessions {
    /// Loads the sessions of earlier executors in this folder.
    pub(super) fn load(folder: &Path) -> Self {
        let saved = fs::read(file(folder)).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        Self { folder: folder.to_owned(), all: Mutex::new(saved.unwrap_or_default()) }
    }

    /// Makes a session if `secret` is that of a valid link.
    pub(super) fn log_in(&self, secret: &str) -> Option<SessionKeys> {
        if !use_link(&self.folder, secret, SystemTime::now()) {
            return None;
        }
        let keys = SessionKeys { cookie: nonce(), token: nonce() };
        let session = PageSession {
            name: nonce()[..8].to_owned(),
            cookie: hash(&keys.cookie),
            token: hash(&keys.token),
            last_used: clock::now(),
        };
        let mut all = self.lock();
        all.push(session);
        self.save(&all);
        Some(keys)
    }

    /// The name of the session that this cookie belongs to. A session that is unused for `idle` has ended.
    pub(super) fn session_of(&self, cookie: &str, idle: Duration) -> Option<String> {
        let (cookie, now) = (hash(cookie), clock::now());
        let mut all = self.lock();
        let count = all.len();
        all.retain(|session| session.last_used.checked_add(idle).is_ok_and(|until| until > now));
        let mut needs_save = all.len() != count;
        let found = all.iter_mut().find(|session| session.cookie == cookie);
        let name = found.map(|session| {
            // The time in memory changes only when it is saved, so a session expires at the same time after a restart.
            if session.last_used.checked_add(SAVE_INTERVAL.min(idle / 60)).is_ok_and(|until| until <= now) {
                session.last_used = now;
                needs_save = true;
            }
            session.name.clone()
        });
        if needs_save {
            self.save(&all);
        }
        name
    }

    /// Whether `token` belongs to the session `name`.
    pub(super) fn is_token(&self, name: &str, token: &str) -> bool {
        let token = hash(token);
        let all = self.lock();
        all.iter().any(|session| session.name == name && session.token == token)
    }

    pub(super) fn log_out(&self, name: &str) {
        let mut all = self.lock();
        all.retain(|session| session.name != name);
        self.save(&all);
    }

    /// A failure is only logged: the sessions then last until the executor stops.
    fn save(&self, all: &[PageSession]) {
        if let Err(error) = write_private(&self.folder, FILE_NAME, all) {
            tracing::warn!(%error, "failed to save the sessions of the page");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<PageSession>> {
        self.all.lock().expect("no code panics while it holds the lock")
    }
}

fn file(folder: &Path) -> PathBuf {
    folder.join(FILE_NAME)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    #[test]
    fn a_link_works_once_within_a_minute() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (folder, now) = (folder.path(), SystemTime::now());
        assert!(!use_link(folder, "x", now));
        let first = make_link(folder).expect("a link");
        assert!(use_link(folder, &first, now) && !use_link(folder, &first, now));
        let late = make_link(folder).expect("a link");
        assert!(!use_link(folder, &late, now + LINK_LIFETIME + Duration::from_secs(5)));
        assert!(!use_link(folder, &late, now), "it was removed");
        let forgotten = make_link(folder).expect("a link");
        use_link(folder, "x", now + LINK_LIFETIME + Duration::from_secs(5));
        assert!(!use_link(folder, &forgotten, now), "expired links are removed");
    }

    #[test]
    fn secrets_are_not_stored_on_the_disk() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let sessions = PageSessions::load(folder.path());
        let link = make_link(folder.path()).expect("a link");
        let keys = sessions.log_in(&link).expect("the link is valid");
        let saved = fs::read_to_string(file(folder.path())).expect("the sessions are saved");
        for secret in [&link, &keys.cookie, &keys.token] {
            assert!(!saved.contains(secret.as_str()));
        }
    }

    #[test]
    fn a_used_session_survives_restarts_of_the_executor() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let sessions = PageSessions::load(folder.path());
        let keys = sessions.log_in(&make_link(folder.path()).expect("a link")).expect("the link is valid");
        let saved = || -> Vec<PageSession> {
            serde_json::from_slice(&fs::read(file(folder.path())).expect("the sessions are saved")).expect("sessions")
        };
        let used = |minutes: i64| {
            let mut sessions = saved();
            sessions[0].last_used -= jiff::SignedDuration::from_mins(minutes);
            fs::write(file(folder.path()), serde_json::to_vec(&sessions).expect("JSON")).expect("the file is written");
            PageSessions::load(folder.path()).session_of(&keys.cookie, HOUR).is_some()
        };
        let started = clock::now();
        assert!(used(50) && saved()[0].last_used >= started, "the last use is now");
        assert!(used(50) && used(50), "each use counts");
        let before = saved()[0].last_used;
        assert!(used(0) && saved()[0].last_used == before, "not saved at every request");
        assert!(!used(61));
    }

    #[test]
    fn a_session_outlives_the_executor_and_ends_by_logout_or_idleness() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let log_in = |sessions: &PageSessions| {
            sessions.log_in(&make_link(folder.path()).expect("a link")).expect("the link is valid")
        };
        let sessions = PageSessions::load(folder.path());
        let keys = log_in(&sessions);
        let sessions = PageSessions::load(folder.path());
        let name = sessions.session_of(&keys.cookie, HOUR).expect("the session exists");
        assert!(sessions.is_token(&name, &keys.token) && !sessions.is_token(&name, &keys.cookie));
        let other = log_in(&sessions);
        let other_name = sessions.session_of(&other.cookie, HOUR).expect("the session exists");
        assert!(!sessions.is_token(&name, &other.token), "each session has its own token");
        sessions.log_out(&name);
        assert_eq!(sessions.session_of(&keys.cookie, HOUR), None);
        assert_eq!(PageSessions::load(folder.path()).session_of(&other.cookie, HOUR), Some(other_name));
        assert_eq!(PageSessions::load(folder.path()).session_of(&other.cookie, Duration::ZERO), None, "idle");
    }
}
