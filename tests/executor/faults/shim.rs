//! The shim between an executor and the C library: simulates power loss, failing syncs and a clock that is set. See
//! `shim.c`.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::UNIX_EPOCH;

use tempfile::TempDir;

use crate::skip::skip;

/// Builds the library once. Without a C compiler, reports a skipped test and returns `None`.
pub(crate) fn library() -> Option<&'static Path> {
    static LIBRARY: OnceLock<Option<(TempDir, PathBuf)>> = OnceLock::new();
    let built = LIBRARY.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let (source, library) = (folder.path().join("shim.c"), folder.path().join("shim.so"));
        fs::write(&source, include_str!("shim.c")).expect("written");
        let built = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source).status();
        match built {
            Ok(status) => {
                assert!(status.success(), "the shim does not compile");
                Some((folder, library))
            }
            Err(error) => {
                skip(&format!("power loss, failing syncs and clocks: no C compiler: {error}"));
                None
            }
        }
    });
    built.as_ref().map(|(_, library)| library.as_path())
}

/// The simulated disk of one folder: `shadow` contains what was synced.
#[derive(Debug)]
pub(super) struct Disk {
    folder: PathBuf,
    shadow: TempDir,
}

impl Disk {
    /// Creates a disk for `folder`, whose current content counts as synced.
    pub(super) fn under(folder: &Path) -> Self {
        let disk = Self { folder: folder.to_owned(), shadow: tempfile::tempdir().expect("a folder") };
        disk.sync(folder);
        disk
    }

    fn sync(&self, folder: &Path) {
        let mut names = String::new();
        for entry in fs::read_dir(folder).expect("a folder").flatten() {
            let id = identity(&entry.path());
            let name = entry.file_name();
            names.extend([id.as_str(), " ", name.to_str().expect("a name"), "\n"]);
            if entry.path().is_dir() {
                self.sync(&entry.path());
            } else {
                fs::copy(entry.path(), self.shadow.path().join(id)).expect("copied");
            }
        }
        fs::write(self.shadow.path().join(identity(folder)), names).expect("written");
    }

    /// The environment of a process that uses this disk.
    pub(super) fn environment<'a>(&'a self, library: &'a Path) -> Vec<(&'a str, &'a str)> {
        let text = |path: &'a Path| path.to_str().expect("a UTF-8 path");
        vec![
            ("LD_PRELOAD", text(library)),
            ("SHIM_FOLDER", text(&self.folder)),
            ("SHIM_SHADOW", text(self.shadow.path())),
        ]
    }

    /// Simulates a power loss: only what was synced is left.
    pub(super) fn lose_power(&self) {
        let mut synced = Vec::new();
        self.read(&identity(&self.folder), &self.folder, &mut synced);
        fs::remove_dir_all(&self.folder).expect("removed");
        fs::create_dir(&self.folder).expect("made");
        for (path, content) in synced {
            match content {
                Some(bytes) => fs::write(path, bytes).expect("written"),
                None => fs::create_dir(path).expect("made"),
            }
        }
    }

    fn read(&self, id: &str, folder: &Path, synced: &mut Vec<(PathBuf, Option<Vec<u8>>)>) {
        let names = fs::read_to_string(self.shadow.path().join(id)).unwrap_or_default();
        for (id, name) in names.lines().filter_map(|line| line.split_once(' ')) {
            let path = folder.join(name);
            if id.starts_with('d') {
                synced.push((path.clone(), None));
                self.read(id, &path, synced);
            } else {
                // A file whose name was synced but not its content is empty.
                synced.push((path, Some(fs::read(self.shadow.path().join(id)).unwrap_or_default())));
            }
        }
    }
}

/// The id of a file as in `shim.c`: its type, its inode and its creation time, since inodes are reused.
fn identity(path: &Path) -> String {
    let metadata = fs::symlink_metadata(path).expect("an existing path");
    let created = metadata.created().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    let kind = if metadata.is_dir() { 'd' } else { 'f' };
    format!("{kind}{}-{}-{}", metadata.ino(), created.as_secs(), created.subsec_nanos())
}
