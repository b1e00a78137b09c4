//! Sessions: who may decide.
//!
//! A link is made by whoever has the human's terminal, works once and for a minute, and its secret
//! stands in the fragment, which no server and no log sees. It gives two secrets: a cookie, and a token
//! that the page keeps for itself and sends with each request that changes something. Cookies are
//! shared by all ports of a host name; the token is not, and a cookie alone decides nothing.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use protocol::{clock, digest};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::keep;
use crate::task::confirmation::nonce;

/// Their file in the executor's folder.
const NAME: &str = "sessions.json";
/// How long a link works.
pub const LINK_LIFETIME: Duration = Duration::from_mins(1);

/// How exactly it is kept when a session was last used: each time is a write to the disk.
const EXACT: Duration = Duration::from_mins(1);

/// Makes the secret of a link; `folder` is the executor's, where no agent's sandbox writes.
pub fn make_link(folder: &Path) -> io::Result<String> {
    let links = links_folder(folder);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&links)?;
    let secret = nonce();
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(links.join(hash(&secret)))?;
    Ok(secret)
}

/// Uses a link up; whether it works. Of two that try at once one succeeds.
fn use_link(folder: &Path, secret: &str, now: SystemTime) -> bool {
    let links = links_folder(folder);
    let path = links.join(hash(secret));
    let made = fs::metadata(&path).and_then(|found| found.modified());
    let is_young = |made: SystemTime| now.duration_since(made).is_ok_and(|age| age <= LINK_LIFETIME);
    let works = fs::remove_file(&path).is_ok() && made.is_ok_and(is_young);
    for old in fs::read_dir(&links).into_iter().flatten().flatten() {
        let made = old.metadata().and_then(|found| found.modified());
        if made.is_ok_and(|made| !is_young(made)) && fs::remove_file(old.path()).is_err() {
            tracing::debug!("a link that no longer works was left");
        }
    }
    works
}

/// Where links lie until they are used, and what is written to open a browser with; what is older than a
/// link works is removed.
pub fn links_folder(folder: &Path) -> PathBuf {
    folder.join("links")
}

/// Secrets are kept and compared by their hash: how long a comparison takes tells nothing of them.
fn hash(secret: &str) -> String {
    digest::hex(&Sha256::digest(secret.as_bytes()))
}

/// Who is logged in.
#[derive(Debug)]
pub(super) struct PageSessions {
    folder: PathBuf,
    idle: Duration,
    all: Mutex<Vec<PageSession>>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PageSession {
    /// Public, for the record of who decided.
    name: String,
    cookie: String,
    token: String,
    last_used: Timestamp,
}

/// What a new session gives to the browser.
pub(super) struct SessionKeys {
    pub(super) cookie: String,
    pub(super) token: String,
}

impl PageSessions {
    /// Those that were there before the executor was started are still.
    pub(super) fn load(folder: &Path, idle: Duration) -> Self {
        let kept = fs::read(file(folder)).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        Self { folder: folder.to_owned(), idle, all: Mutex::new(kept.unwrap_or_default()) }
    }

    /// Logs in whoever has the secret of a link.
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
        let mut all = self.all.lock().expect("nobody panics with it");
        all.push(session);
        self.save(&all);
        Some(keys)
    }

    /// The name of the session that this cookie belongs to.
    pub(super) fn of_cookie(&self, cookie: &str) -> Option<String> {
        let (cookie, now) = (hash(cookie), clock::now());
        let mut all = self.all.lock().expect("nobody panics with it");
        let count = all.len();
        let idle = self.idle;
        all.retain(|session| session.last_used.checked_add(idle).is_ok_and(|until| until > now));
        let mut is_news = all.len() != count;
        let found = all.iter_mut().find(|session| session.cookie == cookie);
        let name = found.map(|session| {
            // What is not kept is not counted either: a session ends as soon, whether or not its executor did.
            if session.last_used.checked_add(EXACT.min(idle / 60)).is_ok_and(|until| until <= now) {
                session.last_used = now;
                is_news = true;
            }
            session.name.clone()
        });
        if is_news {
            self.save(&all);
        }
        name
    }

    /// Whether this is the token of the session of that name.
    pub(super) fn is_token(&self, name: &str, token: &str) -> bool {
        let token = hash(token);
        let all = self.all.lock().expect("nobody panics with it");
        all.iter().any(|session| session.name == name && session.token == token)
    }

    pub(super) fn log_out(&self, name: &str) {
        let mut all = self.all.lock().expect("nobody panics with it");
        all.retain(|session| session.name != name);
        self.save(&all);
    }

    /// Sessions that cannot be kept end with the executor; they hold until then.
    fn save(&self, all: &[PageSession]) {
        if let Err(error) = keep(&self.folder, NAME, all) {
            tracing::warn!(%error, "the sessions of the page could not be kept");
        }
    }
}

fn file(folder: &Path) -> PathBuf {
    folder.join(NAME)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    #[test]
    fn a_link_works_once_and_for_a_minute() {
        let folder = tempfile::tempdir().expect("a folder");
        let (folder, now) = (folder.path(), SystemTime::now());
        assert!(!use_link(folder, "x", now));
        let first = make_link(folder).expect("made");
        assert!(use_link(folder, &first, now) && !use_link(folder, &first, now));
        let late = make_link(folder).expect("made");
        assert!(!use_link(folder, &late, now + LINK_LIFETIME + Duration::from_secs(5)));
        assert!(!use_link(folder, &late, now), "it is gone");
        let forgotten = make_link(folder).expect("made");
        use_link(folder, "x", now + LINK_LIFETIME + Duration::from_secs(5));
        assert!(!use_link(folder, &forgotten, now), "what is too old is removed");
    }

    #[test]
    fn nothing_on_the_disk_tells_a_secret() {
        let folder = tempfile::tempdir().expect("a folder");
        let sessions = PageSessions::load(folder.path(), HOUR);
        let link = make_link(folder.path()).expect("made");
        let keys = sessions.log_in(&link).expect("it works");
        let kept = fs::read_to_string(file(folder.path())).expect("kept");
        for secret in [&link, &keys.cookie, &keys.token] {
            assert!(!kept.contains(secret.as_str()));
        }
    }

    #[test]
    fn a_session_that_is_used_does_not_become_idle_by_a_new_executor() {
        let folder = tempfile::tempdir().expect("a folder");
        let sessions = PageSessions::load(folder.path(), HOUR);
        let keys = sessions.log_in(&make_link(folder.path()).expect("made")).expect("it works");
        let kept = || -> Vec<PageSession> {
            serde_json::from_slice(&fs::read(file(folder.path())).expect("kept")).expect("sessions")
        };
        let used = |minutes: i64| {
            let mut sessions = kept();
            sessions[0].last_used -= jiff::SignedDuration::from_mins(minutes);
            fs::write(file(folder.path()), serde_json::to_vec(&sessions).expect("JSON")).expect("written");
            PageSessions::load(folder.path(), HOUR).of_cookie(&keys.cookie).is_some()
        };
        let started = clock::now();
        assert!(used(50) && kept()[0].last_used >= started, "it was used now");
        assert!(used(50) && used(50), "and each time");
        let before = kept()[0].last_used;
        assert!(used(0) && kept()[0].last_used == before, "not written for every look");
        assert!(!used(61));
    }

    #[test]
    fn a_session_outlives_the_executor_and_ends_with_logout_or_idleness() {
        let folder = tempfile::tempdir().expect("a folder");
        let log_in =
            |sessions: &PageSessions| sessions.log_in(&make_link(folder.path()).expect("made")).expect("it works");
        let sessions = PageSessions::load(folder.path(), HOUR);
        let keys = log_in(&sessions);
        let sessions = PageSessions::load(folder.path(), HOUR);
        let name = sessions.of_cookie(&keys.cookie).expect("still there");
        assert!(sessions.is_token(&name, &keys.token) && !sessions.is_token(&name, &keys.cookie));
        let other = log_in(&sessions);
        let other_name = sessions.of_cookie(&other.cookie).expect("there");
        assert!(!sessions.is_token(&name, &other.token), "each has its own");
        sessions.log_out(&name);
        assert_eq!(sessions.of_cookie(&keys.cookie), None);
        assert_eq!(PageSessions::load(folder.path(), HOUR).of_cookie(&other.cookie), Some(other_name));
        assert_eq!(PageSessions::load(folder.path(), Duration::ZERO).of_cookie(&other.cookie), None, "idle");
    }
}
