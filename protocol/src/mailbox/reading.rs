//! Reading from the mailbox as a caller: trusted result files, and whether an executor left work unfinished.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use nix::fcntl::OFlag;
use serde_json::{Map, Value};

use super::sweep::result_id;
use super::{MAX_FILE_BYTES, Mailbox, UNTRUSTED_FILE, is_trusted};
use crate::caller::Caller;
use crate::task::TaskId;

impl Mailbox {
    /// Reads a task's result file. Fails if it is a symbolic link, has another name, is far too large, or if another user
    /// could have written it.
    pub fn read_result(&self, id: TaskId) -> io::Result<Vec<u8>> {
        read_trusted(&self.result_file(id))
    }

    /// Opens the data that a task's result file refers to, with the checks of [`Mailbox::read_result`]. The
    /// data may be larger than memory.
    pub fn open_data(&self, id: TaskId, extension: &str) -> io::Result<fs::File> {
        open_trusted(&self.data_file(id, extension))
    }

    /// Opens a result file or a data file by its name, with the checks of [`Mailbox::read_result`]. Whatever else is in
    /// the results folder is not there.
    pub fn open_result(&self, name: &OsStr) -> io::Result<fs::File> {
        if result_id(name).is_none() {
            return Err(io::ErrorKind::NotFound.into());
        }
        open_trusted(&self.results().join(name))
    }

    /// Whether the caller may see a task and its files. A caller with tasks of its own sees no others, one whose model is
    /// not trusted with all data none with more, and both none whose result file is missing or damaged.
    pub fn may_see(&self, caller: &Caller, id: TaskId) -> bool {
        if caller.owner().is_none() && caller.trust.is_none() {
            return true;
        }
        let file =
            self.read_result(id).ok().and_then(|bytes| serde_json::from_slice::<Map<String, Value>>(&bytes).ok());
        file.is_some_and(|file| caller.may_see(&file))
    }

    /// The task whose result file or data file has this name.
    pub fn task_of_file(name: &OsStr) -> Option<TaskId> {
        result_id(name)
    }

    /// Whether any task has a result file.
    pub fn has_results(&self) -> bool {
        let names = fs::read_dir(self.results()).into_iter().flatten().flatten();
        names.into_iter().any(|entry| result_id(&entry.file_name()).is_some())
    }

    /// Whether the last executor ended with open tasks: an executor without open tasks removes its identity
    /// file when it ends.
    pub fn has_unfinished_tasks(&self) -> bool {
        self.identity_file().exists() && matches!(self.executor(), Ok(None))
    }
}

fn read_trusted(path: &Path) -> io::Result<Vec<u8>> {
    let file = open_trusted(path)?;
    // One more, so that one read finds the end as well.
    let capacity = file.metadata()?.len().min(MAX_FILE_BYTES) + 1;
    let mut bytes = Vec::with_capacity(usize::try_from(capacity).unwrap_or_default());
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it has more than {MAX_FILE_BYTES} bytes")));
    }
    Ok(bytes)
}

fn open_trusted(path: &Path) -> io::Result<fs::File> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = fs::OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)?;
    let found = file.metadata()?;
    // A file that was replaced after we opened it has no links left, but is complete.
    if !is_trusted(&found) && found.nlink() != 0 {
        return Err(io::Error::new(io::ErrorKind::InvalidData, UNTRUSTED_FILE));
    }
    Ok(file)
}
