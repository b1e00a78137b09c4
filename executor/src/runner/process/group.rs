//! The life of one program and of all that it starts.
//!
//! It leads a process group of its own, and the group never outlives [`run`], whichever way that
//! ends. What a program put into another session by itself is out of reach, but cannot hold us up.
//!
//! When the program has exited, its streams are read until their end, but for at most [`DRAIN`]: all
//! that it wrote itself is in the pipes by then, so longer waiting could only be for a descendant
//! that keeps them open.

use std::future;
use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// How long a program may take to end after SIGTERM, before SIGKILL.
const GRACE: Duration = Duration::from_secs(2);

/// How long after SIGKILL we wait for a program that the kernel does not let go.
const DEATH: Duration = Duration::from_secs(2);

/// How long the streams are read after the program's exit.
const DRAIN: Duration = Duration::from_millis(200);

/// What a program left.
#[derive(Debug)]
pub(in crate::runner) struct Ended {
    /// `None`: it did not even die of SIGKILL, or nobody can say how it ended.
    pub(in crate::runner) status: Option<ExitStatus>,
    pub(in crate::runner) stdout: Vec<u8>,
    pub(in crate::runner) stderr: Vec<u8>,
    /// Why we ended it, if we did.
    pub(in crate::runner) stopped: Option<Stopped>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::runner) enum Stopped {
    Cancelled,
    /// It printed more than the limit to the stream of this name.
    TooMuch(&'static str),
}

/// Starts `command` and stays with it until it and its group are gone. An error: it did not start.
pub(in crate::runner) async fn run(
    mut command: Command,
    stdin: Option<String>,
    max_bytes: u64,
    cancel: &CancellationToken,
) -> io::Result<Ended> {
    let mut child = command.process_group(0).kill_on_drop(true).spawn()?;
    let group = ProcessGroup::led_by(&child)?;
    let mut stdout = StreamCapture::new(child.stdout.take(), max_bytes);
    let mut stderr = StreamCapture::new(child.stderr.take(), max_bytes);
    let feeding = feed(child.stdin.take(), stdin);
    tokio::pin!(feeding);
    let mut fed = false;
    let mut watch = GroupWatch { phase: GroupPhase::Running, status: None, stopped: None };

    while !watch.is_over(stdout.is_open() || stderr.is_open()) {
        // In this order: an exit or a cancellation is not kept waiting by a flood, and what lies in
        // the pipes is read even if the deadline has passed in the meantime.
        let event = tokio::select! {
            biased;
            () = cancel.cancelled(), if watch.stopped.is_none() && watch.status.is_none() => GroupEvent::Cancelled,
            status = child.wait(), if watch.status.is_none() => status.map_or(GroupEvent::Lost, GroupEvent::Exited),
            full = stdout.read(), if stdout.is_open() => if full { GroupEvent::Full("stdout") } else { GroupEvent::Read },
            full = stderr.read(), if stderr.is_open() => if full { GroupEvent::Full("stderr") } else { GroupEvent::Read },
            () = &mut feeding, if !fed => GroupEvent::Fed,
            () = until(watch.deadline()) => GroupEvent::Deadline,
        };
        fed |= event == GroupEvent::Fed;
        if let Some(signal) = watch.handle(&event, Instant::now()) {
            group.send(signal);
        }
    }
    Ok(Ended { status: watch.status, stdout: stdout.bytes, stderr: stderr.bytes, stopped: watch.stopped })
}

#[derive(Debug, PartialEq, Eq)]
enum GroupEvent {
    Exited(ExitStatus),
    /// The kernel does not say how it ended: somebody else waited for it.
    Lost,
    Read,
    Full(&'static str),
    Fed,
    Cancelled,
    Deadline,
}

enum GroupPhase {
    Running,
    /// SIGTERM was sent.
    Ending(Instant),
    /// SIGKILL was sent.
    Dying(Instant),
    /// It has exited; its streams are read to their end.
    Draining(Instant),
    Over,
}

struct GroupWatch {
    phase: GroupPhase,
    status: Option<ExitStatus>,
    stopped: Option<Stopped>,
}

impl GroupWatch {
    /// The signal that is now to be sent to the group, if any.
    fn handle(&mut self, event: &GroupEvent, now: Instant) -> Option<Signal> {
        match *event {
            GroupEvent::Read | GroupEvent::Fed => None,
            GroupEvent::Lost => {
                self.phase = GroupPhase::Over;
                None
            }
            GroupEvent::Exited(status) => {
                self.status = Some(status);
                self.phase = GroupPhase::Draining(now + DRAIN);
                None
            }
            GroupEvent::Full(stream) => self.stop(Stopped::TooMuch(stream), now),
            GroupEvent::Cancelled => self.stop(Stopped::Cancelled, now),
            GroupEvent::Deadline => match self.phase {
                GroupPhase::Ending(_) => {
                    self.phase = GroupPhase::Dying(now + DEATH);
                    Some(Signal::SIGKILL)
                }
                GroupPhase::Running | GroupPhase::Dying(_) | GroupPhase::Draining(_) | GroupPhase::Over => {
                    self.phase = GroupPhase::Over;
                    None
                }
            },
        }
    }

    fn stop(&mut self, why: Stopped, now: Instant) -> Option<Signal> {
        self.stopped = self.stopped.or(Some(why));
        if !matches!(self.phase, GroupPhase::Running) {
            return None;
        }
        self.phase = GroupPhase::Ending(now + GRACE);
        Some(Signal::SIGTERM)
    }

    fn deadline(&self) -> Option<Instant> {
        match self.phase {
            GroupPhase::Running | GroupPhase::Over => None,
            GroupPhase::Ending(at) | GroupPhase::Dying(at) | GroupPhase::Draining(at) => Some(at),
        }
    }

    fn is_over(&self, streams_open: bool) -> bool {
        match self.phase {
            GroupPhase::Over => true,
            GroupPhase::Draining(_) => !streams_open,
            GroupPhase::Running | GroupPhase::Ending(_) | GroupPhase::Dying(_) => false,
        }
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(at) => sleep_until(at).await,
        None => future::pending().await,
    }
}

/// Writes all of `text`, then closes. A program that does not read to the end has its reasons.
async fn feed(stdin: Option<ChildStdin>, text: Option<String>) {
    if let (Some(mut stdin), Some(text)) = (stdin, text)
        && let Err(error) = stdin.write_all(text.as_bytes()).await
    {
        tracing::debug!(%error, "a program did not read all of its standard input");
    }
}

/// A process group, killed when dropped.
struct ProcessGroup(Pid);

impl ProcessGroup {
    fn led_by(child: &Child) -> io::Result<Self> {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        id.map(|id| Self(Pid::from_raw(id))).ok_or_else(|| io::Error::other("it has no process id"))
    }

    fn send(&self, signal: Signal) {
        // ESRCH: nobody is left.
        if let Err(error) = killpg(self.0, signal)
            && error != nix::Error::ESRCH
        {
            tracing::warn!(%error, group = self.0.as_raw(), %signal, "a process group could not be signalled");
        }
    }
}

impl Drop for ProcessGroup {
    /// The kernel gives the number to nobody else while a member lives; without one there is a gap of
    /// at most [`DRAIN`] between the leader's end and this, in which process ids do not come round.
    fn drop(&mut self) {
        self.send(Signal::SIGKILL);
    }
}

/// One stream, kept up to a limit.
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

    /// Reads what is there; true if that was more than the limit. Safe to drop while it waits.
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
