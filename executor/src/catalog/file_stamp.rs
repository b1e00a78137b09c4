//! The state of a file: whether it is still the one that was read before.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

use protocol::regular_file;
use serde::{Deserialize, Serialize};

/// Identifies the state of a file, its owner and permissions included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileStamp {
    pub(super) fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    pub(super) fn of_file(file: &File) -> io::Result<Self> {
        Ok(Self::of(&file.metadata()?))
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    /// Whether both are of the same file or folder, changed or not.
    pub(super) fn is_of_same_file(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

/// Reads `length` bytes at `start`; `None` if the file is no longer in the state of `stamp`.
pub(super) fn read_part(path: &Path, stamp: &FileStamp, start: u64, length: usize) -> Option<String> {
    let file = regular_file::open(path).ok()?;
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, start).ok()?;
    // Afterwards: it may have changed while it was read.
    let is_same = FileStamp::of_file(&file).is_ok_and(|found| found == *stamp);
    String::from_utf8(bytes).ok().filter(|_| is_same)
}
