//! Trust: whether what is read here could have been written by somebody else.
//!
//! Definitions and the configuration decide what runs and what a human is asked, so they count only where
//! nobody but root and our user could have put them: the file, every folder above it up to the root, and
//! the same for whatever a symbolic link leads to, as sshd does with its keys. Looks at owners and modes
//! alone: an access control list shows there only as rights of the group, and is not seen where that is the
//! user's own.

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

/// As many as the kernel follows.
const MAX_LINKS: u32 = 40;

/// Why something is not trusted, naming the file or folder at fault.
#[derive(Debug, thiserror::Error)]
pub enum Distrust {
    #[error("others can write to `{}`", path.display())]
    Others { path: PathBuf },
    #[error("its group can write to `{}`", path.display())]
    Group { path: PathBuf },
    #[error("`{}` belongs to another user ({uid})", path.display())]
    Foreign { path: PathBuf, uid: u32, is_folder: bool },
    /// It is not there, or may not be looked at: whoever opens it is told why.
    #[error("`{}` cannot be looked at", path.display())]
    Unseen { path: PathBuf, source: io::Error },
}

impl Distrust {
    /// The command that puts it right, or what else does.
    pub fn remedy(&self) -> Option<String> {
        match self {
            Self::Others { path } | Self::Group { path } => Some(format!("chmod go-w {}", quoted(path))),
            Self::Foreign { is_folder: true, .. } => Some("use folders that belong to you or to root".to_owned()),
            Self::Foreign { path, .. } => Some(format!("chown {} {}", nix::unistd::geteuid(), quoted(path))),
            Self::Unseen { .. } => None,
        }
    }

    /// Whether it speaks of somebody else's hand, and not of a file that is not there.
    pub fn is_of_others(&self) -> bool {
        !matches!(self, Self::Unseen { .. })
    }
}

/// Looks at `path` and everything on the way to it; where it does not exist, at as much as is there.
pub fn check(path: &Path) -> Result<(), Distrust> {
    let unseen = |path: &Path, source| Distrust::Unseen { path: path.to_owned(), source };
    let whole = std::path::absolute(path).map_err(|error| unseen(path, error))?;
    let mut at = PathBuf::from("/");
    check_one(&at, &fs::symlink_metadata(&at).map_err(|error| unseen(&at, error))?)?;
    let mut ahead = parts(&whole);
    let mut links = 0;
    while let Some(part) = ahead.pop() {
        if part == ".." {
            at.pop();
            continue;
        }
        at.push(part);
        let found = fs::symlink_metadata(&at).map_err(|error| unseen(&at, error))?;
        check_one(&at, &found)?;
        if found.is_symlink() {
            links += 1;
            if links > MAX_LINKS {
                return Err(unseen(&at, io::Error::from_raw_os_error(nix::libc::ELOOP)));
            }
            let target = fs::read_link(&at).map_err(|error| unseen(&at, error))?;
            at.pop();
            if target.is_absolute() {
                at = PathBuf::from("/");
            }
            ahead.extend(parts(&target));
        }
    }
    Ok(())
}

/// Looks at `path` alone, which was found like this without following a link.
pub fn check_one(path: &Path, found: &Metadata) -> Result<(), Distrust> {
    let path = || path.to_owned();
    let (uid, mode) = (found.uid(), found.mode());
    if uid != nix::unistd::geteuid().as_raw() && !is_root(uid) {
        return Err(Distrust::Foreign { path: path(), uid, is_folder: found.is_dir() });
    }
    // What lies in a sticky folder is changed by its owner alone; and a link has no mode of its own.
    if found.is_symlink() || (found.is_dir() && mode & 0o1000 != 0) {
        return Ok(());
    }
    if mode & 0o002 != 0 {
        return Err(Distrust::Others { path: path() });
    }
    // Where every user has a group of the same number, nobody else is in it.
    let is_private = found.gid() == uid || found.gid() == 0;
    if mode & 0o020 != 0 && !is_private {
        return Err(Distrust::Group { path: path() });
    }
    Ok(())
}

/// The parts of a path, the last first.
fn parts(path: &Path) -> Vec<OsString> {
    let part = |component| match component {
        Component::Normal(part) => Some(part.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
    };
    path.components().rev().filter_map(part).collect()
}

fn is_root(uid: u32) -> bool {
    uid == 0 || is_root_from_inside(uid)
}

/// Inside a sandbox with users of its own, root's files may seem to be nobody's. That nobody also stands
/// for other users cannot be told from there; the executor outside can.
fn is_root_from_inside(uid: u32) -> bool {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    read("/proc/sys/kernel/overflowuid").trim().parse() == Ok(uid) && !has_root(&read("/proc/self/uid_map"))
}

/// Whether the users of this namespace include the root of the one around it; `map` as in `user_namespaces(7)`.
fn has_root(map: &str) -> bool {
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

    fn told(path: &Path) -> Option<String> {
        check(path).err().map(|distrust| format!("{distrust}; {}", distrust.remedy().unwrap_or_default()))
    }

    #[test]
    fn every_part_of_the_way_counts_through_links_and_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        for name in ["a", "a/b", "open", "open/in it"] {
            fs::create_dir(at(name)).expect("made");
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
        let verdicts = || all.map(|name| told(&at(name)));
        assert_eq!(verdicts(), [None, None, None, None]);
        assert!(matches!(check(&at("round")), Err(Distrust::Unseen { .. })), "a link to itself ends");
        assert!(matches!(check(&at("a/none/file")), Err(Distrust::Unseen { .. })));

        set("open", 0o777);
        let open = at("open").display().to_string();
        let of_open = Some(format!("others can write to `{open}`; chmod go-w {open}"));
        assert_eq!(verdicts(), [None, of_open.clone(), of_open.clone(), of_open], "a link that lies there too");
        set("open", 0o1777);
        assert_eq!(verdicts(), [None, None, None, None], "in a sticky folder everybody has their own");
        set("open", 0o755);
        set("open/in it", 0o757);
        let within = at("open/in it").display().to_string();
        assert_eq!(told(&at("a/link")), Some(format!("others can write to `{within}`; chmod go-w '{within}'")));
    }

    #[test]
    fn a_group_counts_as_its_user_only_where_it_is_theirs() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let path = file.path();
        fs::set_permissions(path, fs::Permissions::from_mode(0o664)).expect("set");
        let found = fs::symlink_metadata(path).expect("there");
        let is_private = found.gid() == found.uid() || found.gid() == 0;
        assert_eq!(check_one(path, &found).is_ok(), is_private);
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        for (uid, gid, expected) in [(0, 0, "fine"), (0, 7, "Group"), (7, 7, "Foreign")] {
            std::os::unix::fs::chown(path, Some(uid), Some(gid)).expect("root may");
            let verdict = check_one(path, &fs::symlink_metadata(path).expect("there"));
            let verdict = verdict.map_or_else(|distrust| format!("{distrust:?}"), |()| "fine".to_owned());
            assert!(verdict.starts_with(expected), "{uid}:{gid}: {verdict}");
        }
        let folder = tempfile::tempdir().expect("a folder");
        std::os::unix::fs::chown(folder.path(), Some(7), None).expect("root may");
        let expected = format!(
            "`{}` belongs to another user (7); use folders that belong to you or to root",
            folder.path().display()
        );
        assert_eq!(told(&folder.path().join("file")), Some(expected), "nobody is told to take a whole folder");
    }

    #[test]
    fn root_is_known_to_be_missing_by_the_map_of_users() {
        for (map, expected) in [
            ("         0          0 4294967295\n", true),
            ("      1000          0          1\n", true),
            ("         0       1000          1\n", false),
            ("         0       1000          1\n         1     100000      65536\n", false),
            ("", true),
        ] {
            assert_eq!(has_root(map), expected, "{map}");
        }
    }
}
