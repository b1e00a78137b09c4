//! Folders that change. An event is a hint that may be missed: those who wait also look now and then.

use std::path::PathBuf;
use std::time::Duration;

use notify::{EventKindMask, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::watch;

/// What is watched in folders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Watched {
    /// Files that appear, each as a whole, which are quickly read.
    Arrivals,
    /// Every change, also in folders below, after which much is read.
    Everything,
}

impl Watched {
    /// How often to look although the watch works: it may miss an event, or not be told of what matters as well.
    fn recheck_interval(self) -> Duration {
        match self {
            Self::Arrivals => Duration::from_secs(5),
            Self::Everything => Duration::from_mins(1),
        }
    }

    /// How often to look if there is no watch.
    fn poll_interval(self) -> Duration {
        match self {
            Self::Arrivals => Duration::from_millis(250),
            Self::Everything => Duration::from_secs(5),
        }
    }
}

/// Watches folders as long as it exists.
#[derive(Debug)]
pub(super) struct FolderWatch {
    changes: watch::Sender<()>,
    what: Watched,
    /// `None` if the folders cannot be watched.
    watcher: Option<RecommendedWatcher>,
}

impl FolderWatch {
    /// A missing folder is not watched.
    pub(super) fn new(folders: &[PathBuf], what: Watched) -> Self {
        let changes = watch::Sender::new(());
        let sender = changes.clone();
        let mut kinds = EventKindMask::CREATE | EventKindMask::MODIFY_NAME;
        let mut mode = RecursiveMode::NonRecursive;
        if what == Watched::Everything {
            mode = RecursiveMode::Recursive;
            kinds |= EventKindMask::REMOVE | EventKindMask::MODIFY_DATA;
        }
        let config = notify::Config::default().with_event_kinds(kinds);
        let watcher = RecommendedWatcher::new(move |_| sender.send_replace(()), config);
        let watcher = watcher.and_then(|mut watcher| {
            for folder in folders.iter().filter(|folder| folder.exists()) {
                watcher.watch(folder, mode)?;
            }
            Ok(watcher)
        });
        let watcher = watcher.inspect_err(|error| tracing::warn!(%error, "no file events: the files are polled")).ok();
        Self { changes, what, watcher }
    }

    /// Events from now on.
    pub(super) fn events(&self) -> FolderEvents {
        let is_watched = self.watcher.is_some();
        let interval = if is_watched { self.what.recheck_interval() } else { self.what.poll_interval() };
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
