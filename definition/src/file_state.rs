//! The state of a file: whether it is still the one that was read before.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

use jiff::Timestamp;
use protocol::mailbox::is_resource_exhaustion;
use protocol::regular_file;
use serde::{Deserialize, Serialize};

/// Identifies the state of a file, its owner and permissions included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileState {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileState {
    pub fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    pub fn of_file(file: &File) -> io::Result<Self> {
        Ok(Self::of(&file.metadata()?))
    }

    /// Whether any later change shows: times of files advance in steps, so one soon after the last may have the same.
    pub fn is_settled(&self, now: Timestamp) -> bool {
        const MAX_STEP_SECONDS: i64 = 2;
        self.changed.0.saturating_add(MAX_STEP_SECONDS) < now.as_second()
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    /// Whether both are of the same file or folder, changed or not.
    pub fn is_of_same_file(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

/// Reads `length` bytes at `start`; `None` if the file is no longer in the state of `stamp`. Fails only if descriptors or
/// memory ran out.
pub fn read_part(path: &Path, stamp: &FileState, start: u64, length: usize) -> io::Result<Option<String>> {
    let mut bytes = vec![0; length];
    let read = regular_file::open(path).and_then(|file| {
        file.read_exact_at(&mut bytes, start)?;
        // Afterwards: it may have changed while it was read.
        FileState::of_file(&file)
    });
    match read {
        Ok(found) if found == *stamp => Ok(String::from_utf8(bytes).ok()),
        Err(error) if is_resource_exhaustion(&error) => Err(error),
        Ok(_) | Err(_) => Ok(None),
    }
}
