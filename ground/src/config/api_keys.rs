//! The API keys: what the clients of `serve` show to say who they are.
//!
//! A human makes them with a command. The file holds no key, only its hash. It says what a key may ask and read, and never
//! that it may decide: that scope is in the executor's record, where only the page puts it.

use std::fmt;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use nix::fcntl::{Flock, FlockArg};
use protocol::error::chain;
use protocol::paths::{Paths, create_private};
use protocol::trust;
use protocol::{clock, digest, regular_file};
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;
use sha2::{Digest as _, Sha256};

use crate::task::api_key::ApiKeyRef;
use protocol::file_state::FileState;

/// What every key starts with.
const PREFIX: &str = "amt_";
/// The hexadecimal digits of an id.
const ID_CHARS: usize = 8;
const SECRET_BYTES: usize = 32;
/// The characters of a secret in base64url.
const SECRET_CHARS: usize = 43;
/// The longest name of a key.
const MAX_NAME_CHARS: usize = 32;
/// The most keys.
const MAX_API_KEYS: usize = 1_000;
/// Far more than that many keys need.
const MAX_FILE_BYTES: u64 = 4 << 20;
/// A file that is younger when it is read is read again: it may change within one tick of the file system's clock.
const MIN_CACHED_AGE: Duration = Duration::from_secs(2);

/// The file of the API keys.
#[derive(Debug)]
pub struct ApiKeys {
    path: PathBuf,
    /// The file as it was read last.
    cached: Mutex<Option<(FileState, Arc<Vec<ClientKey>>)>>,
}

/// What is known of one API key, which is that of a client of `serve`. Nothing in it is secret.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientKey {
    /// The human's name for it.
    pub name: String,
    /// The part of the key that is not secret.
    pub id: String,
    pub scopes: ApiScopes,
    /// SHA-256 of the whole key, in hexadecimal.
    pub hash: String,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    #[serde(default)]
    pub history: HistoryKeeper,
    /// The model of its sessions; `None` for the one of the configuration.
    pub model: Option<String>,
    /// The profile with the rights of its client; `None` if nothing narrows them.
    pub profile: Option<String>,
    /// Nothing in the messages of its client is a command.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_commands: bool,
}

/// What a key may do. Whether it may also decide is not said here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApiScopes {
    /// Start sessions and write to them.
    #[serde(default)]
    pub ask: bool,
    /// Read the sessions of this key and their results.
    #[serde(default)]
    pub read: bool,
}

/// Who keeps the history of a conversation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HistoryKeeper {
    /// The session.
    #[default]
    Server,
    /// The client sends the whole history with each request.
    Client,
}

/// What may be said of a new key beside its name and scopes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApiKeyOptions {
    pub expires_at: Option<Timestamp>,
    pub history: HistoryKeeper,
    pub model: Option<String>,
    pub profile: Option<String>,
    pub no_commands: bool,
}

/// A key that was just made. Only this holds the key itself.
#[derive(Clone, PartialEq, Eq)]
pub struct NewApiKey {
    pub key: String,
    pub id: String,
}

impl fmt::Debug for NewApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewApiKey").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Why the keys were not read or changed.
#[derive(Debug, thiserror::Error)]
pub enum ApiKeyError {
    #[error("`{0}` is not a name for an API key; use 1 to 32 of the characters a-z 0-9 -")]
    Name(String),
    #[error("there is an API key with the name `{0}` already; revoke it, or choose another name")]
    Taken(String),
    #[error("there is no API key with the name `{0}`; `agent-magic-tool serve key list` shows all")]
    Unknown(String),
    #[error("an API key needs a scope: ask, read or both")]
    NoScope,
    #[error("there are {MAX_API_KEYS} API keys already; revoke those that are no longer used")]
    TooMany,
    #[error("failed to read or write the API keys in `{path}`")]
    Io { path: String, source: io::Error },
    #[error("the API keys in `{path}` are not believed")]
    Distrusted { path: String, source: trust::Distrust },
    #[error("the file of API keys `{path}` is malformed; move it away and make new keys")]
    Malformed { path: String, source: serde_json::Error },
}

/// The file's whole content.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ApiKeyFile {
    keys: Vec<ClientKey>,
}

impl ApiKeys {
    /// The keys of this user.
    pub fn of(paths: &Paths) -> Self {
        Self::at(paths.api_keys())
    }

    /// The keys in this file.
    pub fn at(path: PathBuf) -> Self {
        Self { path, cached: Mutex::default() }
    }

    /// Makes a key. It is durable when this returns.
    pub fn create(&self, name: &str, scopes: ApiScopes, options: ApiKeyOptions) -> Result<NewApiKey, ApiKeyError> {
        if !is_key_name(name) {
            return Err(ApiKeyError::Name(name.to_owned()));
        }
        if scopes == ApiScopes::default() {
            return Err(ApiKeyError::NoScope);
        }
        let ApiKeyOptions { expires_at, history, model, profile, no_commands } = options;
        self.change(|keys| {
            if keys.iter().any(|key| key.name == name) {
                return Err(ApiKeyError::Taken(name.to_owned()));
            }
            if keys.len() >= MAX_API_KEYS {
                return Err(ApiKeyError::TooMany);
            }
            let id = std::iter::repeat_with(new_id)
                .find(|id| keys.iter().all(|key| key.id != *id))
                .expect("there are far more ids than keys");
            let key = format!("{PREFIX}{id}_{}", URL_SAFE_NO_PAD.encode(random::<SECRET_BYTES>()));
            let (name, hash, created_at) = (name.to_owned(), hash(&key), clock::now());
            let id_of_key = id.clone();
            keys.push(ClientKey {
                name,
                id: id_of_key,
                scopes,
                hash,
                created_at,
                expires_at,
                history,
                model,
                profile,
                no_commands,
            });
            Ok(NewApiKey { key, id })
        })
    }

    /// Removes a key; from now on it is refused.
    pub fn revoke(&self, name: &str) -> Result<ClientKey, ApiKeyError> {
        self.change(|keys| {
            let index = keys.iter().position(|key| key.name == name);
            index.map(|index| keys.remove(index)).ok_or_else(|| ApiKeyError::Unknown(name.to_owned()))
        })
    }

    /// Gives the client of a key another profile, or none. Its key stays the same.
    pub fn set_profile(&self, name: &str, profile: Option<&str>) -> Result<(), ApiKeyError> {
        self.change(|keys| {
            let known = keys.iter_mut().find(|key| key.name == name);
            known.ok_or_else(|| ApiKeyError::Unknown(name.to_owned()))?.profile = profile.map(str::to_owned);
            Ok(())
        })
    }

    /// All keys, also expired ones, the oldest first.
    pub fn list(&self) -> Result<Vec<ClientKey>, ApiKeyError> {
        self.read().map(|keys| keys.to_vec())
    }

    /// The key that a client shows, if it is valid now. Of a file that cannot be used, no key is valid.
    pub fn verify(&self, bearer: &str) -> Option<ClientKey> {
        let (id, _) = parts(bearer)?;
        let keys = self
            .read()
            .inspect_err(|error| tracing::error!(error = chain(error), "the API keys cannot be used"))
            .ok()?;
        let hash = hash(bearer);
        let key = keys.iter().find(|key| key.id == id && key.hash == hash)?;
        key.is_valid_at(clock::now()).then(|| key.clone())
    }

    /// Returns the keys as the file says now. It is only read if it has changed.
    fn read(&self) -> Result<Arc<Vec<ClientKey>>, ApiKeyError> {
        let mut cached = self.cached.lock().expect("no code panics while it holds the lock");
        let found = match fs::symlink_metadata(&self.path) {
            Ok(found) => FileState::of(&found),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                *cached = None;
                return Ok(Arc::default());
            }
            Err(error) => return Err(self.failed(error)),
        };
        if let Some((known, keys)) = &*cached
            && *known == found
        {
            return Ok(Arc::clone(keys));
        }
        *cached = None;
        let (read, keys) = self.load()?;
        let keys = Arc::new(keys);
        let is_settled =
            read.modified().is_ok_and(|at| SystemTime::now().duration_since(at).is_ok_and(|age| age >= MIN_CACHED_AGE));
        if is_settled {
            *cached = Some((FileState::of(&read), Arc::clone(&keys)));
        }
        Ok(keys)
    }

    /// Reads the file, which must be our own and which no other user may change.
    fn load(&self) -> Result<(Metadata, Vec<ClientKey>), ApiKeyError> {
        let failed = |error| self.failed(error);
        let distrusted = |source| ApiKeyError::Distrusted { path: self.shown(), source };
        let file = regular_file::open_itself(&self.path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        trust::check_entry(&self.path, &metadata).map_err(distrusted)?;
        trust::check(&self.path).map_err(distrusted)?;
        let text = regular_file::read_open(file, MAX_FILE_BYTES).map_err(failed)?;
        let malformed = |source| ApiKeyError::Malformed { path: self.shown(), source };
        let file: ApiKeyFile = serde_json::from_slice(&text).map_err(malformed)?;
        Ok((metadata, file.keys))
    }

    /// Changes the keys; of several processes that do so at once, each sees what the one before it wrote.
    fn change<T>(&self, with: impl FnOnce(&mut Vec<ClientKey>) -> Result<T, ApiKeyError>) -> Result<T, ApiKeyError> {
        let _lock = self.lock().map_err(|error| self.failed(error))?;
        let mut keys = match fs::symlink_metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            _ => self.load()?.1,
        };
        let done = with(&mut keys)?;
        self.write(&ApiKeyFile { keys }).map_err(|error| self.failed(error))?;
        Ok(done)
    }

    /// Waits until no other process changes the file. Under the lock, a process only reads and writes that file.
    fn lock(&self) -> io::Result<Flock<File>> {
        create_private(self.folder())?;
        let path = self.path.with_extension("lock");
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
        Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, error)| error.into())
    }

    fn write(&self, keys: &ApiKeyFile) -> io::Result<()> {
        // A temporary file has the mode 0600.
        let mut file = tempfile::NamedTempFile::new_in(self.folder())?;
        file.write_all(&serde_json::to_vec_pretty(keys)?)?;
        file.as_file().sync_all()?;
        file.persist(&self.path).map_err(|error| error.error)?;
        File::open(self.folder())?.sync_all()
    }

    /// The folder of the file, in which changes can be watched.
    pub fn folder(&self) -> &Path {
        self.path.parent().unwrap_or_else(|| Path::new("/"))
    }

    fn failed(&self, source: io::Error) -> ApiKeyError {
        ApiKeyError::Io { path: self.shown(), source }
    }

    fn shown(&self) -> String {
        self.path.display().to_string()
    }
}

impl ClientKey {
    /// What its client is called: a later key of the same name is another client.
    pub fn client(&self) -> String {
        format!("{}.{}", self.name, self.id)
    }

    /// The key, as a decision and its scope refer to it.
    pub fn reference(&self) -> ApiKeyRef {
        ApiKeyRef { name: self.name.clone(), hash: self.hash.clone() }
    }

    /// Whether the key has not expired.
    pub fn is_valid_at(&self, now: Timestamp) -> bool {
        self.expires_at.is_none_or(|until| now < until)
    }
}

/// Whether `name` may be the name of a key.
fn is_key_name(name: &str) -> bool {
    (1..=MAX_NAME_CHARS).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

/// The id and the secret of a key; `None` if it does not have their form.
fn parts(key: &str) -> Option<(&str, &str)> {
    let (id, secret) = key.strip_prefix(PREFIX)?.split_once('_')?;
    let is_id = id.len() == ID_CHARS && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let is_secret = secret.len() == SECRET_CHARS
        && secret.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
    (is_id && is_secret).then_some((id, secret))
}

/// Whether a text has the whole secret of a key, and has lost the beginning of one.
pub fn ends_like_a_key(text: &str) -> bool {
    let start = text.len().checked_sub(ID_CHARS + 1 + SECRET_CHARS);
    start.and_then(|start| text.get(start..)).is_some_and(|end| parts(&format!("{PREFIX}{end}")).is_some())
}

/// Keys are compared as hashes, so the time of a comparison reveals nothing about them.
fn hash(key: &str) -> String {
    digest::hex(&Sha256::digest(key.as_bytes()))
}

fn new_id() -> String {
    digest::hex(&random::<{ ID_CHARS / 2 }>())
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the system has a source of randomness");
    bytes
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use super::*;

    const ASK: ApiScopes = ApiScopes { ask: true, read: false };

    fn keys_in(folder: &tempfile::TempDir) -> ApiKeys {
        ApiKeys::at(folder.path().join("serve").join("keys.json"))
    }

    fn make(keys: &ApiKeys, name: &str) -> NewApiKey {
        keys.create(name, ASK, ApiKeyOptions::default()).expect("it is made")
    }

    fn set_modified(keys: &ApiKeys, at: SystemTime) {
        let file = File::options().write(true).open(&keys.path).expect("it is there");
        file.set_modified(at).expect("set");
    }

    /// Makes the file old enough to be cached.
    fn settle(keys: &ApiKeys) {
        set_modified(keys, SystemTime::now() - 2 * MIN_CACHED_AGE);
    }

    #[test]
    fn a_key_is_shown_once_and_verified_until_it_is_revoked() {
        let folder = tempfile::tempdir().expect("a folder");
        let keys = keys_in(&folder);
        assert!(keys.verify("x").is_none() && keys.list().expect("none").is_empty());
        let made = make(&keys, "phone");
        assert_eq!(made.key.len(), PREFIX.len() + ID_CHARS + 1 + SECRET_CHARS);
        let (id, secret) = parts(&made.key).expect("the form of a key");
        assert_eq!(id, made.id);
        let text = fs::read_to_string(&keys.path).expect("written");
        assert!(!text.contains(secret) && !format!("{made:?}").contains(secret), "only its hash is kept");
        assert_eq!(fs::metadata(&keys.path).expect("it is there").mode() & 0o777, 0o600);
        let verified = keys.verify(&made.key).expect("it is valid");
        assert_eq!((verified.name.as_str(), verified.scopes, verified.history), ("phone", ASK, HistoryKeeper::Server));
        assert_eq!(keys.revoke("phone").expect("revoked"), verified);
        assert!(keys.verify(&made.key).is_none());
        assert!(matches!(keys.revoke("phone"), Err(ApiKeyError::Unknown(_))));
    }

    #[test]
    fn a_key_that_differs_in_anything_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let keys = keys_in(&folder);
        let (first, second) = (make(&keys, "a"), make(&keys, "b"));
        let (id, secret) = parts(&first.key).expect("the form of a key");
        for wrong in [
            String::new(),
            secret.to_owned(),
            format!("amt_{}_{secret}", second.id),
            format!("AMT_{id}_{secret}"),
            format!("amt_{}_{secret}", id.to_uppercase() + "0"),
            format!("amt_{id}_{}", &secret[1..]),
            format!("amt_{id}_{secret}="),
            format!(" {}", first.key),
            format!("{}\n", first.key),
            format!("amt_{id}_{}", "é".repeat(21) + "a"),
        ] {
            assert!(keys.verify(&wrong).is_none(), "{wrong:?}");
        }
        assert!(keys.verify(&first.key).is_some() && keys.verify(&second.key).is_some());
    }

    #[test]
    fn names_and_scopes_are_checked() {
        let folder = tempfile::tempdir().expect("a folder");
        let keys = keys_in(&folder);
        for name in ["", "A", "a b", "a_b", "ä", "../a", &"a".repeat(33)] {
            let refused = keys.create(name, ASK, ApiKeyOptions::default());
            assert!(matches!(refused, Err(ApiKeyError::Name(_))), "{name:?}");
        }
        let no_scope = keys.create("a", ApiScopes::default(), ApiKeyOptions::default());
        assert!(matches!(no_scope, Err(ApiKeyError::NoScope)));
        make(&keys, "a");
        assert!(matches!(keys.create("a", ASK, ApiKeyOptions::default()), Err(ApiKeyError::Taken(_))));
    }

    #[test]
    fn an_expired_key_is_listed_and_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let keys = keys_in(&folder);
        let until = |seconds| ApiKeyOptions {
            expires_at: Some(clock::now() + jiff::SignedDuration::from_secs(seconds)),
            history: HistoryKeeper::Client,
            model: Some("small".to_owned()),
            profile: Some("support".to_owned()),
            no_commands: true,
        };
        let past = keys.create("past", ASK, until(-1)).expect("made");
        let later = keys.create("later", ASK, until(60)).expect("made");
        assert!(keys.verify(&past.key).is_none());
        let found = keys.verify(&later.key).expect("it is valid");
        assert_eq!((found.history, found.model.as_deref()), (HistoryKeeper::Client, Some("small")));
        assert_eq!(found.profile.as_deref(), Some("support"));
        keys.set_profile("later", None).expect("changed");
        assert_eq!(keys.verify(&later.key).expect("it is valid").profile, None);
        assert!(matches!(keys.set_profile("other", None), Err(ApiKeyError::Unknown(_))));
        assert_eq!(keys.list().expect("read").len(), 2);
    }

    #[test]
    fn an_unchanged_file_is_read_once_and_every_change_counts_at_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let (reader, writer) = (keys_in(&folder), keys_in(&folder));
        let first = make(&writer, "first");
        set_modified(&writer, SystemTime::now() + Duration::from_hours(1));
        assert!(reader.verify(&first.key).is_some());
        assert!(reader.cached.lock().expect("free").is_none(), "it may still change within one tick");
        settle(&reader);
        assert!(reader.verify(&first.key).is_some());
        let known = || reader.cached.lock().expect("free").as_ref().map(|(_, keys)| Arc::clone(keys));
        let cached = known().expect("it is kept");
        assert!(reader.verify(&first.key).is_some());
        assert!(Arc::ptr_eq(&cached, &known().expect("it is kept")), "it was not read again");
        writer.revoke("first").expect("revoked");
        assert!(reader.verify(&first.key).is_none());
        let second = make(&writer, "second");
        settle(&reader);
        assert!(reader.verify(&second.key).is_some());
        fs::remove_file(&reader.path).expect("removed");
        assert!(reader.verify(&second.key).is_none());
    }

    #[test]
    fn a_file_that_others_may_change_or_that_is_malformed_has_no_valid_key() {
        let folder = tempfile::tempdir().expect("a folder");
        let keys = keys_in(&folder);
        let made = make(&keys, "a");
        fs::set_permissions(&keys.path, fs::Permissions::from_mode(0o666)).expect("changed");
        assert!(matches!(keys.list(), Err(ApiKeyError::Distrusted { .. })) && keys.verify(&made.key).is_none());
        fs::set_permissions(&keys.path, fs::Permissions::from_mode(0o600)).expect("changed");
        assert!(keys.verify(&made.key).is_some());
        let text = fs::read_to_string(&keys.path).expect("readable");
        let decides = text.replace("\"ask\": true", "\"ask\": true, \"decide\": true");
        assert_ne!(decides, text);
        fs::write(&keys.path, decides).expect("written");
        assert!(matches!(keys.list(), Err(ApiKeyError::Malformed { .. })), "a file cannot say that a key may decide");
        assert!(keys.verify(&made.key).is_none());
        assert!(matches!(keys.revoke("a"), Err(ApiKeyError::Malformed { .. })), "what it holds is not lost");
        fs::remove_file(&keys.path).expect("removed");
        std::os::unix::fs::symlink("/dev/zero", &keys.path).expect("linked");
        assert!(keys.verify(&made.key).is_none());
    }

    #[test]
    fn writers_at_once_lose_no_key() {
        const WRITERS: usize = 8;
        let folder = tempfile::tempdir().expect("a folder");
        let path = keys_in(&folder).path;
        std::thread::scope(|threads| {
            for writer in 0..WRITERS {
                let keys = ApiKeys::at(path.clone());
                threads.spawn(move || {
                    for turn in 0..4 {
                        make(&keys, &format!("key-{writer}-{turn}"));
                    }
                    keys.revoke(&format!("key-{writer}-0")).expect("revoked");
                });
            }
        });
        assert_eq!(ApiKeys::at(path).list().expect("read").len(), WRITERS * 3);
    }
}
