//! Fingerprints: whether a file is still the one that a human was shown.
//!
//! A definition names a program; what runs is a file. Between a yes and its start that file could be
//! replaced by another, so the yes is bound to what is in it.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex};

use protocol::digest;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// A file, and what was in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fingerprint {
    pub path: PathBuf,
    /// In hexadecimal; empty where it could not be read.
    pub sha256: String,
}

/// What tells without reading it that a file is the same: nobody sets the time of its last change.
#[derive(Debug, PartialEq, Eq, Hash)]
struct FileIdentity {
    path: PathBuf,
    file: (u64, u64),
    size: u64,
    changed: (i64, i64),
}

/// A program may have hundreds of megabytes, and be asked about again and again.
static KNOWN: LazyLock<Mutex<HashMap<FileIdentity, String>>> = LazyLock::new(Mutex::default);
const MAX_CACHED: usize = 256;
/// How much is read at a time.
const PART: usize = 64 << 10;

impl Fingerprint {
    pub fn of(path: &Path) -> Self {
        Self { path: path.to_owned(), sha256: contents(path).unwrap_or_default() }
    }

    /// Whether the file is still the same.
    pub fn holds(&self) -> bool {
        !self.sha256.is_empty() && Self::of(&self.path) == *self
    }
}

fn contents(path: &Path) -> io::Result<String> {
    let found = fs::metadata(path)?;
    let look = FileIdentity {
        path: path.to_owned(),
        file: (found.dev(), found.ino()),
        size: found.size(),
        changed: (found.ctime(), found.ctime_nsec()),
    };
    let known = || KNOWN.lock().expect("nobody panics with it");
    if let Some(sha256) = known().get(&look) {
        return Ok(sha256.clone());
    }
    let (mut file, mut hash, mut part) = (File::open(path)?, Sha256::new(), vec![0; PART]);
    loop {
        match file.read(&mut part)? {
            0 => break,
            count => hash.update(&part[..count]),
        }
    }
    let sha256 = digest::hex(&hash.finalize());
    let mut known = known();
    if known.len() >= MAX_CACHED {
        known.clear();
    }
    known.insert(look, sha256.clone());
    Ok(sha256)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_other_contents_is_another_whatever_its_times_say() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("script");
        fs::write(&path, "echo one").expect("written");
        let modified = fs::metadata(&path).and_then(|found| found.modified()).expect("a time");
        let first = Fingerprint::of(&path);
        assert!(first.holds() && first.holds());
        fs::write(&path, "echo two").expect("written");
        File::options().write(true).open(&path).and_then(|file| file.set_modified(modified)).expect("set back");
        assert!(!first.holds());
        fs::write(&path, "echo one").expect("written");
        assert!(first.holds(), "and the same again is the same");
        fs::remove_file(&path).expect("removed");
        assert!(!first.holds() && !Fingerprint::of(&path).holds());
    }
}
