//! Write access: who else can change a file, or put another one in its place.
//!
//! Tells what a human should know about a program before it runs; it decides nothing. As for `trust.rs`, only owners
//! and modes count, of the file, of every folder above it, and of the targets of links.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use protocol::trust::{self, Distrust};

/// Who can change a file besides root and the user of the executor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WriteAccess {
    /// The Unix user of the agent, which often is the user of the executor.
    Agent,
    /// Users of the machine who are neither.
    Others,
}

impl WriteAccess {
    /// Returns who can change `path`, for an agent that runs as `agent`; `None` if it is root and the user of the
    /// executor only, and the agent is neither.
    pub fn to(path: &Path, agent: u32) -> Option<Self> {
        let mut of_agent = false;
        let mut entry = |_: &Path, metadata: &Metadata| {
            of_agent |= may_write(metadata, agent);
            Ok(())
        };
        let visited = trust::visit(path, &mut entry);
        match trust::check(path) {
            // The agent's user is meant by itself, not as one of the others.
            Err(Distrust::WrongOwner { uid, .. }) if uid == agent => Some(Self::Agent),
            Err(distrust) if distrust.is_writable_by_others() => Some(Self::Others),
            // What cannot be inspected cannot be vouched for.
            _ if of_agent || visited.is_err() => Some(Self::Agent),
            _ => None,
        }
    }
}

/// Whether `agent` can write to an entry, or permit it to itself. Of a folder with the sticky bit it can only replace
/// its own entries, which are looked at themselves.
fn may_write(metadata: &Metadata, agent: u32) -> bool {
    let is_open = metadata.mode() & 0o002 != 0 && !(metadata.is_dir() && metadata.mode() & 0o1000 != 0);
    !metadata.is_symlink() && (agent == 0 || metadata.uid() == agent || is_open)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_owner_of_the_file_or_of_a_folder_above_it_can_change_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("program");
        fs::write(&file, "x").expect("written");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("set");
        let own = nix::unistd::geteuid().as_raw();
        assert_eq!(WriteAccess::to(&file, own), Some(WriteAccess::Agent));
        assert_eq!(WriteAccess::to(&file, 54_321), None, "an agent of another user cannot");
        assert_eq!(WriteAccess::to(&file, 0), Some(WriteAccess::Agent), "root can always");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).expect("set");
        assert_eq!(WriteAccess::to(&file, 54_321), Some(WriteAccess::Others), "the folder is open to all");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("set");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o757)).expect("set");
        assert_eq!(WriteAccess::to(&file, 54_321), Some(WriteAccess::Others));
        if own != 0 {
            assert_eq!(WriteAccess::to(Path::new("/bin/sh"), own), None, "only root can change the system");
        }
    }
}
