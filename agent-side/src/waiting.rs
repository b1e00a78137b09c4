//! Waits until tasks are final, or until waiting has no point.
//!
//! Waiting is never silent: after a moment the command says on standard error what it waits for, so that the ids are
//! known even if the caller kills it. A task that waits for a human who is not there is not waited for: only the
//! caller can tell the human. Nor is one that is scheduled for a time after the wait.

use std::time::{Duration, Instant};

use protocol::caller::Caller;
use protocol::mailbox::Mailbox;
use protocol::mailbox::publication::PublicationWatch;
use protocol::mailbox::watch::watch_folder;
use protocol::schedule;
use protocol::task::TaskId;

use crate::backoff::Backoff;
use crate::context::Context;
use crate::error::Error;
use crate::launch::Launch;
use crate::result::ResultFile;

/// How long to poll before a file watch is set up, which is not worth it for tasks that end soon.
pub const WATCH_AFTER: Duration = Duration::from_millis(50);
/// Pause between two reads with a file watch, which may miss events.
const MAX_WATCH_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause between two reads without a file watch.
const MAX_POLL_PAUSE: Duration = Duration::from_millis(50);
/// How long to wait without a word. A note about a task that ends sooner would only cost the model tokens, and no client
/// kills a command this early.
const MAX_SILENCE: Duration = Duration::from_millis(200);

/// When to stop waiting for several tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitMode {
    All,
    Any,
}

impl WaitMode {
    /// Whether there is nothing left to wait for: the tasks are final, wait for a human who is not there, or start only
    /// when the wait is over.
    fn is_done(self, files: &[ResultFile], left: impl Fn() -> Duration) -> bool {
        let is_stuck =
            |file: &ResultFile| file.is_final() || file.waits_for_absent_human() || starts_after(file, &left);
        files.iter().all(is_stuck) || (self == Self::Any && files.iter().any(ResultFile::is_final))
    }
}

/// Waits for tasks at most for `limit` (by default the configured one); returns their result files in order.
pub fn wait_for(
    ids: &[TaskId],
    mode: WaitMode,
    mut limit: Option<Duration>,
    mailbox: &Mailbox,
    context: &Context,
) -> Result<Vec<ResultFile>, Error> {
    let started = Instant::now();
    let mut launch = Launch::new(&context.paths, mailbox);
    let mut announced = Vec::new();
    wait_until(ids, mailbox, &context.caller, |files, waited| {
        let left = || limit.unwrap_or_else(|| configured_limit(mailbox)).saturating_sub(waited);
        if mode.is_done(files, left) || limit.is_some_and(|limit| limit <= waited) {
            return Ok(NextLook::Never);
        }
        if waited >= WATCH_AFTER {
            launch.ensure()?;
        }
        if waited < MAX_SILENCE {
            return Ok(NextLook::Until(started + limit.map_or(MAX_SILENCE, |limit| limit.min(MAX_SILENCE))));
        }
        let limit = *limit.get_or_insert_with(|| configured_limit(mailbox));
        // Once at the beginning, and once more for a task that needs the human only later.
        let asked = files.iter().filter(|file| file.needs_human()).map(|file| file.id);
        let asked: Vec<_> = asked.filter(|id| !announced.contains(&Some(*id))).collect();
        if announced.is_empty() || !asked.is_empty() {
            context.output.note_while_waiting(&announcement(files, limit));
            announced.extend(asked.into_iter().map(Some).chain([None]));
        }
        Ok(NextLook::Until(started + limit))
    })
}

/// Whether the task is scheduled for a time that is more than `left` away.
pub fn starts_after(file: &ResultFile, left: impl Fn() -> Duration) -> bool {
    let at = file.field("run_at").as_str().filter(|_| !file.is_final());
    at.and_then(schedule::time_until).is_some_and(|away| away > left())
}

/// How long `wait` waits unless its caller says otherwise.
pub fn configured_limit(mailbox: &Mailbox) -> Duration {
    mailbox.settings().unwrap_or_default().wait.get()
}

/// What is waited for, how long, and what to do after that.
fn announcement(files: &[ResultFile], limit: Duration) -> String {
    let open: Vec<_> = files.iter().filter(|file| !file.is_final()).collect();
    let ids = open.iter().map(|file| file.id.to_string()).collect::<Vec<_>>().join(" ");
    let asked = open.iter().any(|file| file.needs_human());
    let human = if asked { ", since the user is asked on the page" } else { "" };
    format!(
        "waiting up to {}s{human}. The task goes on after that; do not run it again, but: agent-magic-tool wait {ids}",
        limit.as_secs_f64().ceil()
    )
}

/// What [`wait_until`] does after a look at the result files.
#[derive(Debug)]
pub enum NextLook {
    Never,
    /// At this time, or as soon as a file may have changed.
    Until(Instant),
}

/// Reads the result files again and again; returns them in order. `next_look` gets them and the time waited so far.
pub fn wait_until(
    ids: &[TaskId],
    mailbox: &Mailbox,
    caller: &Caller,
    mut next_look: impl FnMut(&[ResultFile], Duration) -> Result<NextLook, Error>,
) -> Result<Vec<ResultFile>, Error> {
    // Before the first read, so that no end is missed.
    let mut publications = PublicationWatch::new(mailbox);
    let mut files = ids.iter().map(|id| ResultFile::read(mailbox, *id, caller)).collect::<Result<Vec<_>, _>>()?;
    let mut backoff = Backoff::new(MAX_POLL_PAUSE);
    let mut watch = None;
    loop {
        let waited = backoff.waited();
        let NextLook::Until(deadline) = next_look(&files, waited)? else { return Ok(files) };
        if waited < WATCH_AFTER {
            backoff.pause_until_published(&mut publications, Some(deadline));
        } else {
            match &watch {
                // Reads the files once more before the first pause: a task may have ended before the watch was set up.
                None => watch = Some(ResultWatch::new(mailbox)),
                Some(Some(watch)) => watch.pause(deadline),
                Some(None) => backoff.pause(Some(deadline)),
            }
        }
        for file in files.iter_mut().filter(|file| !file.is_final()) {
            *file = ResultFile::read(mailbox, file.id, caller)?;
        }
    }
}

/// A watch on the results folder.
struct ResultWatch {
    events: std::sync::mpsc::Receiver<()>,
    _watcher: notify::RecommendedWatcher,
}

impl ResultWatch {
    /// `None` if the folder cannot be watched.
    fn new(mailbox: &Mailbox) -> Option<Self> {
        // One pending event is enough to read the files again.
        let (sender, events) = std::sync::mpsc::sync_channel(1);
        let handler = move |_| {
            // If the channel is full, an event is already pending.
            if sender.try_send(()).is_ok() {}
        };
        let watcher = watch_folder(&mailbox.results(), handler).ok()?;
        Some(Self { events, _watcher: watcher })
    }

    /// Waits for an event, at most until `deadline`.
    fn pause(&self, deadline: Instant) {
        let left = deadline.saturating_duration_since(Instant::now());
        // The caller reads the files again after an event, a timeout or the end of the watcher.
        if self.events.recv_timeout(left.min(MAX_WATCH_PAUSE)).is_ok() {}
    }
}
