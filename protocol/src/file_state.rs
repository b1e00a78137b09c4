//! The state of a file: whether it is still the one that was read before.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Identifies the state of a file, its owner and permissions included. Programs cannot set the time of its last change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
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

    /// That of the file at `path`, or where a link there leads; `None` if no file is there.
    pub fn at(path: &Path) -> Option<Self> {
        fs::metadata(path).ok().as_ref().map(Self::of)
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
