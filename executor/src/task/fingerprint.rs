//! Fingerprints: whether a file still has the content that a human approved.
//!
//! A definition names a program, but what runs is a file. The file could be replaced between the approval and the
//! start, so an approval is bound to the file's content.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex};

use protocol::{digest, regular_file};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// A file and the hash of its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fingerprint {
    pub path: PathBuf,
    /// In hexadecimal; empty if the file could not be read.
    pub sha256: String,
}

/// Identifies one version of a file without reading it: programs cannot set its ctime.
#[derive(Debug, PartialEq, Eq, Hash)]
struct FileIdentity {
    path: PathBuf,
    file: (u64, u64),
    size: u64,
    changed: (i64, i64),
}

/// Hashes by file version: a program may have hundreds of megabytes and be fingerprinted often.
static CACHE: LazyLock<Mutex<HashMap<FileIdentity, String>>> = LazyLock::new(Mutex::default);
/// The most cached hashes; a full cache is cleared.
const MAX_CACHED: usize = 256;
/// How many bytes are read at a time.
const CHUNK_BYTES: usize = 64 << 10;

impl Fingerprint {
    pub fn of(path: &Path) -> Self {
        Self { path: path.to_owned(), sha256: sha256(path).unwrap_or_default() }
    }

    /// Whether the file still has this content.
    pub fn is_current(&self) -> bool {
        !self.sha256.is_empty() && Self::of(&self.path) == *self
    }
}

fn sha256(path: &Path) -> io::Result<String> {
    let metadata = fs::metadata(path)?;
    let identity = FileIdentity {
        path: path.to_owned(),
        file: (metadata.dev(), metadata.ino()),
        size: metadata.size(),
        changed: (metadata.ctime(), metadata.ctime_nsec()),
    };
    let cache = || CACHE.lock().expect("no code panics while holding the lock");
    if let Some(sha256) = cache().get(&identity) {
        return Ok(sha256.clone());
    }
    let (mut file, mut hash, mut chunk) = (regular_file::open(path)?, Sha256::new(), vec![0; CHUNK_BYTES]);
    loop {
        match file.read(&mut chunk)? {
            0 => break,
            count => hash.update(&chunk[..count]),
        }
    }
    let sha256 = digest::hex(&hash.finalize());
    let mut cache = cache();
    if cache.len() >= MAX_CACHED {
        cache.clear();
    }
    cache.insert(identity, sha256.clone());
    Ok(sha256)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_content_is_detected_even_if_the_modification_time_is_restored() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("script");
        fs::write(&path, "echo one").expect("written");
        let modified = fs::metadata(&path).and_then(|metadata| metadata.modified()).expect("a time");
        let first = Fingerprint::of(&path);
        assert!(first.is_current() && first.is_current());
        fs::write(&path, "echo two").expect("written");
        fs::File::options().write(true).open(&path).and_then(|file| file.set_modified(modified)).expect("set back");
        assert!(!first.is_current());
        fs::write(&path, "echo one").expect("written");
        assert!(first.is_current(), "the original content matches again");
        fs::remove_file(&path).expect("removed");
        assert!(!first.is_current() && !Fingerprint::of(&path).is_current());
    }
}
