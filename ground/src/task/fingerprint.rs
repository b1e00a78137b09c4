//! Fingerprints: whether a file still has the content that a human approved.
//!
//! A definition names a program, but what runs is a file. The file could be replaced between the approval and the
//! start, so an approval is bound to the file's content. `runner/src/process/held.rs` sees to it that what
//! was compared is also what is executed.

use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex};

use protocol::paths::real_path;
use protocol::{digest, regular_file};
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;
use sha2::{Digest as _, Sha256};

use super::folder;
use crate::base::write_access::WriteAccess;
use protocol::file_state::FileState;

/// A file that a task executes or reads, and the hash of its content.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fingerprint {
    pub path: PathBuf,
    /// In hexadecimal; empty if the file could not be read.
    pub sha256: String,
    /// Absent for a program.
    #[serde(default, skip_serializing_if = "FileRole::is_program")]
    pub role: FileRole,
    pub owner: Option<u32>,
    /// Who else can change it.
    pub writable: Option<WriteAccess>,
    /// How long it is, if the input names it.
    pub bytes: Option<u64>,
    /// Where it leads, if that is what counts.
    pub leads_to: Option<PathBuf>,
}

/// What a file is for the program that a task starts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileRole {
    /// The program that the definition names.
    #[default]
    Program,
    /// What the `#!` line of a script names.
    Interpreter,
    /// What the program interprets: the first argument of an interpreter.
    Script,
    /// Listed in the definition's `covers`, or a script among its constant arguments. The program opens it by its
    /// name, so it is compared directly before the start, and not held.
    Covered,
    /// A folder that is listed in `covers`: all that lies below it. Compared like a file.
    Folder,
    /// The folder in which the program starts, without symbolic links: another one under the same name is noticed, and
    /// what lies in it is not looked at.
    WorkingFolder,
    /// The input names it, and the definition says that it is read: opened once, and only these bytes are used.
    Input,
    /// An argument of a program that the input fills, and that is the name of a file. The program opens it by its
    /// name, so it is compared directly before the start, and not held.
    Argument,
    /// An argument of a program that the input fills, and that leads elsewhere through symbolic links: what counts is
    /// where. Compared like an argument.
    Place,
}

impl FileRole {
    /// Whether the input names the file, and not the definition.
    pub fn is_of_input(self) -> bool {
        matches!(self, Self::Input | Self::Argument | Self::Place)
    }

    /// Whether a program that was started may have changed it by itself.
    pub fn is_of_argument(self) -> bool {
        matches!(self, Self::Argument | Self::Place)
    }

    /// What a program opens by the name `path`.
    pub fn of_covered(path: &Path) -> Self {
        if path.is_dir() { Self::Folder } else { Self::Covered }
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_program(&self) -> bool {
        *self == Self::Program
    }
}

/// Hashes by file version: a program may have hundreds of megabytes and be fingerprinted often.
static CACHE: LazyLock<Mutex<HashMap<(PathBuf, FileState), String>>> = LazyLock::new(Mutex::default);
/// The most cached hashes; a full cache is cleared.
const MAX_CACHED: usize = 256;
/// The largest file that is hashed. A larger one is shown without a hash, and never executed.
const MAX_FILE_BYTES: u64 = 512 << 20;
/// No longer path leads anywhere.
const MAX_PATH_BYTES: usize = 4096;
/// How many bytes are read at a time.
const CHUNK_BYTES: usize = 64 << 10;

impl Fingerprint {
    /// The file as it is now. `agent` is the Unix user of the agent.
    pub fn of(path: &Path, role: FileRole, agent: u32) -> Self {
        let owner = fs::metadata(path).ok().map(|metadata| metadata.uid());
        let sha256 = sha256(path, role).unwrap_or_default();
        let bytes = fs::metadata(path).ok().filter(|_| role.is_of_input()).map(|metadata| metadata.len());
        let leads_to = if role == FileRole::Place { real_path(path) } else { None };
        Self { path: path.to_owned(), sha256, role, owner, writable: WriteAccess::to(path, agent), bytes, leads_to }
    }

    /// The open file that the input names by `path`, as it is now.
    pub fn of_input(path: &Path, file: &mut File, agent: u32) -> io::Result<Self> {
        let metadata = file.metadata()?;
        if metadata.len() > MAX_FILE_BYTES {
            return Err(too_large());
        }
        let sha256 = sha256_of(path, &metadata, file)?;
        Ok(Self {
            path: path.to_owned(),
            sha256,
            role: FileRole::Input,
            owner: Some(metadata.uid()),
            writable: WriteAccess::to(path, agent),
            bytes: Some(metadata.len()),
            leads_to: None,
        })
    }

    /// Whether both are the same file in the same role, with the same content.
    pub fn is_same_as(&self, other: &Self) -> bool {
        (&self.path, &self.sha256, self.role) == (&other.path, &other.sha256, other.role) && !self.sha256.is_empty()
    }

    /// Whether the file still has this content.
    pub fn is_current(&self) -> bool {
        if self.role == FileRole::Argument && self.sha256.is_empty() {
            return fs::metadata(&self.path).is_ok_and(|metadata| Some(metadata.len()) == self.bytes);
        }
        !self.sha256.is_empty() && sha256(&self.path, self.role).is_ok_and(|sha256| sha256 == self.sha256)
    }
}

/// Whether links lead `path` to another place than `expected`.
pub fn leads_elsewhere(path: &Path, expected: &Path) -> bool {
    path.as_os_str().len() <= MAX_PATH_BYTES && real_path(path).is_none_or(|real| real != expected)
}

/// Copies `from` to `to`, and returns the hash of what was copied.
pub fn hash_copy(from: &mut impl Read, to: &mut impl Write) -> io::Result<String> {
    let (mut hash, mut chunk) = (Sha256::new(), vec![0; CHUNK_BYTES]);
    // A file that grows while it is read is too large as well.
    let mut from = from.take(MAX_FILE_BYTES + 1);
    loop {
        match from.read(&mut chunk)? {
            0 if from.limit() == 0 => return Err(too_large()),
            0 => return Ok(digest::hex(&hash.finalize())),
            count => {
                hash.update(&chunk[..count]);
                to.write_all(&chunk[..count])?;
            }
        }
    }
}

fn too_large() -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, format!("it is larger than {} MiB", MAX_FILE_BYTES >> 20))
}

/// Fails if a human cannot be shown what a file or folder is: it cannot be read, or is too large.
pub fn check_shown(path: &Path, role: FileRole) -> io::Result<()> {
    match role {
        FileRole::WorkingFolder | FileRole::Place => return Ok(()),
        FileRole::Folder => return folder::sha256(path).map(drop),
        _ => {}
    }
    regular_file::open(path).and_then(|_| check_size(path))
}

fn check_size(path: &Path) -> io::Result<()> {
    if fs::metadata(path)?.len() > MAX_FILE_BYTES { Err(too_large()) } else { Ok(()) }
}

fn sha256(path: &Path, role: FileRole) -> io::Result<String> {
    let of_path = |path: &Path| digest::hex(&Sha256::digest(path.as_os_str().as_encoded_bytes()));
    match role {
        FileRole::WorkingFolder => return Ok(of_path(path)),
        FileRole::Place => {
            return real_path(path).as_deref().map(of_path).ok_or_else(|| io::ErrorKind::NotFound.into());
        }
        FileRole::Folder => return folder::sha256(path),
        _ => {}
    }
    check_size(path)?;
    let mut file = regular_file::open(path)?;
    let metadata = file.metadata()?;
    sha256_of(path, &metadata, &mut file)
}

fn sha256_of(path: &Path, metadata: &Metadata, file: &mut File) -> io::Result<String> {
    let identity = (path.to_owned(), FileState::of(metadata));
    let cache = || CACHE.lock().expect("no code panics while holding the lock");
    if let Some(sha256) = cache().get(&identity) {
        return Ok(sha256.clone());
    }
    let sha256 = hash_copy(file, &mut io::sink())?;
    let mut cache = cache();
    if cache.len() >= MAX_CACHED {
        cache.clear();
    }
    cache.insert(identity, sha256.clone());
    Ok(sha256)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn where_a_path_leads_is_found_also_of_what_is_not_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().canonicalize().expect("it is there");
        fs::create_dir(root.join("out")).expect("made");
        symlink(root.join("out"), root.join("link")).expect("linked");
        symlink(root.join("nothing"), root.join("broken")).expect("linked");
        for (path, real) in [
            ("out", Some("out")),
            ("link", Some("out")),
            ("link/new/file", Some("out/new/file")),
            ("new", Some("new")),
            ("broken", None),
            ("broken/file", None),
        ] {
            assert_eq!(real_path(&root.join(path)), real.map(|real| root.join(real)), "{path}");
        }
        let place = Fingerprint::of(&root.join("link/a"), FileRole::Place, 0);
        assert!(place.is_current() && place.leads_to == Some(root.join("out/a")));
        fs::remove_file(root.join("link")).expect("removed");
        symlink(&root, root.join("link")).expect("linked");
        assert!(!place.is_current());
    }

    #[test]
    fn changed_content_is_detected_even_if_the_modification_time_is_restored() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("script");
        fs::write(&path, "echo one").expect("written");
        let modified = fs::metadata(&path).and_then(|metadata| metadata.modified()).expect("a time");
        let first = Fingerprint::of(&path, FileRole::Program, 0);
        assert!(first.is_current() && first.is_current());
        fs::write(&path, "echo two").expect("written");
        File::options().write(true).open(&path).and_then(|file| file.set_modified(modified)).expect("set back");
        assert!(!first.is_current());
        fs::write(&path, "echo one").expect("written");
        assert!(first.is_current(), "the original content matches again");
        File::create(&path).and_then(|file| file.set_len(MAX_FILE_BYTES + 1)).expect("a sparse file");
        assert!(!first.is_current() && Fingerprint::of(&path, FileRole::Program, 0).sha256.is_empty(), "too large");
        let read = hash_copy(&mut File::open(&path).expect("it opens"), &mut io::sink());
        assert_eq!(read.expect_err("too large").kind(), io::ErrorKind::FileTooLarge);
        fs::remove_file(&path).expect("removed");
        assert!(!first.is_current() && !Fingerprint::of(&path, FileRole::Program, 0).is_current());
    }
}
