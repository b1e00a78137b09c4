//! When to look into the inbox.
//!
//! File events may be missed; the folder is the truth. So the daemon looks after every event, and from time to time
//! without one.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use notify::RecommendedWatcher;
use protocol::mailbox::watch::watch_folder;

/// The longest pause between two looks. Some file systems lose events without an error, and moving the whole mailbox
/// away causes none. A look takes about ten microseconds, so this costs nothing.
pub(super) const MAX_PAUSE: Duration = Duration::from_secs(5);
/// The shortest and the longest pause between two looks without file events.
const MIN_POLL_PAUSE: Duration = Duration::from_millis(5);
const MAX_POLL_PAUSE: Duration = Duration::from_secs(1);

/// Reports that requests may have arrived in the inbox.
pub(super) struct InboxWatch {
    /// `None` if the file system reports no events.
    watcher: Option<RecommendedWatcher>,
    /// Whether a look was requested that has not begun. Events arrive in bursts, and one look covers them all.
    is_requested: Arc<AtomicBool>,
}

impl InboxWatch {
    /// Calls `on_arrival` when a request arrives in `inbox`, at most once between two [`InboxWatch::begin_look`].
    pub(super) fn new(inbox: &Path, on_arrival: impl Fn() + Send + 'static) -> Self {
        let is_requested = Arc::new(AtomicBool::new(false));
        let requested = Arc::clone(&is_requested);
        let handler = move |event: notify::Result<notify::Event>| {
            // An error may hide any event.
            if event.as_ref().map_or(true, concerns_requests) && !requested.swap(true, Ordering::AcqRel) {
                on_arrival();
            }
        };
        let watcher = watch_folder(inbox, handler);
        let watcher = watcher.inspect_err(|error| tracing::warn!(%error, "no file events: the inbox is polled")).ok();
        Self { watcher, is_requested }
    }

    /// Call this before reading the inbox: requests that arrive from now on are reported again.
    pub(super) fn begin_look(&self) {
        self.is_requested.store(false, Ordering::Release);
    }

    /// How long to wait until the next look, if nothing has happened for `quiet`.
    pub(super) fn pause(&self, quiet: Duration) -> Duration {
        if self.watcher.is_some() { MAX_PAUSE } else { poll_pause(quiet) }
    }
}

/// Calls `on_change` when `file` changes, whichever way an editor writes it. Returns `None` if the file system reports
/// no events: then the file is looked at in every step.
pub(super) fn watch_file(file: &Path, on_change: impl Fn() + Send + 'static) -> Option<RecommendedWatcher> {
    let name = file.file_name()?.to_owned();
    let concerns_file = move |event: &notify::Event| {
        event.need_rescan() || event.paths.iter().any(|path| path.file_name() == Some(&name))
    };
    let handler = move |event: notify::Result<notify::Event>| {
        if event.as_ref().map_or(true, &concerns_file) {
            on_change();
        }
    };
    watch_folder(file.parent()?, handler)
        .inspect_err(|error| tracing::debug!(%error, "the configuration is not watched"))
        .ok()
}

/// A tenth of the quiet time before, so a caller waits little compared with its own pause between requests.
fn poll_pause(quiet: Duration) -> Duration {
    (quiet / 10).clamp(MIN_POLL_PAUSE, MAX_POLL_PAUSE)
}

/// Whether an event is about more than temporary names: a request is renamed when it is complete.
fn concerns_requests(event: &notify::Event) -> bool {
    let is_hidden =
        |path: &std::path::PathBuf| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    event.need_rescan() || event.paths.is_empty() || !event.paths.iter().all(is_hidden)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    const TIMEOUT: Duration = Duration::from_secs(30);

    #[test]
    fn polling_is_fast_after_activity_and_slow_when_quiet() {
        assert_eq!(poll_pause(Duration::ZERO), Duration::from_millis(5));
        assert_eq!(poll_pause(Duration::from_millis(500)), Duration::from_millis(50));
        assert_eq!(poll_pause(Duration::from_hours(1)), Duration::from_secs(1));
    }

    #[test]
    fn a_request_is_reported_and_looking_is_not() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (sender, arrivals) = channel();
        let watch = InboxWatch::new(folder.path(), move || sender.send(()).expect("the test receives"));
        let put = |name: &str| {
            let hidden = folder.path().join(format!(".{name}"));
            std::fs::write(&hidden, "x").expect("written");
            std::fs::rename(hidden, folder.path().join(name)).expect("renamed");
        };
        put("first");
        arrivals.recv_timeout(TIMEOUT).expect("the first file is reported");
        watch.begin_look();
        for _ in 0..100 {
            assert_eq!(std::fs::read_dir(folder.path()).expect("readable").count(), 1);
        }
        put("second");
        arrivals.recv_timeout(TIMEOUT).expect("the second file is reported");
        put("third");
        watch.begin_look();
        put("fourth");
        arrivals.recv_timeout(TIMEOUT).expect("a file that arrives after the look began is reported");
    }
}
