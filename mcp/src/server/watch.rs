//! Folders that change. An event is a hint that may be missed: those who wait also look now and then.

use std::path::PathBuf;
use std::time::Duration;

use notify::{EventKindMask, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::watch;

/// How often to look although the watch works: it may miss an event.
const RECHECK_INTERVAL: Duration = Duration::from_secs(5);
/// How often to look if there is no watch.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Watches folders as long as it exists.
#[derive(Debug)]
pub(super) struct FolderWatch {
    changes: watch::Sender<()>,
    /// `None` if the folders cannot be watched.
    watcher: Option<RecommendedWatcher>,
}

impl FolderWatch {
    /// Watches for files that appear and, with `contents`, for files that are written. A missing folder is not watched.
    pub(super) fn new(folders: &[PathBuf], contents: bool) -> Self {
        let changes = watch::Sender::new(());
        let sender = changes.clone();
        let mut kinds = EventKindMask::CREATE | EventKindMask::MODIFY_NAME;
        if contents {
            kinds |= EventKindMask::REMOVE | EventKindMask::MODIFY_DATA;
        }
        let config = notify::Config::default().with_event_kinds(kinds);
        let watcher = RecommendedWatcher::new(move |_| sender.send_replace(()), config);
        let watcher = watcher.and_then(|mut watcher| {
            for folder in folders.iter().filter(|folder| folder.exists()) {
                watcher.watch(folder, if contents { RecursiveMode::Recursive } else { RecursiveMode::NonRecursive })?;
            }
            Ok(watcher)
        });
        let watcher = watcher.inspect_err(|error| tracing::warn!(%error, "no file events: the files are polled")).ok();
        Self { changes, watcher }
    }

    /// Events from now on.
    pub(super) fn events(&self) -> FolderEvents {
        let interval = if self.watcher.is_some() { RECHECK_INTERVAL } else { POLL_INTERVAL };
        FolderEvents { receiver: self.changes.subscribe(), interval }
    }
}

#[derive(Debug)]
pub(super) struct FolderEvents {
    receiver: watch::Receiver<()>,
    interval: Duration,
}

impl FolderEvents {
    /// Waits until something may have changed since the last call. Cancel-safe.
    pub(super) async fn next(&mut self) {
        // An event, a timeout and the end of the watch mean the same: look again.
        if let Ok(Err(_)) = tokio::time::timeout(self.interval, self.receiver.changed()).await {
            tokio::time::sleep(self.interval).await;
        }
    }
}
