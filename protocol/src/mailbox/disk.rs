//! Whether the disks with the record of tasks and the mailbox are full, as commands can tell it.
//!
//! Only the executor knows of its record, so it publishes that here. A full mailbox cannot take such a file; every command
//! sees that for itself. For display only, never for decisions.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{MAX_FILE_BYTES, Mailbox};
use crate::regular_file;

/// A disk with less space than this is full: no file can be written.
const MIN_BYTES: u64 = 4_096;

/// Which disk is full, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskProblem {
    pub message: String,
    pub hint: String,
    /// When the executor noticed it first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<jiff::Timestamp>,
}

impl Mailbox {
    fn disk_problem_file(&self) -> PathBuf {
        self.root().join("disk-problem.json")
    }

    /// Tells every caller why the executor cannot write its record; `None` if it can.
    pub fn publish_disk_problem(&self, problem: Option<&DiskProblem>) -> io::Result<()> {
        match problem {
            Some(problem) => super::replace(&self.disk_problem_file(), &serde_json::to_vec(problem)?, "problem"),
            None => super::ignore_not_found(fs::remove_file(self.disk_problem_file())),
        }
    }

    /// Returns which disk is full: that of the running executor's record, or the mailbox's own.
    pub fn disk_problem(&self) -> Option<DiskProblem> {
        let published = || {
            let text = regular_file::read(&self.disk_problem_file(), MAX_FILE_BYTES).ok()?;
            let problem: DiskProblem = serde_json::from_slice(&text).ok()?;
            // An executor that was killed cannot take it back.
            self.executor().is_ok_and(|executor| executor.is_some()).then_some(problem)
        };
        published().or_else(|| {
            is_full(self.root()).then(|| DiskProblem {
                message: format!("the disk with the mailbox `{}` is full", self.root().display()),
                hint: "free space there: requests and results cannot be written until then".to_owned(),
                since: None,
            })
        })
    }
}

/// Whether the disk with this folder has no space for another file, as far as the file system says.
pub fn is_full(folder: &Path) -> bool {
    let Ok(found) = nix::sys::statvfs::statvfs(folder) else { return false };
    let is_root = nix::unistd::geteuid().is_root();
    // Some space is reserved for root.
    let (blocks, files) = if is_root {
        (found.blocks_free(), found.files_free())
    } else {
        (found.blocks_available(), found.files_available())
    };
    let has_blocks = found.blocks() == 0 || blocks.saturating_mul(found.fragment_size()) >= MIN_BYTES;
    // Some file systems do not count their files.
    let has_files = found.files() == 0 || files > 0;
    !(has_blocks && has_files)
}
