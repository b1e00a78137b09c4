//! The mailbox as a caller reads it: result files that can be trusted, and whether work was left.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use nix::fcntl::OFlag;

use super::{Mailbox, is_proper};
use crate::task::TaskId;

impl Mailbox {
    /// The text of a task's result file. One that is a link, or that somebody else could have
    /// written, is refused.
    pub fn read_result(&self, id: TaskId) -> io::Result<Vec<u8>> {
        read_trusted(&self.result_file(id))
    }

    /// The data beside a task's result file; refused like [`Mailbox::read_result`]. It may be larger
    /// than memory.
    pub fn open_data(&self, id: TaskId, extension: &str) -> io::Result<fs::File> {
        open_trusted(&self.data_file(id, extension))
    }

    /// A file among the results, by its bare name; refused like [`Mailbox::read_result`].
    pub fn open_result(&self, name: &OsStr) -> io::Result<fs::File> {
        open_trusted(&self.results().join(name))
    }

    /// Whether an executor went away and left something to do: only one that has nothing open
    /// takes its identity with it.
    pub fn has_unfinished_tasks(&self) -> bool {
        self.identity_file().exists() && matches!(self.executor(), Ok(None))
    }
}

fn read_trusted(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_trusted(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn open_trusted(path: &Path) -> io::Result<fs::File> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = fs::OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)?;
    let found = file.metadata()?;
    // Replaced since it was opened, a file has no name left; it is whole all the same.
    if !is_proper(&found) && found.nlink() != 0 {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is no plain file of this user alone"));
    }
    Ok(file)
}
