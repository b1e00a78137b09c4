//! The program of a server: started, watched, and ended as a whole group.

use std::collections::VecDeque;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use definition::run::mcp::McpServer;
use ground::base::children;
use ground::task::failure::Failure;
use nix::sys::signal::Signal;
use protocol::code::Code;
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::executed::{self, StartedFrom};
use crate::RunnerContext;
use crate::process::group::{ProcessGroup, TERM_TIMEOUT};

/// How much of what a program writes to standard error is kept.
const KEPT_STDERR_BYTES: usize = 4 << 10;
/// How long a program may take to exit after its standard input was closed, before it gets SIGTERM.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long to wait for the last words of a program that has exited.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(200);

/// A running program. Dropping it ends it in the background.
#[derive(Debug)]
pub(super) struct ServerProgram {
    pub(super) started_from: StartedFrom,
    stderr: Arc<Mutex<VecDeque<u8>>>,
    exit: watch::Receiver<Option<ExitReport>>,
    /// Ends the program when it is dropped.
    _stop: DropGuard,
}

/// What is known of a program that has exited.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExitReport(Option<ExitStatus>);

impl ServerProgram {
    /// Starts the program of `server`. What it prints and reads is returned beside it.
    pub(super) async fn start(
        server: &McpServer,
        context: &RunnerContext,
    ) -> Result<(Self, ChildStdout, ChildStdin), Failure> {
        let started_from = StartedFrom::read(server, context).await?;
        let call = executed::program_call_from(server, &started_from);
        let mut prepared =
            call.prepare(&context.secrets, &context.config.programs, Path::new(""), Vec::new(), None).await?;
        let mark = uuid::Uuid::now_v7().simple().to_string();
        let command = prepared.command.process_group(0).kill_on_drop(true);
        let (mut child, registered) =
            children::spawn_program(command, &mark, &[]).map_err(|error| call.cannot_start(&error))?;
        let group = ProcessGroup::led_by(&child).map_err(|error| call.cannot_start(&error))?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = (stdin, stdout, stderr) else {
            return Err(Failure::new(Code::Internal, "a program was started without its streams"));
        };
        let kept = Arc::<Mutex<VecDeque<u8>>>::default();
        let draining = context.mcp.tracker().spawn(drain(stderr, Arc::clone(&kept)));
        let (exited, exit) = watch::channel(None);
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        context.mcp.tracker().spawn(async move {
            let status = supervise(child, &group, stopped).await;
            // What it left in its group and elsewhere.
            drop((group, registered));
            children::end_leftovers(&mark).await;
            drop(tokio::time::timeout(DRAIN_TIMEOUT, draining).await);
            exited.send_replace(Some(ExitReport(status)));
        });
        Ok((Self { started_from, stderr: kept, exit, _stop: stop.drop_guard() }, stdout, stdin))
    }

    /// Waits until the program has exited, for a moment: one that closed its output is about to.
    pub(super) async fn exit_soon(&self) -> Option<ExitReport> {
        let mut exit = self.exit.clone();
        let exited = exit.wait_for(Option::is_some);
        tokio::time::timeout(CLOSE_TIMEOUT, exited).await.ok()?.ok().and_then(|report| *report)
    }

    /// The end of what it wrote to standard error.
    pub(super) fn last_words(&self) -> String {
        let mut kept = self.stderr.lock().unwrap_or_else(PoisonError::into_inner).clone();
        String::from_utf8_lossy(kept.make_contiguous()).trim().to_owned()
    }

    /// A receiver that is told when the program has exited and nothing of it is left.
    pub(super) fn gone(&self) -> watch::Receiver<Option<ExitReport>> {
        self.exit.clone()
    }
}

impl std::fmt::Display for ExitReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(status) => write!(f, "it ended with {status}"),
            None => f.write_str("it ended"),
        }
    }
}

/// Waits until the program exits, or ends it once nothing needs it anymore.
async fn supervise(mut child: Child, group: &ProcessGroup, stopped: CancellationToken) -> Option<ExitStatus> {
    tokio::select! {
        status = child.wait() => return status.ok(),
        () = stopped.cancelled() => {}
    }
    // Its standard input is closed by now: the polite way to ask a server to end.
    for (timeout, signal) in [(CLOSE_TIMEOUT, Signal::SIGTERM), (TERM_TIMEOUT, Signal::SIGKILL)] {
        if let Ok(status) = tokio::time::timeout(timeout, child.wait()).await {
            return status.ok();
        }
        group.send(signal);
    }
    tokio::time::timeout(TERM_TIMEOUT, child.wait()).await.ok()?.ok()
}

/// Reads standard error to its end, so that the program never waits for a reader, and keeps the end of it.
async fn drain(mut stderr: ChildStderr, kept: Arc<Mutex<VecDeque<u8>>>) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(read @ 1..) = stderr.read(&mut buffer).await {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(&buffer[..read]);
        let excess = kept.len().saturating_sub(KEPT_STDERR_BYTES);
        kept.drain(..excess);
    }
}
