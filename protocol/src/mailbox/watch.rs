//! File events of a mailbox folder.
//!
//! An event is a hint that may be missed; the folder is the truth. Callers look once after the watch is
//! set up, after every event, and now and then without one.

use std::path::Path;

use notify::{EventHandler, EventKindMask, RecommendedWatcher, RecursiveMode, Watcher as _};

/// Calls `handler` whenever a file appears in `folder`, until the watcher is dropped.
///
/// Watches creations and renames only, which covers every write of ours: a file that is renamed into the
/// folder counts as created. Opening and reading a file are events too; with those, each look at the
/// folder would cause the next one.
pub fn watch_folder(folder: &Path, handler: impl EventHandler) -> notify::Result<RecommendedWatcher> {
    let config = notify::Config::default().with_event_kinds(EventKindMask::CREATE | EventKindMask::MODIFY_NAME);
    let mut watcher = RecommendedWatcher::new(handler, config)?;
    watcher.watch(folder, RecursiveMode::NonRecursive)?;
    Ok(watcher)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    #[test]
    fn reading_the_folder_causes_no_events() {
        let folder = tempfile::tempdir().expect("failed to create a temporary folder");
        let (sender, events) = channel();
        let _watcher = watch_folder(folder.path(), sender).expect("failed to watch the folder");
        for _ in 0..10 {
            assert_eq!(fs::read_dir(folder.path()).expect("failed to read the folder").count(), 0);
        }
        fs::write(folder.path().join("mark"), "x").expect("failed to write the file");
        let first = events.recv_timeout(Duration::from_secs(30)).expect("no event").expect("the watch failed");
        assert_eq!(first.paths, [folder.path().join("mark")], "events come in order, so this is the first");
    }
}
