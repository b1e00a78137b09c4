//! Removes files that are not needed any longer, and lists foreign files without touching them.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{fs, io};

use super::{Mailbox, ignore_not_found, is_older, is_trusted, request_id};
use crate::task::TaskId;

/// Age at which an answer or a temporary file is removed. No command waits nearly this long before it
/// collects an answer or renames a temporary file.
const MAX_AGE: Duration = Duration::from_mins(10);

/// The extensions of data files.
pub(super) const DATA_EXTENSIONS: [&str; 3] = ["json", "txt", "bin"];

/// A file in the mailbox that we did not write, or that is not trusted. It is never touched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignFile {
    pub path: PathBuf,
    pub reason: &'static str,
}

impl Mailbox {
    /// Removes old answers that were not collected, old temporary files, old searches and wake-up folders of
    /// sessions that have ended; returns how many.
    pub fn sweep(&self, now: SystemTime) -> io::Result<usize> {
        let mut swept = 0;
        for folder in [self.root.clone(), self.inbox(), self.answers(), self.results()] {
            let has_answers = folder == self.answers();
            for entry in fs::read_dir(&folder)? {
                let entry = entry?;
                let is_ours = is_hidden(&entry.file_name()) || has_answers && request_id(&entry.file_name()).is_some();
                let Ok(found) = entry.metadata() else { continue };
                if is_ours && found.is_file() && is_older(&found, now, MAX_AGE) {
                    ignore_not_found(fs::remove_file(entry.path()))?;
                    swept += 1;
                }
            }
        }
        Ok(swept + self.sweep_wakeups(now)? + self.sweep_queries(now)?)
    }

    /// The tasks that have a result file or data in the mailbox.
    pub fn tasks_with_results(&self) -> io::Result<Vec<TaskId>> {
        let mut ids = Vec::new();
        for entry in fs::read_dir(self.results())? {
            ids.extend(result_id(&entry?.file_name()));
        }
        ids.sort();
        ids.dedup();
        Ok(ids)
    }

    /// For each task, the size of its files in bytes and the time of the last write to them.
    pub fn sizes(&self) -> io::Result<HashMap<TaskId, (u64, SystemTime)>> {
        let mut sizes = HashMap::new();
        for entry in fs::read_dir(self.results())? {
            let entry = entry?;
            let Some(id) = result_id(&entry.file_name()) else { continue };
            // A file that was just replaced or removed is counted the next time.
            let Ok(found) = entry.metadata() else { continue };
            let (bytes, at) = sizes.entry(id).or_insert((0, SystemTime::UNIX_EPOCH));
            *bytes += found.len();
            *at = found.modified()?.max(*at);
        }
        Ok(sizes)
    }

    /// The files among the requests and results that we did not write, and the reason for each.
    pub fn foreign_files(&self) -> io::Result<Vec<ForeignFile>> {
        let mut found = foreign_in(&self.inbox(), |name| request_id(name).is_some())?;
        found.extend(foreign_in(&self.results(), |name| result_id(name).is_some())?);
        found.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(found)
    }
}

fn foreign_in(folder: &Path, is_our_name: impl Fn(&OsStr) -> bool) -> io::Result<Vec<ForeignFile>> {
    let mut foreign = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        // A file that was renamed or collected in the meantime is ours.
        let Ok(found) = entry.metadata() else { continue };
        let name = entry.file_name();
        let reason = match distrust(&found) {
            Some(reason) => Some(reason),
            // A temporary file is being written, or will be removed when it is old.
            None if is_hidden(&name) || is_our_name(&name) => None,
            None => Some("its name is not one that we use"),
        };
        foreign.extend(reason.map(|reason| ForeignFile { path: entry.path(), reason }));
    }
    Ok(foreign)
}

/// Why [`is_trusted`] rejects a file.
fn distrust(found: &fs::Metadata) -> Option<&'static str> {
    if is_trusted(found) {
        None
    } else if found.is_symlink() {
        Some("it is a symbolic link")
    } else if found.is_dir() {
        Some("it is a folder")
    } else if !found.is_file() {
        Some("it is a pipe, a device or another special file")
    } else if found.uid() != nix::unistd::geteuid().as_raw() {
        Some("it belongs to another user")
    } else if found.permissions().mode() & 0o022 != 0 {
        Some("other users can write to it")
    } else {
        Some("it has more than one hard link")
    }
}

fn is_hidden(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}

/// The id in `result-<id>.json` or `result-<id>.data.<extension>`.
pub(super) fn result_id(name: &OsStr) -> Option<TaskId> {
    let (id, rest) = name.to_str()?.strip_prefix("result-")?.split_once('.')?;
    let extension = rest.strip_prefix("data.");
    (rest == "json" || extension.is_some_and(|extension| DATA_EXTENSIONS.contains(&extension)))
        .then(|| id.parse().ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::super::tests::mailbox;
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("failed to read the folder");
        let mut names: Vec<_> = entries
            .map(|entry| entry.expect("failed to read an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn only_old_answers_and_temporary_files_are_swept() {
        let (_folder, mailbox) = mailbox();
        let id = TaskId::new();
        mailbox.answer(id, &"x").expect("failed to answer");
        mailbox.post(id, &"x").expect("failed to post the request");
        mailbox.publish(id, "{}").expect("failed to publish the result");
        for folder in [mailbox.inbox(), mailbox.answers(), mailbox.results()] {
            fs::write(folder.join(".half-written"), "x").expect("failed to write");
            fs::write(folder.join("foreign.txt"), "x").expect("failed to write");
        }
        fs::write(mailbox.inbox().join(format!(".withdrawn-{id}")), "x").expect("failed to write");
        fs::create_dir(mailbox.inbox().join(".folder")).expect("failed to create");

        let now = SystemTime::now();
        assert_eq!(mailbox.sweep(now + MAX_AGE / 2).expect("failed to sweep"), 0, "the files may still be needed");
        assert_eq!(mailbox.sweep(now + MAX_AGE * 2).expect("failed to sweep"), 5);
        assert_eq!(names(&mailbox.inbox()), [".folder".to_owned(), format!("{id}.json"), "foreign.txt".to_owned()]);
        assert_eq!(names(&mailbox.answers()), ["foreign.txt"]);
        assert_eq!(names(&mailbox.results()), ["foreign.txt".to_owned(), format!("result-{id}.json")]);
    }

    #[test]
    fn foreign_files_are_listed_with_a_reason() {
        let (folder, mailbox) = mailbox();
        let (inbox, results) = (mailbox.inbox(), mailbox.results());
        let request = || inbox.join(format!("{}.json", TaskId::new()));
        let proper = TaskId::new();
        mailbox.post(proper, &"x").expect("failed to post the request");
        mailbox.publish(proper, "{}").expect("failed to publish the result");
        mailbox.put_data(proper, "json", &mut &b"{}"[..]).expect("failed to write");
        fs::write(inbox.join(".being-written"), "x").expect("failed to write");
        assert_eq!(mailbox.foreign_files().expect("failed to read"), []);

        let victim = folder.path().join("victim");
        fs::write(&victim, "x").expect("failed to write");
        let (link, hard_link, subfolder, writable, pipe) = (request(), request(), request(), request(), request());
        symlink(&victim, &link).expect("failed to create the link");
        fs::hard_link(&victim, &hard_link).expect("failed to create the link");
        fs::create_dir(&subfolder).expect("failed to create");
        fs::write(&writable, "x").expect("failed to write");
        fs::set_permissions(&writable, fs::Permissions::from_mode(0o666)).expect("failed to set the permissions");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("failed to create");
        let (notes, unknown) = (inbox.join("notes.txt"), results.join(format!("result-{}.data.exe", TaskId::new())));
        fs::write(&notes, "x").expect("failed to write");
        fs::write(&unknown, "x").expect("failed to write");

        let mut expected = [
            (link, "it is a symbolic link"),
            (hard_link, "it has more than one hard link"),
            (subfolder, "it is a folder"),
            (writable, "other users can write to it"),
            (pipe, "it is a pipe, a device or another special file"),
            (notes, "its name is not one that we use"),
            (unknown, "its name is not one that we use"),
        ]
        .map(|(path, reason)| ForeignFile { path, reason });
        expected.sort_by(|one, other| one.path.cmp(&other.path));
        assert_eq!(mailbox.foreign_files().expect("failed to read"), expected);
    }
}
