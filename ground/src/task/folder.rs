//! The content of a folder as one hash: of every file, folder and link below it, by name.
//!
//! A link that leads elsewhere counts with what it leads to, since that is what a program reads. How many entries and
//! bytes are looked at is bounded: what has more cannot be shown to a human, so it has no hash.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use protocol::{digest, regular_file};
use sha2::{Digest as _, Sha256};

use super::fingerprint::hash_copy;

/// The most files, folders and links below a folder.
const MAX_ENTRIES: usize = 10_000;
/// The most bytes of its files.
const MAX_BYTES: u64 = 256 << 20;
/// The most cached hashes; a full cache is cleared.
const MAX_CACHED: usize = 64;
/// A change so soon before may be followed by one that leaves no other time.
const SETTLED_AFTER: Duration = Duration::from_secs(1);

/// Hashes by folder, each with the state of its entries in which it was read.
static CACHE: LazyLock<Mutex<HashMap<PathBuf, (String, String)>>> = LazyLock::new(Mutex::default);

/// The hash of all that lies below `folder`. Fails if it cannot be read, or has too much.
pub(super) fn sha256(folder: &Path) -> io::Result<String> {
    let walk = FolderWalk::of(&folder.canonicalize()?)?;
    let (stamp, is_settled) = walk.stamp();
    let cache = || CACHE.lock().expect("no code panics while holding the lock");
    if let Some((_, sha256)) = cache().get(folder).filter(|(known, _)| *known == stamp) {
        return Ok(sha256.clone());
    }
    let sha256 = walk.sha256()?;
    let mut cache = cache();
    if cache.len() >= MAX_CACHED {
        cache.clear();
    }
    if is_settled {
        cache.insert(folder.to_owned(), (stamp, sha256.clone()));
    }
    Ok(sha256)
}

/// What lies below a folder, by its name from there; what a link leads to elsewhere, by its whole path.
#[derive(Default)]
struct FolderWalk {
    entries: BTreeMap<OsString, FolderEntry>,
    bytes: u64,
    /// The folders that are looked at, each with what its names begin with.
    ahead: Vec<(PathBuf, PathBuf)>,
    roots: BTreeSet<PathBuf>,
}

struct FolderEntry {
    content: EntryContent,
    /// Tells a version of it from others.
    state: [i128; 6],
}

enum EntryContent {
    Folder,
    Link(PathBuf),
    /// Where it is read, and whether it can be executed.
    File(PathBuf, bool),
    /// A pipe, a socket or a device: never read.
    Other,
}

impl FolderWalk {
    fn of(root: &Path) -> io::Result<Self> {
        let mut walk = Self::default();
        walk.add_root(root.to_owned(), PathBuf::new());
        while let Some((folder, name)) = walk.ahead.pop() {
            for entry in fs::read_dir(&folder)? {
                let entry = entry?;
                walk.add(&entry.path(), name.join(entry.file_name()))?;
            }
        }
        Ok(walk)
    }

    fn add_root(&mut self, root: PathBuf, name: PathBuf) {
        if self.roots.insert(root.clone()) {
            self.ahead.push((root, name));
        }
    }

    fn add(&mut self, path: &Path, name: PathBuf) -> io::Result<()> {
        let metadata = fs::symlink_metadata(path)?;
        if metadata.is_dir() {
            self.ahead.push((path.to_owned(), name.clone()));
            return self.insert(name, EntryContent::Folder, &metadata);
        }
        if !metadata.is_symlink() {
            return self.insert(name, content_of(path, &metadata), &metadata);
        }
        self.insert(name, EntryContent::Link(fs::read_link(path)?), &metadata)?;
        // One that leads nowhere says only where it would lead.
        let Ok(target) = path.canonicalize() else { return Ok(()) };
        if self.roots.iter().any(|root| target.starts_with(root)) {
            return Ok(());
        }
        let metadata = fs::metadata(&target)?;
        if metadata.is_dir() {
            self.add_root(target.clone(), target.clone());
            return self.insert(target, EntryContent::Folder, &metadata);
        }
        let content = content_of(&target, &metadata);
        self.insert(target, content, &metadata)
    }

    fn insert(&mut self, name: PathBuf, content: EntryContent, metadata: &Metadata) -> io::Result<()> {
        let is_file = matches!(content, EntryContent::File(..));
        let entry = FolderEntry { content, state: state_of(metadata) };
        if self.entries.insert(name.into_os_string(), entry).is_none() && is_file {
            self.bytes += metadata.len();
        }
        if self.entries.len() > MAX_ENTRIES {
            return Err(too_much(&format!("more than {MAX_ENTRIES} files and folders")));
        }
        if self.bytes > MAX_BYTES { Err(too_large()) } else { Ok(()) }
    }

    /// The state of all entries, and whether the last change was long enough ago to be told from a further one.
    fn stamp(&self) -> (String, bool) {
        let mut hash = Sha256::new();
        let mut changed = 0;
        for (name, entry) in &self.entries {
            add(&mut hash, name.as_bytes());
            entry.state.iter().for_each(|part| hash.update(part.to_be_bytes()));
            changed = changed.max(entry.state[CHANGED]);
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        (digest::hex(&hash.finalize()), i128::from(now.saturating_sub(SETTLED_AFTER).as_secs()) > changed)
    }

    fn sha256(&self) -> io::Result<String> {
        let (mut hash, mut left) = (Sha256::new(), MAX_BYTES);
        for (name, entry) in &self.entries {
            add(&mut hash, name.as_bytes());
            match &entry.content {
                EntryContent::Folder => hash.update(b"d"),
                EntryContent::Other => hash.update(b"o"),
                EntryContent::Link(target) => {
                    hash.update(b"l");
                    add(&mut hash, target.as_os_str().as_bytes());
                }
                EntryContent::File(path, is_executable) => {
                    hash.update(if *is_executable { b"x" } else { b"f" });
                    let mut file = regular_file::open(path)?.take(left + 1);
                    let content = hash_copy(&mut file, &mut io::sink())?;
                    left = file.limit().checked_sub(1).ok_or_else(too_large)?;
                    add(&mut hash, content.as_bytes());
                }
            }
        }
        Ok(digest::hex(&hash.finalize()))
    }
}

fn content_of(path: &Path, metadata: &Metadata) -> EntryContent {
    if metadata.is_file() {
        EntryContent::File(path.to_owned(), metadata.mode() & 0o111 != 0)
    } else {
        EntryContent::Other
    }
}

/// The place of the time of the last change in the state of an entry, in seconds.
const CHANGED: usize = 4;

fn state_of(metadata: &Metadata) -> [i128; 6] {
    let numbers = [metadata.dev(), metadata.ino(), metadata.size(), u64::from(metadata.mode())].map(i128::from);
    let [device, number, size, mode] = numbers;
    [device, number, size, mode, metadata.ctime().into(), metadata.ctime_nsec().into()]
}

/// Adds a part whose end can be told.
fn add(hash: &mut Sha256, part: &[u8]) {
    hash.update((part.len() as u64).to_be_bytes());
    hash.update(part);
}

fn too_large() -> io::Error {
    too_much(&format!("more than {} MiB", MAX_BYTES >> 20))
}

fn too_much(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, format!("it has {what}"))
}

#[cfg(test)]
mod tests {
    use std::fs::{File, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    struct Folders(tempfile::TempDir);

    impl Folders {
        fn new() -> Self {
            let folders = Self(tempfile::tempdir().expect("a folder"));
            fs::create_dir_all(folders.at("app/lib")).expect("made");
            fs::create_dir(folders.at("other")).expect("made");
            for name in ["app/main.py", "app/lib/tool.py", "other/shared.py"] {
                fs::write(folders.at(name), name).expect("written");
            }
            folders
        }

        fn at(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn hash(&self) -> String {
            sha256(&self.at("app")).expect("it can be read")
        }
    }

    #[test]
    fn every_change_below_a_folder_changes_its_hash() {
        let changes: [fn(&Folders); 8] = [
            |folders| fs::write(folders.at("app/lib/tool.py"), "app/lib/evil.py").expect("written"),
            |folders| fs::write(folders.at("app/lib/new.py"), "").expect("written"),
            |folders| fs::remove_file(folders.at("app/main.py")).expect("removed"),
            |folders| fs::rename(folders.at("app/main.py"), folders.at("app/main.js")).expect("renamed"),
            |folders| fs::create_dir(folders.at("app/empty")).expect("made"),
            |folders| symlink("main.py", folders.at("app/link.py")).expect("linked"),
            |folders| {
                fs::set_permissions(folders.at("app/main.py"), Permissions::from_mode(0o755)).expect("set");
            },
            |folders| nix::unistd::mkfifo(&folders.at("app/pipe"), nix::sys::stat::Mode::S_IRWXU).expect("made"),
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let folders = Folders::new();
            let before = folders.hash();
            assert_eq!(folders.hash(), before);
            change(&folders);
            assert_ne!(folders.hash(), before, "change {number}");
        }
        assert_eq!(Folders::new().hash(), Folders::new().hash(), "its own name does not count");
    }

    #[test]
    fn a_link_counts_with_what_it_leads_to() {
        for target in ["other", "other/shared.py"] {
            let folders = Folders::new();
            symlink(folders.at(target), folders.at("app/link")).expect("linked");
            // Itself, and back into what is looked at.
            symlink("..", folders.at("app/lib/up")).expect("linked");
            symlink("nowhere", folders.at("app/broken")).expect("linked");
            let before = folders.hash();
            fs::write(folders.at("other/shared.py"), "evil").expect("written");
            assert_ne!(folders.hash(), before, "{target}");
        }
    }

    #[test]
    fn what_is_too_much_has_no_hash() {
        let folders = Folders::new();
        File::create(folders.at("app/large")).and_then(|file| file.set_len(MAX_BYTES + 1)).expect("a sparse file");
        assert!(sha256(&folders.at("app")).expect_err("too large").to_string().contains("256 MiB"));
        fs::remove_file(folders.at("app/large")).expect("removed");
        symlink("/", folders.at("app/all")).expect("linked");
        assert!(sha256(&folders.at("app")).is_err());
        assert!(sha256(&folders.at("none")).is_err());
    }

    #[test]
    fn a_hash_is_kept_until_something_changes() {
        let folders = Folders::new();
        let path = folders.at("app");
        let kept = || CACHE.lock().expect("not poisoned").get(&path).map(|(_, sha256)| sha256.clone());
        let first = folders.hash();
        assert_eq!(kept(), None, "a change may follow that leaves no other time");
        let walk = FolderWalk::of(&path.canonicalize().expect("it is there")).expect("it can be read");
        CACHE.lock().expect("not poisoned").insert(path.clone(), (walk.stamp().0, "kept".to_owned()));
        assert_eq!(folders.hash(), "kept");
        fs::write(folders.at("app/main.py"), "evil").expect("written");
        let second = folders.hash();
        assert!(second != first && second != "kept");
    }
}
