//! The keys with which clients sign in over HTTP. A key names its client: what a client says of itself counts for nothing.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

/// The bytes of a key that we make.
const KEY_BYTES: usize = 32;
/// The fewest characters of a key.
const MIN_CHARS: usize = 32;
const MAX_FILE_BYTES: u64 = 4_096;

/// A client and the key that it shows.
#[derive(Clone)]
pub struct ClientKey {
    name: String,
    /// Keys are compared by their digests, so how long that takes says nothing about the key.
    digest: [u8; 32],
}

#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    #[error("failed to read the key in `{path}`")]
    Io { path: PathBuf, source: io::Error },
    #[error("the key in `{path}` is not used: other users can read the file")]
    Exposed { path: PathBuf },
    #[error("the key in `{path}` is too short: it needs {MIN_CHARS} characters, without spaces")]
    Weak { path: PathBuf },
}

impl ClientKey {
    /// Reads the key of the client `name` from a file that only its owner can read.
    pub fn read(name: &str, path: &Path) -> Result<Self, KeyFileError> {
        let failed = |source| KeyFileError::Io { path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        if file.metadata().map_err(failed)?.permissions().mode() & 0o077 != 0 {
            return Err(KeyFileError::Exposed { path: path.to_owned() });
        }
        let mut text = String::new();
        file.take(MAX_FILE_BYTES).read_to_string(&mut text).map_err(failed)?;
        let key = text.trim();
        if key.len() < MIN_CHARS || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(KeyFileError::Weak { path: path.to_owned() });
        }
        Ok(Self { name: name.to_owned(), digest: digest(key) })
    }

    /// Reads the key of the client `name`; makes one if there is no such file.
    pub fn read_or_make(name: &str, path: &Path) -> Result<Self, KeyFileError> {
        if !path.exists() {
            make(path).map_err(|source| KeyFileError::Io { path: path.to_owned(), source })?;
        }
        Self::read(name, path)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn is(&self, key: &str) -> bool {
        self.digest == digest(key)
    }
}

impl std::fmt::Debug for ClientKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientKey").field("name", &self.name).finish_non_exhaustive()
    }
}

fn digest(key: &str) -> [u8; 32] {
    Sha256::digest(key).into()
}

/// Writes a new key, as a whole or not at all; another process may do so at the same time.
fn make(path: &Path) -> io::Result<()> {
    let mut bytes = [0; KEY_BYTES];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    let temporary = path.with_extension(format!("{}.new", std::process::id()));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(format!("{}\n", URL_SAFE_NO_PAD.encode(bytes)).as_bytes())?;
    file.sync_all()?;
    // Unlike a rename, a link never replaces the key that another process has just made.
    let linked = fs::hard_link(&temporary, path);
    fs::remove_file(&temporary)?;
    match linked {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_once_and_read_only_if_it_is_kept_safe() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("key");
        ClientKey::read_or_make("default", &path).expect("a new key");
        let text = fs::read_to_string(&path).expect("it was written");
        let key = ClientKey::read_or_make("default", &path).expect("the same key");
        assert!(key.is(text.trim()) && !key.is("x") && !key.is(""));
        assert!(!format!("{key:?}").contains(text.trim()));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("changed");
        assert!(matches!(ClientKey::read("default", &path), Err(KeyFileError::Exposed { .. })));
        fs::remove_file(&path).expect("removed");
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).expect("made");
        assert!(matches!(ClientKey::read("default", &path), Err(KeyFileError::Weak { .. })));
    }
}
