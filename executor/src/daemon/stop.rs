//! The end of an executor: asked for by a signal, and carried out in order.

use std::io;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use nix::libc;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

use super::{Daemon, DaemonError, DaemonEvent};
use crate::dispatcher::Event;

/// How long an interrupted attempt may take to report: a program has two seconds to end when it is
/// asked to, and two more to die when it is not asked any more.
pub(super) const LAST_WORD: Duration = Duration::from_secs(5);

/// A file that may grow no further is an error for who writes it, and not the end of the process.
pub(super) fn outlive_file_limits(runtime: &Runtime) -> io::Result<()> {
    let _inside = runtime.enter();
    // Not ignored but heard, which programs that we start do not inherit.
    signal(SignalKind::from_raw(libc::SIGXFSZ)).map(drop)
}

impl Daemon {
    /// SIGTERM and SIGINT ask for the end; asked again, it comes without the grace.
    pub(super) fn listen_for_stop(&self) -> io::Result<()> {
        let _inside = self.runtime.enter();
        let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let (wake, ended) = (self.wake.clone(), self.ended.clone());
        self.tracker.spawn_on(
            async move {
                loop {
                    tokio::select! {
                        () = ended.cancelled() => return,
                        _ = term.recv() => {}
                        _ = int.recv() => {}
                    }
                    if wake.send(DaemonEvent::Stop).is_err() {
                        return;
                    }
                }
            },
            self.runtime.handle(),
        );
        Ok(())
    }

    /// Nothing new starts; what runs gets its grace, then is interrupted and reports.
    ///
    /// An attempt that does not even report stays recorded as running: the next executor repeats it
    /// or ends it as unknown.
    pub(super) fn stop(&mut self, woken: &Receiver<DaemonEvent>, grace: Duration) -> Result<(), DaemonError> {
        self.turn(vec![Event::Drain], Vec::new())?;
        let mut deadline = Instant::now() + grace;
        let mut interrupted = false;
        while self.dispatcher.running() > 0 {
            self.catch_up_record()?;
            let patience = deadline.saturating_duration_since(Instant::now());
            match woken.recv_timeout(patience.min(self.patience_with_record())) {
                Ok(DaemonEvent::Finished(finished)) => self.turn(vec![Event::AttemptFinished(finished)], Vec::new())?,
                // Nobody hears a human any more: what they say is said again to the next executor.
                Ok(DaemonEvent::Look | DaemonEvent::Human(_) | DaemonEvent::Previewed(_)) => {}
                Ok(DaemonEvent::Told(hooks_delivered)) => self.hooks_delivered(vec![*hooks_delivered])?,
                Ok(DaemonEvent::Stop) if !interrupted => deadline = Instant::now(),
                Ok(DaemonEvent::Stop) => {}
                Err(_) if Instant::now() < deadline => {}
                Err(_) if interrupted => {
                    tracing::warn!(running = self.dispatcher.running(), "attempts did not report their end");
                    break;
                }
                Err(_) => {
                    interrupted = true;
                    deadline = Instant::now() + LAST_WORD;
                    self.turn(vec![Event::Interrupt], Vec::new())?;
                }
            }
        }
        self.last_try_to_record()
    }
}
