//! Our own folders: state, configuration, cache and mailbox. Subtools never read them, even when a root contains them.
//!
//! A folder is recognized by its real path and by its device and inode, so neither a link nor a bind mount nor
//! `/proc/self/root` leads around the check. A file with several names is one of ours if one of the names is in such a
//! folder.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use protocol::paths::Paths;

/// The paths of our folders, which need not exist yet.
#[derive(Debug, Clone, Default)]
pub struct OwnFolders(Vec<PathBuf>);

/// Our folders as they are now.
#[derive(Debug, Default)]
pub struct ClosedFolders {
    real: Vec<PathBuf>,
    /// Device and inode.
    identities: Vec<(u64, u64)>,
    /// The same of each file in the folders, looked up when it is first needed.
    files: OnceLock<HashSet<(u64, u64)>>,
}

impl OwnFolders {
    pub fn of(paths: &Paths) -> Self {
        Self(vec![
            paths.state.clone(),
            paths.secrets(),
            paths.config.clone(),
            paths.cache.clone(),
            paths.mailbox.clone(),
        ])
    }

    /// Looks the folders up.
    pub fn closed(&self) -> ClosedFolders {
        let mut closed = ClosedFolders::default();
        for path in &self.0 {
            let (real, identity) = look_up(path);
            closed.real.push(real);
            closed.identities.extend(identity);
        }
        closed
    }
}

/// Returns the real path of a folder, and its device and inode if it exists.
fn look_up(path: &Path) -> (PathBuf, Option<(u64, u64)>) {
    let identity = |found: fs::Metadata| (found.dev(), found.ino());
    // The kernel knows the path of an open folder, which takes less than to resolve each part of a path.
    #[cfg(target_os = "linux")]
    match File::options().read(true).custom_flags(nix::libc::O_PATH | nix::libc::O_DIRECTORY).open(path) {
        Ok(folder) => {
            let real = fs::read_link(format!("/proc/self/fd/{}", folder.as_raw_fd()));
            if let (Ok(real), Ok(found)) = (real, folder.metadata())
                && real.is_absolute()
            {
                return (real, Some(identity(found)));
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return (path.to_owned(), None),
        Err(_) => {}
    }
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    (real, fs::metadata(path).ok().map(identity))
}

impl ClosedFolders {
    /// Whether the absolute path `path`, which contains no links, is one of the folders or lies below one.
    pub fn contain(&self, path: &Path) -> bool {
        !self.real.is_empty() && path.ancestors().any(|folder| self.include(folder))
    }

    /// Whether the folder at the absolute path `folder` is one of them.
    pub fn include(&self, folder: &Path) -> bool {
        self.real.iter().any(|closed| closed == folder)
            || fs::metadata(folder).is_ok_and(|found| self.identities.contains(&(found.dev(), found.ino())))
    }

    /// Whether the open file lies in one of the folders, whatever its path was when it was opened; also if that is
    /// another hard link to it.
    pub fn contain_file(&self, file: &File) -> bool {
        let path = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
        path.is_ok_and(|path| self.real.iter().any(|closed| path.starts_with(closed))) || self.contain_link_of(file)
    }

    /// Whether the file has several names, and one of them is in one of the folders.
    fn contain_link_of(&self, file: &File) -> bool {
        // A file whose metadata cannot be read may be one of ours.
        let Ok(found) = file.metadata() else { return true };
        found.nlink() > 1 && self.files.get_or_init(|| files_below(&self.real)).contains(&(found.dev(), found.ino()))
    }
}

/// The device and inode of each file below `folders` that has several names.
fn files_below(folders: &[PathBuf]) -> HashSet<(u64, u64)> {
    let mut files = HashSet::new();
    let mut open = folders.to_vec();
    while let Some(folder) = open.pop() {
        // What cannot be listed cannot be read either, or is gone.
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(found) if found.is_dir() => open.push(entry.path()),
                Ok(found) if found.nlink() > 1 => {
                    files.insert((found.dev(), found.ino()));
                }
                _ => {}
            }
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_recognized_whatever_its_path_is() {
        let root = tempfile::tempdir().expect("a folder");
        let home = root.path().canonicalize().expect("a real path");
        let own = OwnFolders(vec![home.join("state"), home.join("later")]);
        fs::create_dir_all(home.join("state/secrets")).expect("created");
        fs::write(home.join("state/secrets/key"), "x").expect("written");
        fs::write(home.join("other"), "x").expect("written");
        let closed = own.closed();
        let through_proc = Path::new("/proc/self/root").join(home.strip_prefix("/").expect("absolute"));
        for path in ["state", "state/secrets/key", "later/x"] {
            assert!(closed.contain(&home.join(path)), "{path}");
        }
        assert!(closed.contain(&through_proc.join("state/secrets/key")), "by its inode");
        assert!(!closed.contain(&home.join("other")) && !closed.contain(&home.join("statement")));
        let open = |path: &str| File::open(home.join(path)).expect("opened");
        assert!(closed.contain_file(&open("state/secrets/key")) && !closed.contain_file(&open("other")));
    }

    #[test]
    fn another_name_of_one_of_our_files_is_recognized() {
        let root = tempfile::tempdir().expect("a folder");
        let home = root.path().canonicalize().expect("a real path");
        fs::create_dir_all(home.join("state/secrets")).expect("created");
        for (file, link) in [("state/secrets/key", "key.txt"), ("mine", "also-mine")] {
            fs::write(home.join(file), "x").expect("written");
            fs::hard_link(home.join(file), home.join(link)).expect("linked");
        }
        let closed = OwnFolders(vec![home.join("state")]).closed();
        let open = |path: &str| File::open(home.join(path)).expect("opened");
        assert!(closed.contain_file(&open("key.txt")));
        assert!(!closed.contain_file(&open("mine")) && !closed.contain_file(&open("also-mine")));
    }
}
