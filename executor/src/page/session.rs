//! Sessions: which browsers may show the page and decide.
//!
//! Signing in with a link gives a browser two secrets: a cookie, which says whose request it is, and a key, with which
//! it proves each request. Browsers send a cookie to all ports of a host; the key is never sent again. Sessions live
//! as long as the executor, like its address.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use ground::page_client::client::TERMINAL;
use ground::page_client::link::use_link;
use ground::page_client::proof::{ChallengeAnswer, ProvenRequest, SessionKey};
use ground::task::confirmation::nonce;
use jiff::Timestamp;
use protocol::{clock, digest};
use sha2::{Digest as _, Sha256};
use tokio::sync::broadcast;

/// The most nonces of one session that were given out and not used. A browser uses each at once.
const MAX_NONCES: usize = 64;
/// How many random digits the name of a session has, at least.
const MIN_DIGITS: usize = 4;
/// Capacity of the channel of changes; a receiver that falls behind looks at the sessions themselves.
const MAX_CHANGES: usize = 16;

/// The sessions of the page.
#[derive(Debug)]
pub struct PageSessions {
    folder: PathBuf,
    all: Mutex<Vec<PageSession>>,
    changes: broadcast::Sender<SessionChange>,
}

#[derive(Debug)]
struct PageSession {
    /// Hash of the cookie.
    cookie: String,
    key: SessionKey,
    /// Given out and not used, the oldest first.
    nonces: VecDeque<String>,
    info: SessionInfo,
}

/// What a human is told about a session.
#[derive(Debug, Clone)]
pub(super) struct SessionInfo {
    /// Not secret: the record of a decision names it. It says which kind of browser it is.
    pub(super) name: String,
    pub(super) kind: BrowserKind,
    pub(super) signed_in_at: Timestamp,
    pub(super) last_used: Timestamp,
}

/// Which browser a session belongs to, in its own words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BrowserKind {
    program: &'static str,
    system: &'static str,
}

/// A browser signed in, or a session ended.
#[derive(Debug, Clone)]
pub(super) enum SessionChange {
    SignedIn(SessionInfo),
    Ended,
}

/// The secrets of a new session, for the browser.
pub(super) struct SessionSecrets {
    pub(super) cookie: String,
    pub(super) key: SessionKey,
}

impl BrowserKind {
    /// The first that a `User-Agent` header names: browsers add the names of those that they descend from.
    const PROGRAMS: [(&str, &str); 7] = [
        (TERMINAL, "terminal"),
        ("Edg", "Edge"),
        ("OPR/", "Opera"),
        ("Firefox/", "Firefox"),
        ("FxiOS/", "Firefox"),
        ("Chrom", "Chromium"),
        ("Safari/", "Safari"),
    ];
    const SYSTEMS: [(&str, &str); 6] = [
        ("Android", "Android"),
        ("iPhone", "iPhone"),
        ("iPad", "iPad"),
        ("Windows", "Windows"),
        ("Macintosh", "macOS"),
        ("Linux", "Linux"),
    ];

    pub(super) fn of(user_agent: &str) -> Self {
        let first = |names: &[(&str, &'static str)]| {
            names.iter().find(|(part, _)| user_agent.contains(part)).map_or("", |(_, name)| name)
        };
        Self { program: first(&Self::PROGRAMS), system: first(&Self::SYSTEMS) }
    }

    fn is_browser(self) -> bool {
        !["", "terminal"].contains(&self.program)
    }

    /// Like `Chromium on Linux`.
    pub(super) fn words(self) -> String {
        match (self.program, self.system) {
            ("", _) => "another program".to_owned(),
            ("terminal", _) => "your terminal".to_owned(),
            (program, "") => program.to_owned(),
            (program, system) => format!("{program} on {system}"),
        }
    }

    /// The beginning of the names of its sessions, like `chromium-linux`.
    fn name(self) -> String {
        let words = [self.program, self.system].into_iter().filter(|word| !word.is_empty());
        let name = words.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("-");
        if name.is_empty() { "program".to_owned() } else { name }
    }
}

impl PageSessions {
    /// `folder` is the executor's folder, where links are made.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), all: Mutex::default(), changes: broadcast::Sender::new(MAX_CHANGES) }
    }

    /// Makes a session if `secret` is that of a valid link.
    pub(super) fn log_in(&self, secret: &str, kind: BrowserKind) -> Option<SessionSecrets> {
        if !use_link(&self.folder, secret, SystemTime::now()) {
            return None;
        }
        let secrets = SessionSecrets { cookie: nonce(), key: SessionKey::random() };
        let now = clock::now();
        let (cookie, key, nonces) = (hash(&secrets.cookie), secrets.key.clone(), VecDeque::new());
        let mut all = self.lock();
        let name = free_name(&kind.name(), &nonce(), |name| all.iter().any(|session| session.info.name == name));
        let info = SessionInfo { name, kind, signed_in_at: now, last_used: now };
        all.push(PageSession { cookie, key, nonces, info: info.clone() });
        drop(all);
        self.tell(SessionChange::SignedIn(info));
        Some(secrets)
    }

    /// The name of the session that this cookie belongs to. A session that is unused for `idle` has ended.
    pub(super) fn session_of(&self, cookie: &str, idle: Duration) -> Option<String> {
        let cookie = hash(cookie);
        let mut all = self.lock();
        drop_idle(&mut all, idle);
        let session = all.iter_mut().find(|session| session.cookie == cookie)?;
        session.info.last_used = clock::now();
        Some(session.info.name.clone())
    }

    /// Answers a browser's nonce, and gives it one that its next request is bound to.
    pub(super) fn challenge(&self, name: &str, theirs: &str) -> Option<ChallengeAnswer> {
        let mut all = self.lock();
        let session = all.iter_mut().find(|session| session.info.name == name)?;
        let ours = nonce();
        session.nonces.push_back(ours.clone());
        if session.nonces.len() > MAX_NONCES {
            session.nonces.pop_front();
        }
        Some(session.key.answer(theirs, ours))
    }

    /// Whether `proof` proves that the session `name` sent this request; its nonce counts once.
    pub(super) fn is_proven(&self, name: &str, request: ProvenRequest<'_>, proof: &str) -> bool {
        let Some((nonce, proof)) = proof.split_once('.') else { return false };
        let key = {
            let mut all = self.lock();
            let Some(session) = all.iter_mut().find(|session| session.info.name == name) else { return false };
            let Some(index) = session.nonces.iter().position(|known| known == nonce) else { return false };
            session.nonces.remove(index);
            session.key.clone()
        };
        key.is_proven(request, nonce, proof)
    }

    /// Ends the session `name`; returns whether it existed.
    pub(super) fn end(&self, name: &str) -> bool {
        self.end_where(|session| session.name == name) > 0
    }

    /// Ends all sessions but `kept`; returns how many.
    pub(super) fn end_others(&self, kept: &str) -> usize {
        self.end_where(|session| session.name != kept)
    }

    fn end_where(&self, is_ended: impl Fn(&SessionInfo) -> bool) -> usize {
        let mut all = self.lock();
        let count = all.len();
        all.retain(|session| !is_ended(&session.info));
        let ended = count - all.len();
        drop(all);
        if ended > 0 {
            self.tell(SessionChange::Ended);
        }
        ended
    }

    /// The sessions, the newest first.
    pub(super) fn list(&self) -> Vec<SessionInfo> {
        self.lock().iter().rev().map(|session| session.info.clone()).collect()
    }

    pub(super) fn exists(&self, name: &str) -> bool {
        self.lock().iter().any(|session| session.info.name == name)
    }

    /// Whether a browser is signed in. A session that is unused for `idle` has ended.
    pub fn has_browser(&self, idle: Duration) -> bool {
        let mut all = self.lock();
        drop_idle(&mut all, idle);
        all.iter().any(|session| session.info.kind.is_browser())
    }

    pub(super) fn subscribe(&self) -> broadcast::Receiver<SessionChange> {
        self.changes.subscribe()
    }

    fn tell(&self, change: SessionChange) {
        if self.changes.send(change).is_err() {
            tracing::debug!("no page is open");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<PageSession>> {
        self.all.lock().expect("no code panics while it holds the lock")
    }
}

/// The name of a new session: the fewest digits with which no other one has it.
fn free_name(kind: &str, random: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let mut names = (MIN_DIGITS..=random.len()).map(|digits| format!("{kind}-{}", &random[..digits]));
    names.find(|name| !is_taken(name)).expect("no other session has all of these random digits")
}

fn drop_idle(all: &mut Vec<PageSession>, idle: Duration) {
    let now = clock::now();
    all.retain(|session| session.info.last_used.checked_add(idle).is_ok_and(|until| until > now));
}

/// Cookies are compared as hashes, so the time of a comparison reveals nothing about them.
fn hash(secret: &str) -> String {
    digest::hex(&Sha256::digest(secret.as_bytes()))
}

#[cfg(test)]
mod tests {
    use ground::page_client::link::make_link;

    use super::*;

    const HOUR: Duration = Duration::from_hours(1);
    const CHROMIUM: &str = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/156.0.0.0 \
                            Safari/537.36";

    fn log_in(sessions: &PageSessions, user_agent: &str) -> (String, SessionSecrets) {
        let link = make_link(&sessions.folder).expect("a link");
        let secrets = sessions.log_in(&link, BrowserKind::of(user_agent)).expect("the link is valid");
        (sessions.session_of(&secrets.cookie, HOUR).expect("the session exists"), secrets)
    }

    #[test]
    fn two_sessions_never_have_one_name() {
        assert_eq!(free_name("firefox", "0123456789", |_| false), "firefox-0123");
        assert_eq!(free_name("firefox", "0123456789", |name| name.len() < 14), "firefox-012345");
        let folder = tempfile::tempdir().expect("a folder");
        let sessions = PageSessions::new(folder.path());
        // Of four random digits, two of so many would most likely be the same.
        let all: Vec<_> = (0..1_000).map(|_| log_in(&sessions, CHROMIUM)).collect();
        for (name, secrets) in all {
            let answer = sessions.challenge(&name, "theirs").expect("the session exists");
            assert!(secrets.key.is_executor("theirs", &answer), "{name} is another session");
        }
    }

    #[test]
    fn a_session_ends_by_name_by_all_others_and_by_idleness() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let sessions = PageSessions::new(folder.path());
        let mut changes = sessions.subscribe();
        let (first, first_secrets) = log_in(&sessions, CHROMIUM);
        let (second, _) = log_in(&sessions, CHROMIUM);
        let (third, third_secrets) = log_in(&sessions, TERMINAL);
        assert_eq!(sessions.list().into_iter().map(|info| info.name).collect::<Vec<_>>(), [&*third, &*second, &*first]);
        assert!(matches!(changes.try_recv(), Ok(SessionChange::SignedIn(info)) if info.name == first));
        assert!(sessions.end(&second) && !sessions.end(&second) && !sessions.exists(&second));
        assert!(sessions.has_browser(HOUR));
        assert_eq!(sessions.end_others(&third), 1);
        assert_eq!(sessions.session_of(&first_secrets.cookie, HOUR), None);
        assert!(!sessions.has_browser(HOUR), "a terminal is no browser");
        assert_eq!(sessions.session_of(&third_secrets.cookie, Duration::ZERO), None, "idle");
        assert!(sessions.list().is_empty());
    }

    #[test]
    fn a_nonce_counts_once_and_only_for_its_session() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let sessions = PageSessions::new(folder.path());
        let ((ours, secrets), (other, _)) = (log_in(&sessions, CHROMIUM), log_in(&sessions, CHROMIUM));
        let request = ProvenRequest { method: "POST", target: "/decide", body: b"{}" };
        let answer = sessions.challenge(&ours, "theirs").expect("the session exists");
        assert!(secrets.key.is_executor("theirs", &answer));
        let proof = secrets.key.prove(request, &answer);
        assert!(!sessions.is_proven(&other, request, &proof));
        assert!(!sessions.is_proven(&ours, request, "x") && !sessions.is_proven(&ours, request, "x.y"));
        assert!(sessions.is_proven(&ours, request, &proof));
        assert!(!sessions.is_proven(&ours, request, &proof), "it was used");
        let oldest = sessions.challenge(&ours, "theirs").expect("the session exists");
        for _ in 0..MAX_NONCES {
            sessions.challenge(&ours, "theirs").expect("the session exists");
        }
        assert!(!sessions.is_proven(&ours, request, &secrets.key.prove(request, &oldest)), "it was forgotten");
    }

    #[test]
    fn a_browser_is_named_by_what_it_says() {
        for (user_agent, words, name) in [
            (CHROMIUM, "Chromium on Linux", "chromium-linux"),
            (
                "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.0 Safari/605.1.15",
                "Safari on macOS",
                "safari-macos",
            ),
            (
                "Mozilla/5.0 (Android 14; Mobile; rv:130.0) Gecko/130.0 Firefox/130.0",
                "Firefox on Android",
                "firefox-android",
            ),
            ("Mozilla/5.0 (Windows NT 10.0) Chrome/156.0 Safari/537.36 Edg/156.0", "Edge on Windows", "edge-windows"),
            (TERMINAL, "your terminal", "terminal"),
            ("curl/8", "another program", "program"),
        ] {
            let kind = BrowserKind::of(user_agent);
            assert_eq!((kind.words().as_str(), kind.name().as_str()), (words, name));
        }
    }
}
