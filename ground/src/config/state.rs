//! Whether another user can have written what decides and lies in the state folder: secrets, keys, grants, the record.
//!
//! The folder is private whatever the umask, so the modes of what is below it mean nothing. But another user who could
//! write to a folder above it can have made it, or have put files into it. Changes nothing.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use protocol::paths::Paths;

use protocol::trust::{self, Distrust};

/// Everything in the state folder that is not believed.
pub fn distrusted(paths: &Paths) -> Vec<Distrust> {
    let folder = trust::check(&paths.state).err().filter(Distrust::is_writable_by_others);
    folder.into_iter().chain(deciding(paths).iter().filter_map(|path| of_another_user(path))).collect()
}

/// The stored secrets that others can read or change, which are not used.
pub fn open_secrets(paths: &Paths) -> Vec<PathBuf> {
    let is_open = |path: &PathBuf| {
        fs::symlink_metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o077 != 0)
    };
    stored(paths).filter(is_open).collect()
}

fn stored(paths: &Paths) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(paths.secrets()).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// What decides, and has no check of its own when it is read.
fn deciding(paths: &Paths) -> Vec<PathBuf> {
    let (secrets, executor) = (paths.secrets(), paths.executor());
    let files = [paths.learned(), paths.state.join("configurations"), executor.join("configuration"), paths.store()];
    [secrets, paths.state.join("executors"), executor].into_iter().chain(stored(paths)).chain(files).collect()
}

/// A link in the folder leads to what belongs to another one: secrets without what was decided about them.
fn of_another_user(path: &Path) -> Option<Distrust> {
    let found = fs::symlink_metadata(path).ok()?;
    if found.is_symlink() {
        return Some(Distrust::Link { path: path.to_owned() });
    }
    trust::check_entry(path, &found).err().filter(|distrust| matches!(distrust, Distrust::WrongOwner { .. }))
}
