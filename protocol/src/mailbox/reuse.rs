//! Writes result files without making and deleting a file for each.
//!
//! A file system can take long to make a file after many were deleted: ext4 without a journal passes over every inode
//! that was deleted in the last minutes, which takes up to a millisecond. So the request of an accepted task becomes its
//! first result file, and a result file that is replaced is kept as a spare for a later one.
//!
//! Readers are served as if each file was new. A file is written to under a name that no reader knows, and only while a
//! write lease proves that no one has it open; then it is renamed. A spare also rests for [`MIN_REST`] first: a reader
//! that found it under its old name has opened it by then. Where there are no leases, files are made and deleted.
//!
//! A spare still holds what was written to it. So all spares are removed when a task is forgotten.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;

use super::{FILE_MODE, Mailbox, create_temporary, ignore_not_found, is_trusted};
use crate::fault;
use crate::lease::{self, Lease, LeaseKind};
use crate::task::TaskId;

/// How long a result file that was replaced is left alone. Far longer than it takes to open a file whose name was found.
const MIN_REST: Duration = Duration::from_secs(1);
/// The most spares; more are deleted.
const MAX_SPARES: usize = 1024;
/// Larger files are deleted, so that spares take up little space.
const MAX_SPARE_BYTES: u64 = 1 << 14;

/// Writes the result files of a mailbox.
#[derive(Debug)]
pub struct ResultWriter {
    mailbox: Mailbox,
    /// The oldest first.
    spares: VecDeque<Spare>,
    min_rest: Duration,
    /// Unset once the system or the file system turns out to have no leases.
    has_leases: bool,
}

/// A file that no one needs, under a hidden name. The sweep of old temporary files also removes spares.
#[derive(Debug)]
struct Spare {
    path: PathBuf,
    since: Instant,
}

impl ResultWriter {
    pub fn new(mailbox: Mailbox) -> Self {
        Self { mailbox, spares: VecDeque::new(), min_rest: MIN_REST, has_leases: true }
    }

    /// Writes or replaces a task's result file; a reader sees either the old or the new content. Returns where the
    /// task's request is now: it may have become the result file.
    pub fn publish(&mut self, id: TaskId, text: &str, request: RequestFile) -> io::Result<RequestFile> {
        let published = self.write(id, text.as_bytes(), request);
        if published.is_err() {
            // The disk may be full.
            self.remove_spares();
        }
        published
    }

    fn write(&mut self, id: TaskId, bytes: &[u8], request: RequestFile) -> io::Result<RequestFile> {
        let result = self.mailbox.result_file(id);
        if request == RequestFile::Taken {
            let taken = self.mailbox.taken().join(format!("{id}.json"));
            if self.rewrite(&taken, bytes) {
                fault::point("result", "written");
                fs::rename(&taken, &result)?;
                fault::point("result", "renamed");
                return Ok(RequestFile::Gone);
            }
        }
        let prepared = match self.rewritten_spare(bytes) {
            Some(spare) => spare,
            None => create_temporary(&result, |file| file.write_all(bytes))?,
        };
        fault::point("result", "written");
        self.put_in_place(prepared, &result)?;
        fault::point("result", "renamed");
        Ok(request)
    }

    /// Removes the files that are kept for reuse.
    pub fn remove_spares(&mut self) {
        for spare in self.spares.drain(..) {
            remove(&spare.path);
        }
    }

    /// Takes the oldest spare that has rested, and writes `bytes` to it.
    fn rewritten_spare(&mut self, bytes: &[u8]) -> Option<PathBuf> {
        let rested = self.spares.front().filter(|spare| spare.since.elapsed() >= self.min_rest);
        rested?;
        let spare = self.spares.pop_front()?;
        if self.rewrite(&spare.path, bytes) {
            return Some(spare.path);
        }
        // Someone still reads it.
        remove(&spare.path);
        None
    }

    /// Replaces the content of the file at `path` if no one else has it open. If this returns false, its content is
    /// not defined.
    fn rewrite(&mut self, path: &Path, bytes: &[u8]) -> bool {
        self.has_leases && self.try_rewrite(path, bytes).unwrap_or(false)
    }

    fn try_rewrite(&mut self, path: &Path, bytes: &[u8]) -> io::Result<bool> {
        let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
        let file = OpenOptions::new().write(true).custom_flags(flags.bits()).open(path)?;
        let found = file.metadata()?;
        if !is_trusted(&found) || found.mode() & 0o7777 != FILE_MODE {
            return Ok(false);
        }
        match lease::acquire(&file, LeaseKind::Write) {
            Lease::Held => {}
            Lease::InUse => return Ok(false),
            Lease::Unsupported => {
                self.has_leases = false;
                return Ok(false);
            }
        }
        let written = overwrite(&file, found.len(), bytes);
        lease::release(&file);
        written.map(|()| true)
    }

    /// Gives the file `prepared` the name `result`. A file that has the name already becomes a spare.
    fn put_in_place(&mut self, prepared: PathBuf, result: &Path) -> io::Result<()> {
        let is_spare = |found: fs::Metadata| found.is_file() && found.len() <= MAX_SPARE_BYTES;
        let is_kept = self.has_leases && self.spares.len() < MAX_SPARES;
        if is_kept && fs::symlink_metadata(result).is_ok_and(is_spare) && exchange(&prepared, result) {
            self.spares.push_back(Spare { path: prepared, since: Instant::now() });
            return Ok(());
        }
        let renamed = fs::rename(&prepared, result);
        if renamed.is_err() {
            ignore_not_found(fs::remove_file(&prepared))?;
        }
        renamed
    }
}

/// Where the request of a task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestFile {
    /// In `taken/`. The task is durable, so no executor needs to read the request again.
    Taken,
    /// Removed, or made into the result file.
    Gone,
}

impl Drop for ResultWriter {
    fn drop(&mut self) {
        self.remove_spares();
    }
}

/// Replaces the `old_bytes` of the file's content.
fn overwrite(file: &File, old_bytes: u64, bytes: &[u8]) -> io::Result<()> {
    file.write_all_at(bytes, 0)?;
    let new_bytes = bytes.len() as u64;
    if old_bytes > new_bytes { file.set_len(new_bytes) } else { Ok(()) }
}

/// Exchanges the names of two files; false if there is only one, or if the file system cannot do it.
#[cfg(target_os = "linux")]
fn exchange(one: &Path, other: &Path) -> bool {
    use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
    renameat2(AT_FDCWD, one, AT_FDCWD, other, RenameFlags::RENAME_EXCHANGE).is_ok()
}

#[cfg(not(target_os = "linux"))]
fn exchange(_: &Path, _: &Path) -> bool {
    false
}

/// Removes a file that is not needed. If that fails, the next sweep removes it.
fn remove(path: &Path) {
    if let Err(error) = ignore_not_found(fs::remove_file(path)) {
        tracing::debug!(%error, "failed to remove a spare file");
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::super::tests::mailbox;
    use super::*;

    fn inode(path: &Path) -> u64 {
        fs::metadata(path).expect("the file exists").ino()
    }

    /// A writer whose spares need no rest.
    fn writer(mailbox: &Mailbox) -> ResultWriter {
        let mut writer = ResultWriter::new(mailbox.clone());
        writer.min_rest = Duration::ZERO;
        writer
    }

    /// Whether files can be used again here.
    fn has_leases(writer: &ResultWriter) -> bool {
        cfg!(target_os = "linux") && writer.has_leases
    }

    fn taken(mailbox: &Mailbox) -> (TaskId, PathBuf) {
        let id = TaskId::new();
        mailbox.post(id, &"a request that is longer than its result").expect("posted");
        assert_eq!(mailbox.take_all().expect("taken").len(), 1);
        (id, mailbox.taken().join(format!("{id}.json")))
    }

    #[test]
    fn the_request_of_a_task_becomes_its_first_result_file() {
        let (_folder, mailbox) = mailbox();
        let mut writer = writer(&mailbox);
        let (id, request) = taken(&mailbox);
        let request_inode = inode(&request);
        writer.publish(id, "result", RequestFile::Taken).expect("published");
        assert_eq!(fs::read_to_string(mailbox.result_file(id)).expect("readable"), "result");
        if has_leases(&writer) {
            assert_eq!(inode(&mailbox.result_file(id)), request_inode);
            assert!(!request.exists());
        }
    }

    #[test]
    fn a_request_that_others_may_use_does_not_become_a_result_file() {
        let (folder, mailbox) = mailbox();
        let mut writer = writer(&mailbox);
        let (readable, path) = taken(&mailbox);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("set");
        let (linked, path) = taken(&mailbox);
        fs::hard_link(path, folder.path().join("link")).expect("linked");
        let (open, path) = taken(&mailbox);
        let _open = File::open(path).expect("opened");
        for id in [readable, linked, open] {
            let request = mailbox.taken().join(format!("{id}.json"));
            let (before, content) = (inode(&request), fs::read(&request).expect("readable"));
            writer.publish(id, "result", RequestFile::Taken).expect("published");
            assert_ne!(inode(&mailbox.result_file(id)), before);
            assert_eq!(fs::read(&request).expect("it stays"), content);
            let mode = fs::metadata(mailbox.result_file(id)).expect("it exists").permissions().mode();
            assert_eq!(mode & 0o777, FILE_MODE);
        }
    }

    #[test]
    fn a_replaced_file_is_used_again_unless_someone_reads_it() {
        let (_folder, mailbox) = mailbox();
        let mut writer = writer(&mailbox);
        let (first, second, third) = (TaskId::new(), TaskId::new(), TaskId::new());
        let mut publish = |id, text| {
            writer.publish(id, text, RequestFile::Gone).expect("published");
            assert_eq!(fs::read_to_string(mailbox.result_file(id)).expect("readable"), text);
        };
        publish(first, "pending");
        let mut reader = File::open(mailbox.result_file(first)).expect("opened");
        let read_inode = reader.metadata().expect("it exists").ino();
        publish(first, "final");
        publish(second, "pending, and longer");
        assert_ne!(inode(&mailbox.result_file(second)), read_inode);
        let mut text = String::new();
        io::Read::read_to_string(&mut reader, &mut text).expect("readable");
        assert_eq!(text, "pending", "a reader keeps what it opened");

        let replaced = inode(&mailbox.result_file(second));
        publish(second, "final");
        publish(third, "short");
        if has_leases(&writer) {
            assert_eq!(inode(&mailbox.result_file(third)), replaced);
        }
        drop(writer);
        let left = fs::read_dir(mailbox.results()).expect("readable").count();
        assert_eq!(left, 3, "no spare outlives its writer");
    }

    #[test]
    fn what_is_not_a_file_is_not_replaced() {
        let (_folder, mailbox) = mailbox();
        let mut writer = writer(&mailbox);
        let id = TaskId::new();
        fs::create_dir_all(mailbox.result_file(id).join("not-empty")).expect("created");
        writer.publish(id, "final", RequestFile::Gone).expect_err("a folder is in its place");
        assert!(mailbox.result_file(id).join("not-empty").is_dir());
        assert_eq!(fs::read_dir(mailbox.results()).expect("readable").count(), 1, "no temporary file remains");
    }

    #[test]
    fn a_replaced_file_rests_before_it_is_used_again() {
        let (_folder, mailbox) = mailbox();
        let mut writer = ResultWriter::new(mailbox.clone());
        writer.min_rest = Duration::MAX;
        let (first, second) = (TaskId::new(), TaskId::new());
        writer.publish(first, "pending", RequestFile::Gone).expect("published");
        let replaced = inode(&mailbox.result_file(first));
        writer.publish(first, "final", RequestFile::Gone).expect("published");
        writer.publish(second, "pending", RequestFile::Gone).expect("published");
        assert_ne!(inode(&mailbox.result_file(second)), replaced);
    }
}
