//! Trust: whether another user could have written a file.
//!
//! Definitions and the configuration decide what runs and what a human is asked. They are read only if no one but
//! root and this user can have written them. As sshd does for its keys, this checks the file, every folder above
//! it, and the same for the target of every symbolic link. Only owners and modes are checked: an access control
//! list is visible only as permissions of the group, and not at all if that is the user's private group.

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

/// The most symbolic links on one path; the limit of the Linux kernel.
const MAX_LINKS: u32 = 40;

/// Why a file is not trusted. Names the file or folder at fault.
#[derive(Debug, thiserror::Error)]
pub enum Distrust {
    #[error("others can write to `{}`", path.display())]
    WorldWritable { path: PathBuf },
    #[error("its group can write to `{}`", path.display())]
    GroupWritable { path: PathBuf },
    #[error("`{}` belongs to another user ({uid})", path.display())]
    WrongOwner { path: PathBuf, uid: u32, is_folder: bool },
    #[error("`{}` is a link, and must lie there itself", path.display())]
    Link { path: PathBuf },
    /// The file does not exist or cannot be inspected. Opening it reports the reason.
    #[error("failed to inspect `{}`", path.display())]
    Inaccessible { path: PathBuf, source: io::Error },
}

impl Distrust {
    /// Returns the command that fixes the problem, or advice if no single command does.
    pub fn remedy(&self) -> Option<String> {
        match self {
            Self::WorldWritable { path } | Self::GroupWritable { path } => Some(format!("chmod go-w {}", quoted(path))),
            Self::WrongOwner { is_folder: true, .. } => Some("use folders that belong to you or to root".to_owned()),
            Self::WrongOwner { path, .. } => Some(format!("chown {} {}", nix::unistd::geteuid(), quoted(path))),
            Self::Link { .. } => Some("move what it leads to into its place".to_owned()),
            Self::Inaccessible { .. } => None,
        }
    }

    /// Whether another user can have written the file; `false` if it only failed to be inspected.
    pub fn is_writable_by_others(&self) -> bool {
        !matches!(self, Self::Inaccessible { .. })
    }
}

/// Why a file is not read that another user may have written, and what mends that.
pub fn untrusted(distrust: &Distrust) -> String {
    let remedy = distrust.remedy().map(|remedy| format!(": {remedy}")).unwrap_or_default();
    format!("not loaded, because another user may have changed it: {distrust}{remedy}")
}

/// Checks `path` and every folder above it. For a path that does not exist, checks the part that does.
pub fn check(path: &Path) -> Result<(), Distrust> {
    visit(path, &mut check_entry)
}

/// Calls `entry` with `path`, every folder above it, and the same for the target of every symbolic link, with the
/// metadata of the entry itself.
pub fn visit(path: &Path, entry: &mut impl FnMut(&Path, &Metadata) -> Result<(), Distrust>) -> Result<(), Distrust> {
    let inaccessible = |path: &Path, source| Distrust::Inaccessible { path: path.to_owned(), source };
    let absolute = std::path::absolute(path).map_err(|error| inaccessible(path, error))?;
    let mut at = PathBuf::from("/");
    entry(&at, &fs::symlink_metadata(&at).map_err(|error| inaccessible(&at, error))?)?;
    let mut remaining = reversed_components(&absolute);
    let mut links = 0;
    while let Some(part) = remaining.pop() {
        if part == ".." {
            at.pop();
            continue;
        }
        at.push(part);
        let metadata = fs::symlink_metadata(&at).map_err(|error| inaccessible(&at, error))?;
        entry(&at, &metadata)?;
        if metadata.is_symlink() {
            links += 1;
            if links > MAX_LINKS {
                return Err(inaccessible(&at, io::Error::from_raw_os_error(nix::libc::ELOOP)));
            }
            let target = fs::read_link(&at).map_err(|error| inaccessible(&at, error))?;
            at.pop();
            if target.is_absolute() {
                at = PathBuf::from("/");
            }
            remaining.extend(reversed_components(&target));
        }
    }
    Ok(())
}

/// Checks `path` alone, by the metadata of the entry itself (`lstat`, not of a link's target).
pub fn check_entry(path: &Path, metadata: &Metadata) -> Result<(), Distrust> {
    let path = || path.to_owned();
    let (uid, mode) = (metadata.uid(), metadata.mode());
    if uid != nix::unistd::geteuid().as_raw() && !is_root(uid) {
        return Err(Distrust::WrongOwner { path: path(), uid, is_folder: metadata.is_dir() });
    }
    // In a sticky folder only the owner of an entry can change it, and the mode of a link means nothing.
    if metadata.is_symlink() || (metadata.is_dir() && mode & 0o1000 != 0) {
        return Ok(());
    }
    if mode & 0o002 != 0 {
        return Err(Distrust::WorldWritable { path: path() });
    }
    // A group with the same number as the user is that user's private group.
    let is_private = metadata.gid() == uid || metadata.gid() == 0;
    if mode & 0o020 != 0 && !is_private {
        return Err(Distrust::GroupWritable { path: path() });
    }
    Ok(())
}

/// Returns the components of a path, the last one first, without `/` and `.`.
fn reversed_components(path: &Path) -> Vec<OsString> {
    let part = |component| match component {
        Component::Normal(part) => Some(part.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
    };
    path.components().rev().filter_map(part).collect()
}

fn is_root(uid: u32) -> bool {
    uid == 0 || is_root_outside_namespace(uid)
}

/// Whether `uid` may be root outside this user namespace. In a sandbox where root is not mapped, root's files
/// show the overflow uid. So do the files of every other unmapped user: the two cannot be told apart here, but
/// the executor outside the sandbox can.
fn is_root_outside_namespace(uid: u32) -> bool {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    read("/proc/sys/kernel/overflowuid").trim().parse() == Ok(uid) && !maps_root(&read("/proc/self/uid_map"))
}

/// Whether this user namespace maps the root of its parent; `map` has the format of `user_namespaces(7)`.
fn maps_root(map: &str) -> bool {
    let outside = |line: &str| line.split_whitespace().nth(1).is_some_and(|first| first == "0");
    map.is_empty() || map.lines().any(outside)
}

fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=@%".contains(c);
    if text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn message(path: &Path) -> Option<String> {
        check(path).err().map(|distrust| format!("{distrust}; {}", distrust.remedy().unwrap_or_default()))
    }

    #[test]
    fn every_folder_on_the_path_and_on_the_targets_of_links_is_checked() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        for name in ["a", "a/b", "open", "open/in it"] {
            fs::create_dir(at(name)).expect("created");
        }
        let set = |name: &str, mode| fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).expect("set");
        for name in ["a/b/file", "open/in it/file"] {
            fs::write(at(name), "x").expect("written");
            set(name, 0o644);
        }
        symlink("../open/in it/file", at("a/link")).expect("linked");
        symlink(at("a/b"), at("open/absolute")).expect("linked");
        symlink("round", at("round")).expect("linked");
        let all = ["a/b/file", "a/link", "open/absolute/file", "a/../open/./in it/file"];
        let verdicts = || all.map(|name| message(&at(name)));
        assert_eq!(verdicts(), [None, None, None, None]);
        assert!(matches!(check(&at("round")), Err(Distrust::Inaccessible { .. })), "a link to itself does not loop");
        assert!(matches!(check(&at("a/none/file")), Err(Distrust::Inaccessible { .. })));

        set("open", 0o777);
        let open = at("open").display().to_string();
        let of_open = Some(format!("others can write to `{open}`; chmod go-w {open}"));
        assert_eq!(verdicts(), [None, of_open.clone(), of_open.clone(), of_open], "also for a link in that folder");
        set("open", 0o1777);
        assert_eq!(verdicts(), [None, None, None, None], "others cannot replace entries of a sticky folder");
        set("open", 0o755);
        set("open/in it", 0o757);
        let within = at("open/in it").display().to_string();
        assert_eq!(message(&at("a/link")), Some(format!("others can write to `{within}`; chmod go-w '{within}'")));
    }

    #[test]
    fn only_a_private_group_may_write() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let path = file.path();
        fs::set_permissions(path, fs::Permissions::from_mode(0o664)).expect("set");
        let metadata = fs::symlink_metadata(path).expect("it exists");
        let is_private = metadata.gid() == metadata.uid() || metadata.gid() == 0;
        assert_eq!(check_entry(path, &metadata).is_ok(), is_private);
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        for (uid, gid, expected) in [(0, 0, "trusted"), (0, 7, "GroupWritable"), (7, 7, "WrongOwner")] {
            std::os::unix::fs::chown(path, Some(uid), Some(gid)).expect("root may");
            let verdict = check_entry(path, &fs::symlink_metadata(path).expect("it exists"));
            let verdict = verdict.map_or_else(|distrust| format!("{distrust:?}"), |()| "trusted".to_owned());
            assert!(verdict.starts_with(expected), "{uid}:{gid}: {verdict}");
        }
        let folder = tempfile::tempdir().expect("a folder");
        std::os::unix::fs::chown(folder.path(), Some(7), None).expect("root may");
        let expected = format!(
            "`{}` belongs to another user (7); use folders that belong to you or to root",
            folder.path().display()
        );
        assert_eq!(message(&folder.path().join("file")), Some(expected), "no advice to chown a whole folder");
    }

    #[test]
    fn the_uid_map_shows_whether_root_is_mapped() {
        for (map, expected) in [
            ("         0          0 4294967295\n", true),
            ("      1000          0          1\n", true),
            ("         0       1000          1\n", false),
            ("         0       1000          1\n         1     100000      65536\n", false),
            ("", true),
        ] {
            assert_eq!(maps_root(map), expected, "{map}");
        }
    }
}
