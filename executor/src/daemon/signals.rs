//! The signals that the executor handles.

use std::io;

use nix::libc;
use tokio::signal::unix::{SignalKind, signal};

use super::background::{Background, DaemonEvent};

/// Makes writing beyond a file size limit an error of the write instead of the end of the process.
pub(super) fn survive_file_size_limits(background: &Background) -> io::Result<()> {
    let _runtime = background.enter();
    // Handled instead of ignored: child processes inherit ignored signals.
    signal(SignalKind::from_raw(libc::SIGXFSZ)).map(drop)
}

/// Reports SIGTERM and SIGINT as [`DaemonEvent::StopRequested`].
pub(super) fn listen_for_stop(background: &Background) -> io::Result<()> {
    let _runtime = background.enter();
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let events = background.clone();
    background.spawn(async move {
        loop {
            tokio::select! {
                () = events.executor_ended().cancelled() => return,
                _ = term.recv() => {}
                _ = int.recv() => {}
            }
            if !events.send(DaemonEvent::StopRequested) {
                return;
            }
        }
    });
    Ok(())
}
