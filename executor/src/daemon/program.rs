//! Whether the running program is still the installed one.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The file that this process was started from.
pub(super) struct InstalledProgram {
    path: Option<PathBuf>,
    stamp: Option<FileStamp>,
}

/// Device, inode and modification time.
type FileStamp = (u64, u64, i64, i64);

impl InstalledProgram {
    pub(super) fn current() -> Self {
        Self::at(std::env::current_exe().ok())
    }

    fn at(path: Option<PathBuf>) -> Self {
        let stamp = path.as_deref().and_then(stamp);
        Self { path, stamp }
    }

    /// Whether another file replaced the program. A removed program is not replaced.
    pub(super) fn was_replaced(&self) -> bool {
        let now = self.path.as_deref().and_then(stamp);
        now.is_some() && now != self.stamp
    }
}

fn stamp(path: &Path) -> Option<FileStamp> {
    fs::metadata(path).ok().map(|found| (found.dev(), found.ino(), found.mtime(), found.mtime_nsec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_replaced_by_another_file_but_not_by_removal() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("program");
        fs::write(&path, "old").expect("written");
        let program = InstalledProgram::at(Some(path.clone()));
        assert!(!program.was_replaced());
        let new = folder.path().join("new");
        fs::write(&new, "new").expect("written");
        fs::rename(&new, &path).expect("renamed");
        assert!(program.was_replaced());
        fs::remove_file(&path).expect("removed");
        assert!(!program.was_replaced());
    }
}
