//! When to look into the inbox.
//!
//! A file event is a nudge that may be missed; the directory is the truth. So the inbox is looked
//! at after every event, and now and then without one.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use notify::RecommendedWatcher;
use protocol::mailbox::watch::watch_folder;

/// How long a missed event can go unnoticed: a full queue is reported, but an odd file system says
/// nothing, and neither does anybody when the whole mailbox is moved away. One look costs about
/// ten microseconds, so that this is no load.
pub(super) const SAFETY: Duration = Duration::from_secs(5);
/// Without events: the shortest and the longest pause between two looks.
const POLLING: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));

/// Tells when something may lie in the inbox.
pub(super) struct InboxWatch {
    /// `None` where the file system gives no events.
    watcher: Option<RecommendedWatcher>,
    /// Whether a look was asked for and did not begin yet: events come in swarms.
    asked: Arc<AtomicBool>,
}

impl InboxWatch {
    /// Calls `nudge` when something lands in `inbox`, once for each [`InboxWatch::begin_look`].
    pub(super) fn new(inbox: &Path, nudge: impl Fn() + Send + 'static) -> Self {
        let asked = Arc::new(AtomicBool::new(false));
        let to_ask = Arc::clone(&asked);
        let handler = move |event: notify::Result<notify::Event>| {
            // An error may stand for any event.
            if event.as_ref().map_or(true, concerns_requests) && !to_ask.swap(true, Ordering::AcqRel) {
                nudge();
            }
        };
        let watcher = watch_folder(inbox, handler);
        let watcher = watcher.inspect_err(|error| tracing::warn!(%error, "no file events: the inbox is polled")).ok();
        Self { watcher, asked }
    }

    /// Called before the inbox is read: what lands from now on nudges anew.
    pub(super) fn begin_look(&self) {
        self.asked.store(false, Ordering::Release);
    }

    /// The longest that may pass until the next look, when nothing has happened for `quiet`.
    pub(super) fn pause(&self, quiet: Duration) -> Duration {
        if self.watcher.is_some() { SAFETY } else { polling_pause(quiet) }
    }
}

/// A tenth of the quiet before: whoever comes waits at most a tenth longer than he was away, and
/// one look a second is no load.
fn polling_pause(quiet: Duration) -> Duration {
    (quiet / 10).clamp(POLLING.0, POLLING.1)
}

/// A request's temporary name is of no interest yet.
fn concerns_requests(event: &notify::Event) -> bool {
    let is_hidden =
        |path: &std::path::PathBuf| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    event.need_rescan() || event.paths.is_empty() || !event.paths.iter().all(is_hidden)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    const PATIENCE: Duration = Duration::from_secs(30);

    #[test]
    fn polling_is_fast_after_activity_and_slow_when_quiet() {
        assert_eq!(polling_pause(Duration::ZERO), Duration::from_millis(5));
        assert_eq!(polling_pause(Duration::from_millis(500)), Duration::from_millis(50));
        assert_eq!(polling_pause(Duration::from_hours(1)), Duration::from_secs(1));
    }

    #[test]
    fn a_request_nudges_and_looking_does_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let (sender, nudges) = channel();
        let watch = InboxWatch::new(folder.path(), move || sender.send(()).expect("the test listens"));
        let put = |name: &str| {
            let hidden = folder.path().join(format!(".{name}"));
            std::fs::write(&hidden, "x").expect("written");
            std::fs::rename(hidden, folder.path().join(name)).expect("moved there");
        };
        put("first");
        nudges.recv_timeout(PATIENCE).expect("the first file nudges");
        watch.begin_look();
        for _ in 0..100 {
            assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 1);
        }
        put("second");
        nudges.recv_timeout(PATIENCE).expect("the second file nudges");
        put("third");
        watch.begin_look();
        put("fourth");
        nudges.recv_timeout(PATIENCE).expect("what comes after the look began nudges");
    }
}
