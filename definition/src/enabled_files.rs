//! What was in the folder of a pack when a human enabled it: the hash of each file. While it is not the same, the pack
//! is off: when the catalog is scanned, and again whenever one of its subtools is performed. The record lies beside the
//! packs, as the human's own file; a pack without one was never seen by a human, and is off too.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use ground::base::write_access::WriteAccess;
use ground::task::failure::Failure;
use ground::task::fingerprint::{FileRole, Fingerprint};
use jiff::Timestamp;
use protocol::clock;
use protocol::code::Code;
use protocol::digest;
use protocol::file_state::FileState;
use protocol::regular_file;
use protocol::trust::{self, Distrust, untrusted};
use protocol::wording::at_most;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The name of the record in the folder of the packs.
const RECORD: &str = ".enabled.json";
/// The largest record.
const MAX_RECORD_BYTES: u64 = 16 << 20;
/// The most files of a pack, and the largest of them.
const MAX_FILES: usize = 10_000;
const MAX_FILE_BYTES: u64 = 64 << 20;
/// The files of a pack: their hashes by path.
pub type PackFiles = BTreeMap<String, String>;

/// The files of the packs that were enabled, by pack.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EnabledFiles(BTreeMap<String, PackFiles>);

impl EnabledFiles {
    /// Reads the record in the folder of the packs.
    pub fn read(packs: &Path) -> io::Result<Self> {
        match trust::check(&packs.join(RECORD)) {
            Err(distrust) if distrust.is_writable_by_others() => {
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, untrusted(&distrust)));
            }
            Ok(()) | Err(_) => {}
        }
        match regular_file::read(&packs.join(RECORD), MAX_RECORD_BYTES) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::from),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    /// The pack in `folder` as a human enabled it; `None` if no one did.
    pub fn pack(&self, name: &str, folder: &Path) -> Option<PinnedPack> {
        let files = self.0.get(name)?.clone();
        Some(PinnedPack { name: name.to_owned(), folder: folder.to_owned(), files, read: Mutex::default() })
    }

    /// Has a pack count as enabled as it is now.
    pub fn accept(&mut self, name: &str, folder: &Path) -> io::Result<()> {
        self.0.insert(name.to_owned(), files(folder)?);
        Ok(())
    }

    /// Remembers the files of a pack, or forgets them.
    pub fn record(packs: &Path, name: &str, files: Option<PackFiles>) -> io::Result<()> {
        let mut known = Self::read(packs)?;
        let is_other = match files {
            Some(files) => known.0.insert(name.to_owned(), files.clone()) != Some(files),
            None => known.0.remove(name).is_some(),
        };
        if is_other {
            let mut written = tempfile::NamedTempFile::new_in(packs)?;
            written.write_all(&serde_json::to_vec(&known)?)?;
            written.persist(packs.join(RECORD))?;
        }
        Ok(())
    }
}

/// A pack as a human enabled it.
#[derive(Debug)]
pub struct PinnedPack {
    name: String,
    folder: PathBuf,
    files: PackFiles,
    /// What was read of it last.
    read: Mutex<ReadFiles>,
}

/// The hashes of files that were read, and the state of each file then.
#[derive(Debug, Default)]
struct ReadFiles(BTreeMap<PathBuf, (FileState, String)>);

impl ReadFiles {
    /// The hash of a file, which is read only if it may have changed since the last time.
    fn hash(&mut self, path: &Path, now: Timestamp) -> io::Result<String> {
        let file = regular_file::open(path)?;
        let state = FileState::of_file(&file)?;
        if let Some((_, hash)) = self.0.get(path).filter(|(known, _)| *known == state) {
            return Ok(hash.clone());
        }
        let hash = digest::hex(&Sha256::digest(regular_file::read_open(file, MAX_FILE_BYTES)?));
        // Afterwards: it may have changed while it was read.
        if state.is_settled(now) && FileState::of(&fs::metadata(path)?) == state {
            self.0.insert(path.to_owned(), (state, hash.clone()));
        }
        Ok(hash)
    }

    /// The hashes of the files of the pack in `folder`.
    fn hashes(&mut self, folder: &Path) -> io::Result<PackFiles> {
        let (mut found, now) = (PackFiles::new(), clock::now());
        for path in paths(folder)? {
            let name = path.strip_prefix(folder).unwrap_or(&path).to_string_lossy().into_owned();
            let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
            found.insert(name, self.hash(&path, now).map_err(named)?);
        }
        Ok(found)
    }
}

impl PinnedPack {
    /// What is not as it was when the pack was enabled.
    pub fn changes(&self) -> io::Result<Vec<String>> {
        let now = self.read.lock().unwrap_or_else(PoisonError::into_inner).hashes(&self.folder)?;
        let known = &self.files;
        let gone = known.keys().filter(|path| !now.contains_key(*path)).map(|path| format!("`{path}` is gone"));
        let others = now.iter().filter_map(|(path, sha256)| match known.get(path) {
            None => Some(format!("`{path}` is new")),
            Some(before) if before != sha256 => Some(format!("`{path}` changed")),
            Some(_) => None,
        });
        Ok(gone.chain(others).collect())
    }

    /// Why the pack is off; `None` if it is as it was.
    pub fn refusal(&self) -> Option<String> {
        const MAX_NAMED: usize = 5;
        let mut changes = self.changes().unwrap_or_else(|error| vec![error.to_string()]);
        let is_of_git = |change: &String| change.starts_with("`.git/");
        // What git writes by itself comes last.
        changes.sort_by_key(is_of_git);
        let name = &self.name;
        let git = if changes.iter().any(is_of_git) {
            " (git writes there by itself: a pack is better off without its `.git`)"
        } else {
            ""
        };
        (!changes.is_empty()).then(|| {
            format!(
                "the pack changed since it was enabled, so it is off: {}{git}; look at it with `agent-magic-tool pack \
                 info {name}`, and enable it again with `agent-magic-tool pack enable {name}`",
                at_most(MAX_NAMED, &changes)
            )
        })
    }

    /// Fails if one of the `files` that are run, or a folder from which code is taken, lies outside of the pack and could have
    /// been changed since; or if a file of the pack is not as it was. `agent` is the Unix user of the agent.
    pub fn check_run(&self, files: &[Fingerprint], folders: &BTreeSet<PathBuf>, agent: u32) -> Result<(), Failure> {
        let folder = self.folder.canonicalize().ok();
        let inside = |path: &Path| {
            let (path, folder) = path.canonicalize().ok().zip(folder.as_ref())?;
            path.strip_prefix(folder).ok().map(Path::to_owned)
        };
        let is_code = |role| matches!(role, FileRole::Script | FileRole::Covered | FileRole::Folder);
        let outside = files.iter().filter(|file| is_code(file.role) && file.writable.is_some());
        let outside = outside.map(|file| &file.path).filter(|path| inside(path).is_none());
        let foreign = folders.iter().filter(|path| inside(path).is_none() && WriteAccess::to(path, agent).is_some());
        let Some(path) = outside.chain(foreign).next() else { return self.check_same(files, inside) };
        let message = format!(
            "the pack `{}` runs `{}`, which lies outside of it and may have changed since the pack was enabled; nothing was done",
            self.name,
            path.display()
        );
        Err(Failure::new(Code::BadDefinition, message).hint(
            "its author must keep all code in the folder of the pack; for a module of Python: `env -C FOLDER python3 -m …`, or `-P` \
             with PYTHONPATH",
        ))
    }

    /// Fails if one of `files` has another content than when the pack was enabled.
    fn check_same(&self, files: &[Fingerprint], inside: impl Fn(&Path) -> Option<PathBuf>) -> Result<(), Failure> {
        let has_content = |role| !matches!(role, FileRole::Folder | FileRole::WorkingFolder | FileRole::Place);
        for file in files.iter().filter(|file| has_content(file.role) && !file.role.is_of_input()) {
            let Some(path) = inside(&file.path) else { continue };
            if self.files.get(&*path.to_string_lossy()).is_none_or(|sha256| *sha256 != file.sha256) {
                let message = format!("`{}` of the pack `{}` changed; nothing was done", path.display(), self.name);
                return Err(Failure::new(Code::Drifted, message));
            }
        }
        Ok(())
    }

    /// Fails if the pack is no longer as it was.
    pub fn check(&self) -> Result<(), Failure> {
        self.refusal().map_or(Ok(()), |reason| Err(Failure::new(Code::Drifted, format!("{reason}; nothing was done"))))
    }

    /// Tells apart what was enabled.
    pub fn digest(&self) -> [u8; 32] {
        let files = self.files.iter().map(|(path, sha256)| format!("{}:{path}{sha256}", path.len()));
        files.fold(Sha256::new(), Sha256::chain_update).finalize().into()
    }
}

/// What of the pack in `folder` another user may have written.
pub fn distrust_in(folder: &Path) -> Option<Distrust> {
    let mut entries = BTreeSet::new();
    for path in paths(folder).unwrap_or_default() {
        entries.extend(path.ancestors().take_while(|above| *above != folder).map(Path::to_owned));
    }
    entries.iter().find_map(|path| trust::check(path).err().filter(Distrust::is_writable_by_others))
}

/// The hashes of the files of the pack in `folder`.
pub fn files(folder: &Path) -> io::Result<PackFiles> {
    ReadFiles::default().hashes(folder)
}

/// The paths of the files of the pack in `folder`, and of links, whatever they lead to.
pub fn paths(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next)? {
            let entry = entry?;
            let list = if entry.file_type()?.is_dir() { &mut folders } else { &mut found };
            list.push(entry.path());
        }
        if found.len() + folders.len() > MAX_FILES {
            let message = format!("it has more than {MAX_FILES} files");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use jiff::ToSpan as _;

    use super::*;

    const DEADLINE: Duration = Duration::from_secs(30);

    #[test]
    fn a_file_is_read_again_only_if_it_may_have_changed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("look.sh");
        fs::write(&path, "echo good").expect("written");
        let mut read = ReadFiles::default();
        let good = read.hash(&path, clock::now()).expect("read");
        assert!(read.0.is_empty(), "the next change may come so soon that the file has the same times");
        let later = clock::now() + 10.seconds();
        assert_eq!(read.hash(&path, later).expect("read"), good);
        let changes: [(&str, &dyn Fn()); 4] = [
            ("its length", &|| fs::write(&path, "echo evil, and more").expect("written")),
            ("its content", &|| {
                let before = fs::metadata(&path).expect("there").modified().expect("a time");
                fs::write(&path, "echo evil, and less").expect("written");
                fs::File::options().write(true).open(&path).expect("open").set_modified(before).expect("set");
            }),
            ("its permissions", &|| {
                let mode = fs::metadata(&path).expect("there").permissions();
                fs::set_permissions(&path, mode).expect("set");
            }),
            ("another file", &|| {
                let other = folder.path().join("other.sh");
                fs::write(&other, "echo evil, and less").expect("written");
                fs::rename(&other, &path).expect("moved");
            }),
        ];
        for (what, change) in changes {
            // What is remembered is what counts, as long as the file is the same.
            read.0.get_mut(&path).expect("remembered").1 = "remembered".to_owned();
            assert_eq!(read.hash(&path, later).expect("read"), "remembered", "before {what}");
            let state = || FileState::of(&fs::metadata(&path).expect("there"));
            let (before, started) = (state(), Instant::now());
            while state() == before {
                assert!(started.elapsed() < DEADLINE, "{what}: the clock of files stands still");
                change();
            }
            assert_ne!(read.hash(&path, later).expect("read"), "remembered", "{what}");
        }
    }
}
