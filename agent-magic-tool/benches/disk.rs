//! The disks to measure on: one with a journal, which is made for the measurement, and this machine's own.
//!
//! What it costs to make and delete a file depends on the file system and its settings. The ext4 that distributions make
//! has a journal, but the machine that measures may have anything. So an image of such an ext4 is mounted, which takes
//! root.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use nix::sched::{CloneFlags, unshare};
use tempfile::TempDir;

use crate::table::Table;

/// The image is sparse: it takes up what is written to it.
const IMAGE_BYTES: u64 = 2 << 30;

/// A folder to measure in, and what the rows say of it.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) folder: PathBuf,
    pub(crate) note: &'static str,
    /// The mount, which ends with this.
    _disk: Option<JournalledDisk>,
}

/// The places to measure files in. Reports to the `table` if there is no disk with a journal.
pub(crate) fn places(what: &str, table: &mut Table) -> Vec<Place> {
    let mut places = Vec::new();
    match JournalledDisk::mount() {
        Ok(disk) => places.push(Place {
            folder: disk.folder.path().to_owned(),
            note: ", ext4 with a journal",
            _disk: Some(disk),
        }),
        Err(reason) => table.skip(&format!("{what} on ext4 with a journal"), reason),
    }
    places.push(Place { folder: tempfile::env::temp_dir(), note: ", this disk", _disk: None });
    places
}

/// A mounted image of ext4 as `mkfs.ext4` makes it. Dropping it unmounts it.
#[derive(Debug)]
struct JournalledDisk {
    folder: TempDir,
}

impl JournalledDisk {
    fn mount() -> Result<Self, String> {
        leave_mounts_of_others()?;
        let folder = tempfile::Builder::new().prefix("amt-").tempdir().map_err(|error| error.to_string())?;
        // Without a name, the image ends with its mount.
        let image = tempfile::NamedTempFile::new().map_err(|error| error.to_string())?;
        image.as_file().set_len(IMAGE_BYTES).map_err(|error| error.to_string())?;
        run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(image.path()))?;
        run(Command::new("mount").args(["-o", "loop,noinit_itable"]).arg(image.path()).arg(folder.path()))?;
        Ok(Self { folder })
    }
}

impl Drop for JournalledDisk {
    fn drop(&mut self) {
        // A program that was killed may hold the folder for a moment. The mount then ends with that program.
        if let Err(error) = run(Command::new("umount").arg("--lazy").arg(self.folder.path())) {
            crate::table::progress(&format!("  {error}"));
        }
    }
}

/// Gives this process mounts of its own, which end with it and its children, however they end.
fn leave_mounts_of_others() -> Result<(), String> {
    static LEFT: OnceLock<Result<(), String>> = OnceLock::new();
    let leave = || {
        unshare(CloneFlags::CLONE_NEWNS).map_err(|error| format!("no mounts of its own: {error}"))?;
        run(Command::new("mount").args(["--make-rprivate", "/"]))
    };
    LEFT.get_or_init(leave).clone()
}

/// Runs a command to its end. Returns what it says if it fails.
fn run(command: &mut Command) -> Result<(), String> {
    // Where Debian has them, also for those whose path does not.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin"), PathBuf::from("/sbin")]);
    command.env("PATH", std::env::join_paths(folders).map_err(|error| error.to_string())?);
    let name = command.get_program().display().to_string();
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("`{name}`: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("`{name}`: {}", String::from_utf8_lossy(&output.stderr).trim()))
}
