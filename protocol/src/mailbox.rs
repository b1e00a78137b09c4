//! The mailbox: the folder through which callers and the executor exchange requests and results.
//!
//! ```text
//! inbox/     requests, written by callers: a temporary name, then a rename
//! taken/     requests that the executor took and has not answered yet
//! answers/   answers that are not result files: refusals, plans, the status of the executor
//! results/   one file for each task, replaced atomically until it is final
//! wakeups/   the sessions to wake, and for which tasks: `mailbox/wakeups.rs`
//! queries/   what each session searched for last: `mailbox/queries.rs`
//! .published a FIFO that wakes the commands that wait: `mailbox/publication.rs`
//! executor.lock, executor.json, start.lock: whether an executor is running, `mailbox/presence.rs`
//! executor-failed.json: with which error the last executor ended, `mailbox/presence.rs`
//! configuration: which configuration file the last executor used, so that the next one does not use another
//! config-problem.json: why it goes on with an earlier configuration, `mailbox/presence.rs`
//! ```
//!
//! The first rename of a request wins: the executor moves it into `taken/`, or the caller withdraws it.
//! This module only moves files. The format of a request is in `mailbox/request.rs`, that of a result in
//! `mailbox/result.rs`; `mailbox/sweep.rs` removes old files.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use nix::fcntl::OFlag;
use serde::Serialize;

use crate::code::Code;
use crate::error::{ErrorBody, chain};
use crate::task::TaskId;
use crate::{fault, regular_file};

pub mod disk;
pub mod for_callers;
pub mod order;
pub mod presence;
pub mod publication;
pub mod queries;
mod reading;
pub mod request;
pub mod result;
pub mod sweep;
pub mod wakeups;
pub mod watch;

/// The largest request that the executor accepts.
pub const MAX_REQUEST_BYTES: u64 = 1 << 20;

/// Far more than the executor writes into one file that is read as a whole.
const MAX_FILE_BYTES: u64 = 1 << 30;
/// The error message for a file that is not trusted.
const UNTRUSTED_FILE: &str = "it is not a regular file that only this user can write to";

/// A mailbox whose folders exist and that only this user can write to.
#[derive(Debug, Clone)]
pub struct Mailbox {
    root: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum MailboxError {
    #[error("failed to open the mailbox folder `{path}`")]
    Io { path: PathBuf, source: io::Error },
    #[error("the mailbox folder `{path}` is not safe to use: {reason}")]
    Untrusted { path: PathBuf, reason: &'static str },
}

/// A request that the executor moved out of the inbox.
#[derive(Debug)]
pub struct TakenRequest {
    pub id: TaskId,
    /// The owner of the file, which the kernel vouches for.
    pub uid: u32,
    /// The content of the file, or why it could not be read.
    pub bytes: io::Result<Vec<u8>>,
    /// When the file was written; `None` if the file could not be opened.
    pub written_at: Option<SystemTime>,
}

impl Mailbox {
    /// Opens the mailbox at `root` and creates its missing folders with mode 0700, whatever the umask.
    ///
    /// Fails if any folder is a symbolic link, belongs to another user or is writable for other users.
    pub fn open(root: &Path) -> Result<Self, MailboxError> {
        let mailbox = Self { root: root.to_owned() };
        for folder in [root.to_owned(), mailbox.inbox(), mailbox.taken(), mailbox.answers(), mailbox.results()] {
            ensure_private(&folder)?;
        }
        Ok(mailbox)
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn inbox(&self) -> PathBuf {
        self.root.join("inbox")
    }

    pub fn results(&self) -> PathBuf {
        self.root.join("results")
    }

    pub fn result_file(&self, id: TaskId) -> PathBuf {
        self.results().join(format!("result-{id}.json"))
    }

    /// The path of the data that a task's result file refers to instead of containing it.
    pub fn data_file(&self, id: TaskId, extension: &str) -> PathBuf {
        self.results().join(format!("result-{id}.data.{extension}"))
    }

    fn taken(&self) -> PathBuf {
        self.root.join("taken")
    }

    fn answers(&self) -> PathBuf {
        self.root.join("answers")
    }

    /// Puts a request into the inbox, as a whole or not at all.
    pub fn post(&self, id: TaskId, request: &impl Serialize) -> io::Result<()> {
        replace(&self.inbox().join(format!("{id}.json")), &serde_json::to_vec(request)?, "request")
    }

    /// Takes a request out of the inbox; returns false if the executor has taken it already.
    pub fn withdraw(&self, id: TaskId) -> bool {
        let withdrawn = self.inbox().join(format!(".withdrawn-{id}"));
        let is_withdrawn = fs::rename(self.inbox().join(format!("{id}.json")), &withdrawn).is_ok();
        if is_withdrawn && let Err(error) = fs::remove_file(&withdrawn) {
            tracing::debug!(%id, %error, "failed to remove a withdrawn request");
        }
        is_withdrawn
    }

    /// Returns the answer to a request and removes it; `None` while there is no answer.
    pub fn collect_answer(&self, id: TaskId) -> io::Result<Option<Vec<u8>>> {
        let path = self.answers().join(format!("{id}.json"));
        match regular_file::read(&path, MAX_FILE_BYTES) {
            Ok(bytes) => {
                fs::remove_file(&path)?;
                Ok(Some(bytes))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Moves every request from the inbox into `taken/` and returns them, oldest first.
    ///
    /// Foreign files stay where they are. So do requests that cannot be read because file descriptors or
    /// memory are exhausted; a later call takes them.
    pub fn take_all(&self) -> io::Result<Vec<TakenRequest>> {
        self.list().map(|(taken, _)| taken)
    }

    /// Takes what one listing of the inbox shows. Returns also whether that is all that was there when it began.
    fn list(&self) -> io::Result<(Vec<TakenRequest>, bool)> {
        let (inbox, claimed, mut taken, mut is_whole) = (self.inbox(), self.taken(), Vec::new(), true);
        for entry in fs::read_dir(&inbox)? {
            let entry = entry?;
            let Some(id) = request_id(&entry.file_name()) else { continue };
            // Known from the listing, as a rule. Opening a device could have side effects.
            if !entry.file_type().is_ok_and(|kind| kind.is_file()) {
                continue;
            }
            let path = inbox.join(entry.file_name());
            let request = read_request(id, &path);
            match &request.bytes {
                Err(error) if is_resource_exhaustion(error) => {
                    is_whole = false;
                    break;
                }
                // What cannot be read is taken, and refused, only if it is a request.
                Err(_) if !fs::symlink_metadata(&path).is_ok_and(|found| is_trusted(&found)) => continue,
                _ => {}
            }
            if fs::rename(&path, claimed.join(entry.file_name())).is_ok() {
                taken.push(request);
            }
        }
        taken.sort_by_key(|request| request.id);
        if !taken.is_empty() {
            fault::point("requests", "taken");
        }
        Ok((taken, is_whole))
    }

    /// Returns the requests that an earlier executor took and did not answer. Delivers the answers that it
    /// wrote and did not deliver.
    pub fn unanswered(&self) -> io::Result<Vec<TakenRequest>> {
        let mut unanswered = Vec::new();
        for entry in fs::read_dir(self.taken())? {
            let entry = entry?;
            let Some(id) = request_id(&entry.file_name()) else { continue };
            let request = read_request(id, &entry.path());
            match &request.bytes {
                Ok(bytes) if serde_json::from_slice::<request::Answer>(bytes).is_ok() => self.deliver(id)?,
                _ => unanswered.push(request),
            }
        }
        unanswered.sort_by_key(|request| request.id);
        Ok(unanswered)
    }

    /// Removes a taken request, if it is still there: the answer of a refused one has replaced it.
    pub fn remove_taken(&self, id: TaskId) -> io::Result<()> {
        ignore_not_found(fs::remove_file(self.taken().join(format!("{id}.json"))))
    }

    /// Answers a taken request with something other than a result file.
    ///
    /// The answer replaces the request before the caller can see it, so a refused request is never taken up
    /// again even if the executor is killed in between.
    pub fn answer(&self, id: TaskId, answer: &impl Serialize) -> io::Result<()> {
        replace(&self.taken().join(format!("{id}.json")), &serde_json::to_vec(answer)?, "answer")?;
        self.deliver(id)
    }

    /// Moves the answer that replaced a taken request to where the caller looks for it.
    fn deliver(&self, id: TaskId) -> io::Result<()> {
        let name = format!("{id}.json");
        fs::rename(self.taken().join(&name), self.answers().join(&name))?;
        fault::point("answer", "delivered");
        Ok(())
    }

    /// Writes or replaces a task's result file; a reader sees either the old or the new content.
    pub fn publish(&self, id: TaskId, text: &str) -> io::Result<()> {
        replace(&self.result_file(id), text.as_bytes(), "result")
    }

    /// Writes the data that a task's result file refers to, as a whole or not at all.
    pub fn put_data(&self, id: TaskId, extension: &str, data: &mut impl io::Read) -> io::Result<()> {
        replace_with(&self.data_file(id, extension), "data", |file| io::copy(data, file).map(drop))
    }

    /// Whether a task's result file exists and is final.
    pub fn is_final(&self, id: TaskId) -> bool {
        regular_file::read(&self.result_file(id), MAX_FILE_BYTES).is_ok_and(|text| result::is_final(&text))
    }

    /// Whether all folders of the mailbox still exist.
    pub fn has_all_folders(&self) -> bool {
        [self.inbox(), self.taken(), self.answers(), self.results()].iter().all(|folder| folder.is_dir())
    }

    /// Removes a task's result file and its data.
    pub fn forget(&self, id: TaskId) -> io::Result<()> {
        ignore_not_found(fs::remove_file(self.result_file(id)))?;
        for extension in sweep::DATA_EXTENSIONS {
            ignore_not_found(fs::remove_file(self.data_file(id, extension)))?;
        }
        Ok(())
    }
}

/// Whether an error means that file descriptors or memory are exhausted, which is temporary.
pub fn is_resource_exhaustion(error: &io::Error) -> bool {
    use nix::libc::{EMFILE, ENFILE, ENOMEM};
    matches!(error.raw_os_error(), Some(EMFILE | ENFILE | ENOMEM))
}

/// Whether the file was last modified at least `age` before `now`.
///
/// False if its modification time is unknown or in the future.
pub fn is_older(found: &fs::Metadata, now: SystemTime, age: Duration) -> bool {
    found.modified().is_ok_and(|at| now.duration_since(at).is_ok_and(|passed| passed >= age))
}

fn ignore_not_found(outcome: io::Result<()>) -> io::Result<()> {
    match outcome {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// The id in the name of a request file: 32 hexadecimal digits, followed by `.json`.
fn request_id(name: &std::ffi::OsStr) -> Option<TaskId> {
    name.to_str()?.strip_suffix(".json")?.parse().ok()
}

/// Whether this is a regular file with a single name that belongs to our user and that only our user can
/// write to.
fn is_trusted(found: &fs::Metadata) -> bool {
    found.is_file()
        && found.nlink() == 1
        && found.uid() == nix::unistd::geteuid().as_raw()
        && found.permissions().mode() & 0o022 == 0
}

fn read_request(id: TaskId, path: &Path) -> TakenRequest {
    let mut uid = nix::unistd::geteuid().as_raw();
    let mut written_at = None;
    let bytes = (|| {
        let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
        let file = fs::OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)?;
        let found = file.metadata()?;
        if !is_trusted(&found) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, UNTRUSTED_FILE));
        }
        uid = found.uid();
        written_at = found.modified().ok();
        if found.len() > MAX_REQUEST_BYTES {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("more than {MAX_REQUEST_BYTES} bytes")));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(found.len()).unwrap_or_default());
        file.take(MAX_REQUEST_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    })();
    TakenRequest { id, uid, bytes, written_at }
}

/// Replaces `path` atomically: writes a temporary file of mode 0600 in the same folder, then renames it.
fn replace(path: &Path, bytes: &[u8], what: &str) -> io::Result<()> {
    replace_with(path, what, |file| file.write_all(bytes))
}

fn replace_with(path: &Path, what: &str, write: impl FnOnce(&mut fs::File) -> io::Result<()>) -> io::Result<()> {
    // Unique without a system call for each file: an id for this process, and a number.
    static PROCESS: LazyLock<TaskId> = LazyLock::new(TaskId::new);
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let temporary = path.with_file_name(format!(".{name}.{}-{number}", *PROCESS));
    let replaced = (|| {
        let mut file = fs::OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&temporary)?;
        write(&mut file)?;
        fault::point(what, "written");
        fs::rename(&temporary, path)?;
        fault::point(what, "renamed");
        Ok(())
    })();
    if replaced.is_err() {
        ignore_not_found(fs::remove_file(&temporary))?;
    }
    replaced
}

fn ensure_private(folder: &Path) -> Result<(), MailboxError> {
    let io = |source| MailboxError::Io { path: folder.to_owned(), source };
    let untrusted = |reason| MailboxError::Untrusted { path: folder.to_owned(), reason };
    let found = match fs::symlink_metadata(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => create_private(folder).map_err(io)?,
        found => found.map_err(io)?,
    };
    if !found.is_dir() {
        return Err(untrusted("it is not a folder"));
    }
    if found.uid() != nix::unistd::geteuid().as_raw() {
        return Err(untrusted("it belongs to another user"));
    }
    if found.permissions().mode() & 0o022 != 0 {
        return Err(untrusted("other users can write to it"));
    }
    Ok(())
}

/// Creates a folder with mode 0700, unless another process did so meanwhile.
fn create_private(folder: &Path) -> io::Result<fs::Metadata> {
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        // The umask may have cleared bits of the mode.
        Ok(()) => fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    fs::symlink_metadata(folder)
}

impl From<MailboxError> for ErrorBody {
    fn from(error: MailboxError) -> Self {
        Self::new(Code::BadMailbox, chain(&error)).hint(
            "set AGENT_MAGIC_TOOL_DIR, for the caller and the executor, to a folder that you own and only you can write to",
        )
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A mailbox in a temporary folder.
    pub(super) fn mailbox() -> (tempfile::TempDir, Mailbox) {
        let folder = tempfile::tempdir().expect("failed to create a temporary folder");
        let mailbox = Mailbox::open(&folder.path().join("mailbox")).expect("failed to open the mailbox");
        (folder, mailbox)
    }

    #[test]
    fn a_request_is_taken_once_or_withdrawn_once() {
        let (_folder, mailbox) = mailbox();
        let (taken, withdrawn) = (TaskId::new(), TaskId::new());
        mailbox.post(taken, &"x").expect("failed to post the request");
        mailbox.post(withdrawn, &"y").expect("failed to post the request");
        assert!(mailbox.withdraw(withdrawn) && !mailbox.withdraw(withdrawn));
        let found = mailbox.take_all().expect("failed to read");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].bytes.as_ref().expect("failed to read"), b"\"x\"");
        assert!(!mailbox.withdraw(taken));
        assert!(mailbox.take_all().expect("failed to read").is_empty());
        assert_eq!(mailbox.unanswered().expect("failed to read").len(), 1);
        mailbox.remove_taken(taken).expect("failed to remove");
        assert!(mailbox.unanswered().expect("failed to read").is_empty());
    }

    #[test]
    fn an_answered_request_is_never_taken_up_again() {
        let (_folder, mailbox) = mailbox();
        let (open, answered) = (TaskId::new(), TaskId::new());
        let answer = request::Answer::SameAs(open);
        mailbox.post(open, &"x").expect("failed to post the request");
        mailbox.post(answered, &"y").expect("failed to post the request");
        assert_eq!(mailbox.take_all().expect("failed to read").len(), 2);
        // As if the executor was killed between writing and delivering the answer.
        let place = mailbox.taken().join(format!("{answered}.json"));
        replace(&place, &serde_json::to_vec(&answer).expect("failed to serialize"), "answer").expect("failed to write");
        let unanswered: Vec<_> =
            mailbox.unanswered().expect("failed to read").iter().map(|request| request.id).collect();
        assert_eq!(unanswered, [open]);
        let collected = mailbox.collect_answer(answered).expect("failed to read").expect("no answer was delivered");
        assert_eq!(serde_json::from_slice::<request::Answer>(&collected).expect("failed to parse the answer"), answer);
        mailbox.answer(open, &answer).expect("failed to answer");
        assert!(mailbox.unanswered().expect("failed to read").is_empty());
    }

    #[test]
    fn a_result_file_is_replaced_as_a_whole() {
        let (_folder, mailbox) = mailbox();
        let (id, blocked) = (TaskId::new(), TaskId::new());
        mailbox.publish(id, "pending, and longer").expect("failed to publish");
        let mut reader = fs::File::open(mailbox.result_file(id)).expect("failed to open the result");
        mailbox.publish(id, "final").expect("failed to publish");
        assert_eq!(mailbox.read_result(id).expect("failed to read"), b"final");
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("failed to read");
        assert_eq!(text, "pending, and longer", "a reader keeps what it opened");
        let mode = fs::metadata(mailbox.result_file(id)).expect("failed to look").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);

        fs::create_dir_all(mailbox.result_file(blocked).join("not-empty")).expect("failed to create");
        mailbox.publish(blocked, "final").expect_err("a folder is in its place");
        assert!(mailbox.result_file(blocked).join("not-empty").is_dir());
        assert_eq!(fs::read_dir(mailbox.results()).expect("failed to read").count(), 2, "no temporary file remains");
    }

    #[test]
    fn foreign_files_are_left_alone() {
        let (folder, mailbox) = mailbox();
        let inbox = mailbox.inbox();
        let victim = folder.path().join("victim");
        fs::write(&victim, "secret").expect("failed to write");
        symlink(&victim, inbox.join(format!("{}.json", TaskId::new()))).expect("failed to create the link");
        fs::hard_link(&victim, inbox.join(format!("{}.json", TaskId::new()))).expect("failed to create the link");
        fs::create_dir(inbox.join(format!("{}.json", TaskId::new()))).expect("failed to create");
        let open = inbox.join(format!("{}.json", TaskId::new()));
        fs::write(&open, "x").expect("failed to write");
        fs::set_permissions(&open, fs::Permissions::from_mode(0o666)).expect("failed to set the permissions");
        fs::write(inbox.join("notes.txt"), "x").expect("failed to write");
        nix::unistd::mkfifo(&inbox.join(format!("{}.json", TaskId::new())), nix::sys::stat::Mode::S_IRWXU)
            .expect("failed to create");
        assert!(mailbox.take_all().expect("failed to read").is_empty());
    }

    /// Only root can give a file away; elsewhere the test has nothing to check.
    #[test]
    fn what_belongs_to_another_user_is_not_used() {
        let (folder, mailbox) = mailbox();
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let id = TaskId::new();
        mailbox.post(id, &"x").expect("failed to post the request");
        mailbox.publish(id, "{}").expect("failed to publish");
        let give_away = |path: &Path| std::os::unix::fs::chown(path, Some(1), None).expect("failed to give it away");
        give_away(&mailbox.inbox().join(format!("{id}.json")));
        give_away(&mailbox.result_file(id));
        assert!(mailbox.take_all().expect("failed to read").is_empty());
        assert!(mailbox.read_result(id).is_err());
        give_away(&mailbox.results());
        assert!(matches!(Mailbox::open(&folder.path().join("mailbox")), Err(MailboxError::Untrusted { .. })));
    }

    #[test]
    fn a_mailbox_that_other_users_can_access_is_refused() {
        let folder = tempfile::tempdir().expect("failed to create a temporary folder");
        let real = folder.path().join("real");
        Mailbox::open(&real).expect("failed to open the mailbox");
        let link = folder.path().join("link");
        symlink(&real, &link).expect("failed to create the link");
        assert!(matches!(Mailbox::open(&link), Err(MailboxError::Untrusted { .. })));
        fs::set_permissions(&real, fs::Permissions::from_mode(0o777)).expect("failed to set the permissions");
        assert!(matches!(Mailbox::open(&real), Err(MailboxError::Untrusted { .. })));
    }

    #[test]
    fn a_request_that_is_too_large_is_taken_with_an_error() {
        let (_folder, mailbox) = mailbox();
        mailbox.post(TaskId::new(), &"x".repeat(1 << 20)).expect("failed to post the request");
        let taken = mailbox.take_all().expect("failed to read");
        assert_eq!(taken[0].bytes.as_ref().expect_err("too large").kind(), io::ErrorKind::FileTooLarge);
    }
}
