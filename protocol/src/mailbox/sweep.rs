//! Sweeping: what nobody needs any more goes, what is not ours is named and left alone.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{fs, io};

use super::{Mailbox, gone, is_older, is_proper, request_id};
use crate::task::TaskId;

/// Older than this, an answer is not collected any more and a temporary file is not renamed any
/// more: no command waits nearly as long for either.
const STALE: Duration = Duration::from_mins(10);

/// The extensions of data files.
pub(super) const EXTENSIONS: [&str; 3] = ["json", "txt", "bin"];

/// Something in the mailbox that no part of us wrote, or that cannot be trusted; it is never touched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignFile {
    pub path: PathBuf,
    pub reason: &'static str,
}

impl Mailbox {
    /// Removes answers that nobody collected and temporary files whose writer is gone, such as
    /// `.withdrawn-*`; returns how many.
    pub fn sweep(&self, now: SystemTime) -> io::Result<usize> {
        let mut swept = 0;
        for folder in [self.root.clone(), self.inbox(), self.answers(), self.results()] {
            let answers = folder == self.answers();
            for entry in fs::read_dir(&folder)? {
                let entry = entry?;
                let is_ours = is_hidden(&entry.file_name()) || answers && request_id(&entry.file_name()).is_some();
                let Ok(found) = entry.metadata() else { continue };
                if is_ours && found.is_file() && is_older(&found, now, STALE) {
                    gone(fs::remove_file(entry.path()))?;
                    swept += 1;
                }
            }
        }
        Ok(swept + self.sweep_wakeups(now)?)
    }

    /// The tasks that have a result file or data here.
    pub fn results_of(&self) -> io::Result<Vec<TaskId>> {
        let mut ids = Vec::new();
        for entry in fs::read_dir(self.results())? {
            ids.extend(result_id(&entry?.file_name()));
        }
        ids.sort();
        ids.dedup();
        Ok(ids)
    }

    /// How many bytes lie here about each task, and when the last of them was written.
    pub fn sizes(&self) -> io::Result<HashMap<TaskId, (u64, SystemTime)>> {
        let mut sizes = HashMap::new();
        for entry in fs::read_dir(self.results())? {
            let entry = entry?;
            let Some(id) = result_id(&entry.file_name()) else { continue };
            // One that was replaced or removed just now is met again the next time.
            let Ok(found) = entry.metadata() else { continue };
            let (bytes, at) = sizes.entry(id).or_insert((0, SystemTime::UNIX_EPOCH));
            *bytes += found.len();
            *at = found.modified()?.max(*at);
        }
        Ok(sizes)
    }

    /// What lies in the inbox or among the results and is not ours, with what is wrong with it.
    pub fn leftovers(&self) -> io::Result<Vec<ForeignFile>> {
        let mut leftovers = foreign(&self.inbox(), |name| request_id(name).is_some())?;
        leftovers.extend(foreign(&self.results(), |name| result_id(name).is_some())?);
        leftovers.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(leftovers)
    }
}

fn foreign(folder: &Path, is_our_name: impl Fn(&OsStr) -> bool) -> io::Result<Vec<ForeignFile>> {
    let mut leftovers = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        // What was renamed or collected meanwhile is no leftover.
        let Ok(found) = entry.metadata() else { continue };
        let name = entry.file_name();
        let reason = match fault(&found) {
            Some(fault) => Some(fault),
            // A temporary file is being written, or will be swept.
            None if is_hidden(&name) || is_our_name(&name) => None,
            None => Some("its name is none of ours"),
        };
        leftovers.extend(reason.map(|reason| ForeignFile { path: entry.path(), reason }));
    }
    Ok(leftovers)
}

/// What [`is_proper`] has against a file.
fn fault(found: &fs::Metadata) -> Option<&'static str> {
    if is_proper(found) {
        None
    } else if found.is_symlink() {
        Some("it is a link")
    } else if found.is_dir() {
        Some("it is a folder")
    } else if !found.is_file() {
        Some("it is a pipe, a device or the like")
    } else if found.uid() != nix::unistd::geteuid().as_raw() {
        Some("it belongs to somebody else")
    } else if found.permissions().mode() & 0o022 != 0 {
        Some("others can write to it")
    } else {
        Some("it has more than one name")
    }
}

fn is_hidden(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}

/// The id in `result-<id>.json` or `result-<id>.data.<extension>`.
fn result_id(name: &OsStr) -> Option<TaskId> {
    let (id, rest) = name.to_str()?.strip_prefix("result-")?.split_once('.')?;
    let extension = rest.strip_prefix("data.");
    (rest == "json" || extension.is_some_and(|extension| EXTENSIONS.contains(&extension)))
        .then(|| id.parse().ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn mailbox() -> (tempfile::TempDir, Mailbox) {
        let folder = tempfile::tempdir().expect("a folder");
        let mailbox = Mailbox::open(&folder.path().join("mailbox")).expect("it opens");
        (folder, mailbox)
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("a folder");
        let mut names: Vec<_> =
            entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn only_what_nobody_needs_any_more_is_swept() {
        let (_folder, mailbox) = mailbox();
        let id = TaskId::new();
        mailbox.answer(id, &"x").expect("answered");
        mailbox.post(id, &"x").expect("posted");
        mailbox.publish(id, "{}").expect("published");
        for folder in [mailbox.inbox(), mailbox.answers(), mailbox.results()] {
            fs::write(folder.join(".half-written"), "x").expect("written");
            fs::write(folder.join("foreign.txt"), "x").expect("written");
        }
        fs::write(mailbox.inbox().join(format!(".withdrawn-{id}")), "x").expect("written");
        fs::create_dir(mailbox.inbox().join(".folder")).expect("made");

        let now = SystemTime::now();
        assert_eq!(mailbox.sweep(now + STALE / 2).expect("swept"), 0, "it may be needed yet");
        assert_eq!(mailbox.sweep(now + STALE * 2).expect("swept"), 5);
        assert_eq!(names(&mailbox.inbox()), [".folder".to_owned(), format!("{id}.json"), "foreign.txt".to_owned()]);
        assert_eq!(names(&mailbox.answers()), ["foreign.txt"]);
        assert_eq!(names(&mailbox.results()), ["foreign.txt".to_owned(), format!("result-{id}.json")]);
    }

    #[test]
    fn foreign_files_are_named_with_what_is_wrong_with_them() {
        let (folder, mailbox) = mailbox();
        let (inbox, results) = (mailbox.inbox(), mailbox.results());
        let request = || inbox.join(format!("{}.json", TaskId::new()));
        let proper = TaskId::new();
        mailbox.post(proper, &"x").expect("posted");
        mailbox.publish(proper, "{}").expect("published");
        mailbox.put_data(proper, "json", &mut &b"{}"[..]).expect("written");
        fs::write(inbox.join(".being-written"), "x").expect("written");
        assert_eq!(mailbox.leftovers().expect("read"), []);

        let victim = folder.path().join("victim");
        fs::write(&victim, "x").expect("written");
        let (link, second, made, open, pipe) = (request(), request(), request(), request(), request());
        symlink(&victim, &link).expect("linked");
        fs::hard_link(&victim, &second).expect("linked");
        fs::create_dir(&made).expect("made");
        fs::write(&open, "x").expect("written");
        fs::set_permissions(&open, fs::Permissions::from_mode(0o666)).expect("set");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("made");
        let (notes, odd) = (inbox.join("notes.txt"), results.join(format!("result-{}.data.exe", TaskId::new())));
        fs::write(&notes, "x").expect("written");
        fs::write(&odd, "x").expect("written");

        let mut expected = [
            (link, "it is a link"),
            (second, "it has more than one name"),
            (made, "it is a folder"),
            (open, "others can write to it"),
            (pipe, "it is a pipe, a device or the like"),
            (notes, "its name is none of ours"),
            (odd, "its name is none of ours"),
        ]
        .map(|(path, reason)| ForeignFile { path, reason });
        expected.sort_by(|one, other| one.path.cmp(&other.path));
        assert_eq!(mailbox.leftovers().expect("read"), expected);
    }
}
