//! The signals that the executor handles, and the watchdog that ends it if it does not stop.
//!
//! The watchdog is a thread of its own with its own runtime: it works whatever the executor's other threads do. It
//! reports the request to stop to the event loop. If that does not begin to stop, or does not end in time, it ends the
//! process. That is safe: the record survives it, as it survives a crash.

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ground::base::children;
use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::background::{Background, DaemonEvent};
use super::stop::INTERRUPT_TIMEOUT;

/// How long the event loop may take to begin to stop: a commit on a slow disk can take seconds.
const MAX_BEGINNING: Duration = Duration::from_secs(10);
/// How long it may take to end after running attempts were interrupted: they report, everything is recorded.
const MAX_ENDING: Duration = INTERRUPT_TIMEOUT.saturating_mul(2);
/// How long the last line of the log may take.
const MAX_LOGGING: Duration = Duration::from_millis(200);

/// Makes writing beyond a file size limit an error of the write instead of the end of the process.
pub(super) fn survive_file_size_limits(background: &Background) -> io::Result<()> {
    let _runtime = background.enter();
    // Handled instead of ignored: child processes inherit ignored signals.
    signal(SignalKind::from_raw(libc::SIGXFSZ)).map(drop)
}

/// What the event loop tells the watchdog.
#[derive(Debug, Clone, Default)]
pub(super) struct Watchdog {
    stopping: CancellationToken,
    grace: Arc<OnceLock<Duration>>,
    ended: CancellationToken,
}

impl Watchdog {
    /// Starts the thread, which reports SIGTERM and SIGINT as [`DaemonEvent::StopRequested`].
    pub(super) fn start(background: &Background) -> io::Result<Self> {
        let watchdog = Self::default();
        let (own, background) = (watchdog.clone(), background.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let signals = {
            let _runtime = runtime.enter();
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?)
        };
        std::thread::Builder::new().name("watchdog".to_owned()).spawn(move || {
            let (mut term, mut int) = signals;
            runtime.block_on(async {
                let mut deadline: Option<Deadline> = None;
                loop {
                    tokio::select! {
                        () = own.ended.cancelled() => return,
                        () = until(deadline) => return end_process(),
                        () = own.stopping.cancelled(), if deadline.is_some_and(Deadline::is_unanswered) => {
                            deadline = Some(Deadline::of_stopping(own.grace.get().copied().unwrap_or_default()));
                        }
                        _ = term.recv() => deadline = Some(Self::request(&background, deadline)),
                        _ = int.recv() => deadline = Some(Self::request(&background, deadline)),
                    }
                }
            });
        })?;
        Ok(watchdog)
    }

    /// Reports a request to stop. Returns when the process is ended if it goes on.
    fn request(background: &Background, deadline: Option<Deadline>) -> Deadline {
        if !background.send(DaemonEvent::StopRequested) {
            tracing::debug!("asked to stop after the event loop had ended");
        }
        match deadline {
            // A further request ends the grace period.
            Some(Deadline::Stopping(at)) => Deadline::Stopping(at.min(Instant::now() + MAX_ENDING)),
            Some(unanswered) => unanswered,
            None => Deadline::Unanswered(Instant::now() + MAX_BEGINNING),
        }
    }

    /// The executor begins to stop, and gives running attempts this long.
    pub(super) fn on_stopping(&self, grace: Duration) {
        self.grace.get_or_init(|| grace);
        self.stopping.cancel();
    }

    /// The executor has ended.
    pub(super) fn on_end(&self) {
        self.ended.cancel();
    }
}

/// When the watchdog ends the process.
#[derive(Debug, Clone, Copy)]
enum Deadline {
    /// The event loop has not begun to stop yet.
    Unanswered(Instant),
    Stopping(Instant),
}

impl Deadline {
    fn of_stopping(grace: Duration) -> Self {
        Self::Stopping(Instant::now() + grace + MAX_ENDING)
    }

    fn is_unanswered(self) -> bool {
        matches!(self, Self::Unanswered(_))
    }
}

async fn until(deadline: Option<Deadline>) {
    match deadline {
        Some(Deadline::Unanswered(at) | Deadline::Stopping(at)) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Ends this process and the programs that it runs.
fn end_process() {
    // In a thread, since another one may hold the log's lock for good.
    let logging = std::thread::spawn(|| tracing::error!("the executor did not stop in time: it is ended"));
    let logged = std::time::Instant::now();
    while !logging.is_finished() && logged.elapsed() < MAX_LOGGING {
        std::thread::park_timeout(Duration::from_millis(5));
    }
    children::kill_all();
    if let Err(error) = kill(Pid::this(), Signal::SIGKILL) {
        unreachable!("a process may end itself: {error}");
    }
}
