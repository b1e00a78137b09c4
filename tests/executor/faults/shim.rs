//! The shim between an executor and the C library: what a disk holds after a loss of power, syncs
//! that fail, and a clock that is set. `shim.c` says how.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::UNIX_EPOCH;

use tempfile::TempDir;

/// The library, built once; `None`, and said loudly, where there is no C compiler.
pub(crate) fn library() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<(TempDir, PathBuf)>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
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
                super::skip(&format!("power loss, failing syncs and clocks: no C compiler: {error}"));
                None
            }
        }
    });
    built.as_ref().map(|(_, library)| library.as_path())
}

/// The disk under one folder: what was synced.
#[derive(Debug)]
pub(super) struct Disk {
    folder: PathBuf,
    shadow: TempDir,
}

impl Disk {
    /// What lies in `folder` now counts as synced.
    pub(super) fn under(folder: &Path) -> Self {
        let disk = Self { folder: folder.to_owned(), shadow: tempfile::tempdir().expect("a folder") };
        disk.keep(folder);
        disk
    }

    fn keep(&self, folder: &Path) {
        let mut names = String::new();
        for entry in fs::read_dir(folder).expect("a folder").flatten() {
            let id = identity(&entry.path());
            let name = entry.file_name();
            names.extend([id.as_str(), " ", name.to_str().expect("a name"), "\n"]);
            if entry.path().is_dir() {
                self.keep(&entry.path());
            } else {
                fs::copy(entry.path(), self.shadow.path().join(id)).expect("copied");
            }
        }
        fs::write(self.shadow.path().join(identity(folder)), names).expect("written");
    }

    /// The environment of a process on this disk.
    pub(super) fn environment<'a>(&'a self, library: &'a Path) -> Vec<(&'a str, &'a str)> {
        let text = |path: &'a Path| path.to_str().expect("a path of ours");
        vec![
            ("LD_PRELOAD", text(library)),
            ("SHIM_FOLDER", text(&self.folder)),
            ("SHIM_SHADOW", text(self.shadow.path())),
        ]
    }

    /// The power is lost: nothing is there but what was synced.
    pub(super) fn lose_power(&self) {
        let mut held = Vec::new();
        self.read(&identity(&self.folder), &self.folder, &mut held);
        fs::remove_dir_all(&self.folder).expect("removed");
        fs::create_dir(&self.folder).expect("made");
        for (path, content) in held {
            match content {
                Some(bytes) => fs::write(path, bytes).expect("written"),
                None => fs::create_dir(path).expect("made"),
            }
        }
    }

    fn read(&self, id: &str, folder: &Path, held: &mut Vec<(PathBuf, Option<Vec<u8>>)>) {
        let names = fs::read_to_string(self.shadow.path().join(id)).unwrap_or_default();
        for (id, name) in names.lines().filter_map(|line| line.split_once(' ')) {
            let path = folder.join(name);
            if id.starts_with('d') {
                held.push((path.clone(), None));
                self.read(id, &path, held);
            } else {
                // A name that was synced, of a file that was not.
                held.push((path, Some(fs::read(self.shadow.path().join(id)).unwrap_or_default())));
            }
        }
    }
}

/// As `shim.c` writes it: what kind, which inode, and since when, for inodes are used again.
fn identity(path: &Path) -> String {
    let found = fs::symlink_metadata(path).expect("it is there");
    let born = found.created().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    let kind = if found.is_dir() { 'd' } else { 'f' };
    format!("{kind}{}-{}-{}", found.ino(), born.as_secs(), born.subsec_nanos())
}
