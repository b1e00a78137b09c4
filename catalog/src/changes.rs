//! Finds out cheaply whether definition files may have changed, however many there are.
//!
//! The kernel queues an event before the write that causes it returns. So what is read from the queue now covers every
//! edit that was complete before, such as one made before a request. What has no events is looked at itself: the
//! folders of the search path with those above them, links, and all files of a file system that may report nothing.
//! Says only that something may have changed; `Sources::stamp` says whether it did.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent};
use nix::sys::statfs::{self, FsType};
use protocol::file_state::FileState;
use protocol::trust;

use super::Sources;
use super::packs::MANIFEST;
use super::sources::{is_definition_file, is_script_file};

/// How long events are relied on without a look at every file: a file that is written through a memory map changes
/// without an event.
const MAX_TRUST: Duration = Duration::from_secs(30);
/// The most files that are looked at one by one each time. With more of them, every file is.
const MAX_SINGLE_FILES: usize = 32;
/// The most reads of queued events; each returns dozens of events, and then there certainly were some.
const MAX_READS: usize = 64;

/// File systems of this machine, which report every change by itself. Another machine may change the files of others.
const LOCAL: [FsType; 7] = [
    statfs::BTRFS_SUPER_MAGIC,
    statfs::EXT4_SUPER_MAGIC,
    statfs::F2FS_SUPER_MAGIC,
    statfs::OVERLAYFS_SUPER_MAGIC,
    statfs::TMPFS_MAGIC,
    statfs::XFS_SUPER_MAGIC,
    ZFS_SUPER_MAGIC,
];
const ZFS_SUPER_MAGIC: FsType = FsType(0x2fc1_2fc1);

/// Notices changes of definition files.
#[derive(Debug, Default)]
pub struct SourcesWatch {
    watched: Option<WatchState>,
}

/// What was found when all files were looked at the last time.
#[derive(Debug)]
struct WatchState {
    events: Inotify,
    folders: Vec<PathState>,
    singles: Vec<(PathState, PathBuf)>,
    looked_at: Instant,
}

/// What lies at a path, and whether another user may have put it there.
#[derive(Debug, PartialEq, Eq)]
struct PathState {
    file: Option<FileState>,
    distrust: Option<String>,
}

impl SourcesWatch {
    /// Starts to watch `sources`. Call this before they are scanned.
    pub fn new(sources: &Sources) -> Self {
        let mut watch = Self::default();
        watch.restart(sources);
        watch
    }

    /// A watch that never knows: every file is looked at each time.
    pub fn none() -> Self {
        Self::default()
    }

    /// Whether a file of `sources` may have changed since the last [`Self::restart`].
    pub fn may_have_changed(&self, sources: &Sources) -> bool {
        let Some(watched) = &self.watched else { return true };
        watched.looked_at.elapsed() > MAX_TRUST
            || watched.folders.len() != sources.watched().len()
            || watched.folders.iter().zip(sources.watched()).any(|(known, folder)| *known != PathState::of(folder))
            || watched.singles.iter().any(|(known, path)| *known != PathState::of(path))
            || watched.has_events()
    }

    /// Starts anew. Call this before every file is looked at: changes from now on are noticed.
    pub fn restart(&mut self, sources: &Sources) {
        let folders: Vec<_> = sources.watched().into_iter().map(PathState::of).collect();
        let earlier = self.watched.take().filter(|watched| watched.covers(&folders));
        let events = match earlier {
            Some(watched) => {
                watched.has_events();
                Ok(watched.events)
            }
            None => watch(&sources.watched()),
        };
        let found = sources.files();
        // A pack is off as soon as any file of it changes, in folders below it too, whose events are not queued.
        if found.outside.len() > MAX_SINGLE_FILES || !found.pinned.is_empty() {
            return;
        }
        let singles = found.outside;
        let singles = singles.into_iter().map(|path| (PathState::of(&path), path)).collect();
        match events {
            Ok(events) => self.watched = Some(WatchState { events, folders, singles, looked_at: Instant::now() }),
            Err(error) => tracing::debug!(%error, "definitions are not watched, but looked at each time"),
        }
    }
}

impl WatchState {
    /// Whether these folders are the watched ones.
    fn covers(&self, folders: &[PathState]) -> bool {
        let is_same = |(one, other): (&PathState, &PathState)| match (&one.file, &other.file) {
            (Some(one), Some(other)) => one.is_of_same_file(other),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        self.folders.len() == folders.len() && self.folders.iter().zip(folders).all(is_same)
    }

    /// Takes all queued events. Returns whether one is about a definition file.
    fn has_events(&self) -> bool {
        let mut is_changed = false;
        for _ in 0..MAX_READS {
            match self.events.read_events() {
                Ok(events) => is_changed |= events.iter().any(concerns_definitions),
                Err(Errno::EAGAIN) => return is_changed,
                Err(Errno::EINTR) => {}
                Err(_) => return true,
            }
        }
        true
    }
}

impl PathState {
    fn of(path: &Path) -> Self {
        let distrust = trust::check(path).err().filter(trust::Distrust::is_writable_by_others);
        Self { file: FileState::at(path), distrust: distrust.map(|distrust| distrust.to_string()) }
    }
}

/// Whether an event is about a definition file, a program or a manifest, or about the folder or the queue itself.
fn concerns_definitions(event: &InotifyEvent) -> bool {
    event.name.as_ref().is_none_or(|name| {
        let path = Path::new(name);
        is_definition_file(path) || is_script_file(path) || name == MANIFEST
    })
}

/// Watches the folders that exist. The others are looked at each time.
fn watch(folders: &[&Path]) -> io::Result<Inotify> {
    let events = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
    let mask = AddWatchFlags::IN_ONLYDIR
        | AddWatchFlags::IN_MODIFY
        | AddWatchFlags::IN_CLOSE_WRITE
        | AddWatchFlags::IN_ATTRIB
        | AddWatchFlags::IN_CREATE
        | AddWatchFlags::IN_DELETE
        | AddWatchFlags::IN_MOVE;
    for folder in folders.iter().copied().filter(|folder| folder.is_dir()) {
        let kind = statfs::statfs(folder)?.filesystem_type();
        if !LOCAL.contains(&kind) {
            let message = format!("another machine may change `{}`", folder.display());
            return Err(io::Error::new(io::ErrorKind::Unsupported, message));
        }
        events.add_watch(folder, mask)?;
    }
    Ok(events)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use ground::config::Config;
    use tempfile::TempDir;

    use super::*;

    /// A folder `subtools` of the search path, and one that is not.
    struct Place(TempDir);

    impl Place {
        fn new() -> Self {
            let place = Self(tempfile::tempdir().expect("a folder"));
            for folder in ["subtools", "elsewhere"] {
                fs::create_dir(place.at(folder)).expect("created");
            }
            place.write("subtools/a.json", "{}");
            place.write("elsewhere/linked.json", "{}");
            place
        }

        fn at(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn write(&self, name: &str, text: &str) {
            fs::write(self.at(name), text).expect("written");
        }

        fn rename(&self, from: &str, to: &str) {
            fs::rename(self.at(from), self.at(to)).expect("renamed");
        }

        fn set_mode(&self, name: &str, mode: u32) {
            fs::set_permissions(self.at(name), fs::Permissions::from_mode(mode)).expect("set");
        }

        fn sources(&self) -> Sources {
            Sources::new(&Config::default(), self.0.path(), None)
        }
    }

    type Change = fn(&Place);

    #[test]
    fn every_change_of_a_definition_file_is_noticed_at_once_and_only_once() {
        let changes: [(&str, Change); 21] = [
            ("written in place", |place| place.write("subtools/a.json", "{ }")),
            ("added", |place| place.write("subtools/b.json", "{}")),
            ("replaced", |place| place.rename("elsewhere/linked.json", "subtools/a.json")),
            ("removed", |place| fs::remove_file(place.at("subtools/b.json")).expect("removed")),
            ("a program", |place| place.write("subtools/a.js", "return 1")),
            ("another program", |place| place.write("subtools/a.js", "return 2")),
            ("the mode of a file", |place| place.set_mode("subtools/a.json", 0o666)),
            ("the mode of the folder", |place| place.set_mode("subtools", 0o777)),
            ("the mode of a folder above", |place| place.set_mode("", 0o777)),
            ("the folder above as before", |place| place.set_mode("", 0o700)),
            ("the folder as before", |place| place.set_mode("subtools", 0o755)),
            ("moved away", |place| place.rename("subtools", "other")),
            ("another folder", |place| place.rename("elsewhere", "subtools")),
            ("a file in it", |place| place.write("subtools/c.json", "{}")),
            ("no folder", |place| fs::remove_dir_all(place.at("subtools")).expect("removed")),
            ("a link to a folder", |place| symlink("other", place.at("subtools")).expect("linked")),
            ("a file behind it", |place| place.write("other/a.json", "{  }")),
            ("a link to a file", |place| {
                place.write("target.json", "{}");
                symlink("../target.json", place.at("other/link.json")).expect("linked");
            }),
            ("the target of a link", |place| place.write("target.json", "{ }")),
            ("the mode of the target", |place| place.set_mode("target.json", 0o666)),
            ("the target as before", |place| place.set_mode("target.json", 0o644)),
        ];
        let place = Place::new();
        let sources = place.sources();
        let mut watch = SourcesWatch::new(&sources);
        for (what, change) in changes {
            assert!(watch.watched.is_some() && !watch.may_have_changed(&sources), "before: {what}");
            change(&place);
            assert!(watch.may_have_changed(&sources), "{what}");
            watch.restart(&sources);
        }
        assert!(!watch.may_have_changed(&sources));
    }

    #[test]
    fn a_change_while_the_watch_starts_again_is_noticed() {
        let place = Place::new();
        let sources = place.sources();
        let mut watch = SourcesWatch::new(&sources);
        let looked_at = sources.stamp();
        place.write("subtools/a.json", "{ }");
        assert!(watch.may_have_changed(&sources));
        watch.restart(&sources);
        place.write("subtools/a.json", "{  }");
        assert_ne!(sources.stamp(), looked_at);
        assert!(watch.may_have_changed(&sources), "at worst, the files are looked at once more");
    }

    #[test]
    fn other_files_in_the_folder_are_no_change_of_definitions() {
        let place = Place::new();
        place.write("subtools/notes.txt", "1");
        let sources = place.sources();
        let watch = SourcesWatch::new(&sources);
        place.write("subtools/notes.txt", "2");
        assert!(!watch.may_have_changed(&sources));
    }

    #[test]
    fn without_events_every_file_is_looked_at_each_time() {
        let place = Place::new();
        // The kernel says nothing about changes in this file system.
        symlink("/proc/self", place.at("proc")).expect("linked");
        let named = std::env::join_paths([place.at("subtools"), place.at("proc")]).expect("paths");
        let sources = Sources::new(&Config::default(), place.0.path(), Some(&named));
        let watch = SourcesWatch::new(&sources);
        assert!(watch.watched.is_none() && watch.may_have_changed(&sources));
        for number in 0..=MAX_SINGLE_FILES {
            symlink("../elsewhere/linked.json", place.at(&format!("subtools/link{number}.json"))).expect("linked");
            place.write(&format!("elsewhere/{number}.json"), "{}");
            let link = place.at(&format!("subtools/other{number}.json"));
            symlink(format!("../elsewhere/{number}.json"), link).expect("linked");
        }
        let sources = place.sources();
        let watch = SourcesWatch::new(&sources);
        assert!(watch.watched.is_none() && watch.may_have_changed(&sources), "too many links");
    }
}
