//! Runs one program and its process group.
//!
//! The program leads its own process group, and the group never outlives [`run`], whichever way that ends. What it
//! moved to another session is killed after it (`ground/src/base/children.rs`).
//!
//! After the program has exited, its streams are read to their end, but for at most [`DRAIN_TIMEOUT`]: everything
//! that the program itself wrote is in the pipes by then, and only a descendant can keep them open longer.

use std::future;
use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use ground::base::children;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::held::HeldFiles;

/// How long a program may take to exit after SIGTERM, before it gets SIGKILL.
pub(crate) const TERM_TIMEOUT: Duration = Duration::from_secs(2);

/// How long to wait for the exit after SIGKILL: a program may hang in the kernel.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);

/// How long to read the streams after the program has exited.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(200);

/// How a program ended, and its output.
#[derive(Debug)]
pub(crate) struct ProgramExit {
    /// `None` if the program did not exit after SIGKILL, or if its status could not be read.
    pub(crate) status: Option<ExitStatus>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    /// Why the runner stopped the program, if it did.
    pub(crate) stopped: Option<StopCause>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopCause {
    Cancelled,
    /// It printed more than the limit to the stream of this name.
    TooMuchOutput(&'static str),
}

/// Starts `command` and waits until it and its group have ended. Fails only if the program cannot be started. The
/// files in `held` are as they are until it has started.
pub(crate) async fn run(
    mut command: Command,
    held: HeldFiles,
    stdin: Option<String>,
    max_bytes: u64,
    cancel: &CancellationToken,
) -> io::Result<ProgramExit> {
    let mark = uuid::Uuid::now_v7().simple().to_string();
    let (mut child, registered) =
        children::spawn_program(command.process_group(0).kill_on_drop(true), &mark, held.passed())?;
    // Ends the lease on the program's file: the kernel lets no one write to a file that is executed.
    drop(held);
    let group = ProcessGroup::led_by(&child)?;
    let mut stdout = StreamCapture::new(child.stdout.take(), max_bytes);
    let mut stderr = StreamCapture::new(child.stderr.take(), max_bytes);
    let writing = write_stdin(child.stdin.take(), stdin);
    tokio::pin!(writing);
    let mut written = false;
    let mut watch = GroupWatch { phase: GroupPhase::Running, status: None, stopped: None };

    while !watch.is_over(stdout.is_open() || stderr.is_open()) {
        // The order matters: a flood of output must not delay an exit or a cancellation, and output that is
        // already in the pipes is read even if the deadline has passed.
        let event = tokio::select! {
            biased;
            () = cancel.cancelled(), if watch.stopped.is_none() && watch.status.is_none() => GroupEvent::Cancelled,
            status = child.wait(), if watch.status.is_none() => status.map_or(GroupEvent::StatusLost, GroupEvent::Exited),
            full = stdout.read(), if stdout.is_open() => if full { GroupEvent::Full("stdout") } else { GroupEvent::Read },
            full = stderr.read(), if stderr.is_open() => if full { GroupEvent::Full("stderr") } else { GroupEvent::Read },
            () = &mut writing, if !written => GroupEvent::StdinWritten,
            () = until(watch.deadline()) => GroupEvent::Deadline,
        };
        written |= event == GroupEvent::StdinWritten;
        if let Some(signal) = watch.handle(&event, Instant::now()) {
            group.send(signal);
        }
    }
    // What the program moved to another session becomes a child of the executor when its parent is gone.
    drop((group, registered));
    children::end_leftovers(&mark).await;
    Ok(ProgramExit { status: watch.status, stdout: stdout.bytes, stderr: stderr.bytes, stopped: watch.stopped })
}

#[derive(Debug, PartialEq, Eq)]
enum GroupEvent {
    Exited(ExitStatus),
    /// Waiting failed, because something else already reaped the process.
    StatusLost,
    Read,
    /// The stream of this name exceeded the limit.
    Full(&'static str),
    StdinWritten,
    Cancelled,
    Deadline,
}

enum GroupPhase {
    Running,
    /// SIGTERM was sent; SIGKILL follows at the deadline.
    Terminating(Instant),
    /// SIGKILL was sent.
    Killed(Instant),
    /// The program has exited, and its streams are read to their end.
    Draining(Instant),
    Over,
}

struct GroupWatch {
    phase: GroupPhase,
    status: Option<ExitStatus>,
    stopped: Option<StopCause>,
}

impl GroupWatch {
    /// Handles one event and returns the signal to send to the group, if any.
    fn handle(&mut self, event: &GroupEvent, now: Instant) -> Option<Signal> {
        match *event {
            GroupEvent::Read | GroupEvent::StdinWritten => None,
            GroupEvent::StatusLost => {
                self.phase = GroupPhase::Over;
                None
            }
            GroupEvent::Exited(status) => {
                self.status = Some(status);
                self.phase = GroupPhase::Draining(now + DRAIN_TIMEOUT);
                None
            }
            GroupEvent::Full(stream) => self.stop(StopCause::TooMuchOutput(stream), now),
            GroupEvent::Cancelled => self.stop(StopCause::Cancelled, now),
            GroupEvent::Deadline => match self.phase {
                GroupPhase::Terminating(_) => {
                    self.phase = GroupPhase::Killed(now + KILL_TIMEOUT);
                    Some(Signal::SIGKILL)
                }
                GroupPhase::Running | GroupPhase::Killed(_) | GroupPhase::Draining(_) | GroupPhase::Over => {
                    self.phase = GroupPhase::Over;
                    None
                }
            },
        }
    }

    fn stop(&mut self, cause: StopCause, now: Instant) -> Option<Signal> {
        self.stopped = self.stopped.or(Some(cause));
        if !matches!(self.phase, GroupPhase::Running) {
            return None;
        }
        self.phase = GroupPhase::Terminating(now + TERM_TIMEOUT);
        Some(Signal::SIGTERM)
    }

    fn deadline(&self) -> Option<Instant> {
        match self.phase {
            GroupPhase::Running | GroupPhase::Over => None,
            GroupPhase::Terminating(at) | GroupPhase::Killed(at) | GroupPhase::Draining(at) => Some(at),
        }
    }

    fn is_over(&self, streams_open: bool) -> bool {
        match self.phase {
            GroupPhase::Over => true,
            GroupPhase::Draining(_) => !streams_open,
            GroupPhase::Running | GroupPhase::Terminating(_) | GroupPhase::Killed(_) => false,
        }
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(at) => sleep_until(at).await,
        None => future::pending().await,
    }
}

/// Writes `text` and closes the stream. A program that does not read all of it is not an error.
async fn write_stdin(stdin: Option<ChildStdin>, text: Option<String>) {
    if let (Some(mut stdin), Some(text)) = (stdin, text)
        && let Err(error) = stdin.write_all(text.as_bytes()).await
    {
        tracing::debug!(%error, "a program did not read all of its standard input");
    }
}

/// A process group that is killed on drop.
#[derive(Debug)]
pub(crate) struct ProcessGroup(Pid);

impl ProcessGroup {
    pub(crate) fn led_by(child: &Child) -> io::Result<Self> {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        id.map(|id| Self(Pid::from_raw(id))).ok_or_else(|| io::Error::other("the program has no process id"))
    }

    pub(crate) fn send(&self, signal: Signal) {
        // ESRCH: the group has no members left.
        if let Err(error) = killpg(self.0, signal)
            && error != nix::Error::ESRCH
        {
            tracing::warn!(%error, group = self.0.as_raw(), %signal, "failed to signal a process group");
        }
    }
}

impl Drop for ProcessGroup {
    /// The kernel does not reuse the group's id while a member lives. Without a member, this runs at most
    /// [`DRAIN_TIMEOUT`] after the leader's exit, which is too short for process ids to wrap around.
    fn drop(&mut self) {
        self.send(Signal::SIGKILL);
    }
}

/// Collects the bytes of one stream up to a limit.
struct StreamCapture<R> {
    stream: Option<R>,
    bytes: Vec<u8>,
    max_bytes: usize,
}

impl<R: AsyncRead + Unpin> StreamCapture<R> {
    fn new(stream: Option<R>, max_bytes: u64) -> Self {
        Self { stream, bytes: Vec::new(), max_bytes: usize::try_from(max_bytes).unwrap_or(usize::MAX) }
    }

    fn is_open(&self) -> bool {
        self.stream.is_some()
    }

    /// Reads the available bytes; returns true once they exceed the limit. Cancel-safe.
    async fn read(&mut self) -> bool {
        let Some(stream) = &mut self.stream else { return false };
        let read = stream.read_buf(&mut self.bytes).await;
        if !matches!(read, Ok(1..)) {
            self.stream = None;
        }
        if self.bytes.len() <= self.max_bytes {
            return false;
        }
        self.bytes.truncate(self.max_bytes);
        self.stream = None;
        true
    }
}
