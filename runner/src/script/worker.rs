//! The process in which a script runs, as its host sees it.
//!
//! It gets no environment, no folder and no file but its two pipes. Few live at once: one that waits for long is ended by
//! its host and started again when there is news.

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::time::Duration;

use ground::base::children::PipedWorker;
use jq::worker::own_program;
use nix::sys::signal::Signal;
use script::{Failure as ScriptFailure, HostMessage, WorkerMessage, worker};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::ChildStdout;
use tokio::sync::{Semaphore, SemaphorePermit};

/// How many scripts have a process at a time. The others wait until one of those ends or waits for long.
const MAX_WORKERS: usize = 16;
/// The longest message: a value of the largest size, and what surrounds it.
const MAX_MESSAGE_BYTES: u64 = 32 << 20;
/// How long a process may take to end that writes no more.
const MAX_END: Duration = Duration::from_secs(1);
/// A worker that was silent for this long after a message is ended, even if it used little processor time.
const MAX_SILENCE: Duration = Duration::from_mins(2);

static WORKERS: Semaphore = Semaphore::const_new(MAX_WORKERS);

/// Why a worker gives no more messages.
#[derive(Debug, thiserror::Error)]
pub(super) enum WorkerError {
    #[error("failed to start the process of the script")]
    CannotStart(#[source] io::Error),
    #[error("{}", .failed.message)]
    Ended {
        failed: Box<ScriptFailure>,
        /// Whether the script is to blame: it computed for too long.
        is_script: bool,
    },
    #[error("the process of the script sent something unexpected")]
    BadMessage(#[source] serde_json::Error),
}

#[derive(Debug)]
pub(super) struct ScriptWorker {
    _permit: SemaphorePermit<'static>,
    process: PipedWorker,
}

impl ScriptWorker {
    pub(super) async fn start() -> Result<Self, WorkerError> {
        let permit = WORKERS.acquire().await.expect("the semaphore is never closed");
        let process = PipedWorker::start(&own_program(), worker::COMMAND, &worker::ENVIRONMENT);
        Ok(Self { _permit: permit, process: process.map_err(WorkerError::CannotStart)? })
    }

    /// Sends `messages` and returns what the script does about them, up to the last [`WorkerMessage::Idle`] or its end.
    pub(super) async fn exchange(&mut self, messages: &[HostMessage]) -> Result<Vec<WorkerMessage>, WorkerError> {
        let mut text = Vec::new();
        for message in messages {
            serde_json::to_writer(&mut text, message).expect("a message is plain JSON");
            text.push(b'\n');
        }
        let PipedWorker { to, from, child, .. } = &mut self.process;
        // One that has ended reads no more, and what it said counts.
        let send = async { drop(to.write_all(&text).await) };
        let receive = receive(from, messages.len());
        tokio::pin!(send, receive);
        let received = tokio::select! {
            received = &mut receive => received,
            () = &mut send => receive.await,
        };
        if let Some(received) = received? {
            return Ok(received);
        }
        let status = tokio::time::timeout(MAX_END, child.wait()).await.ok().and_then(Result::ok).unwrap_or_default();
        let is_script = status.signal() == Some(Signal::SIGXCPU as i32);
        Err(WorkerError::Ended { failed: Box::new(worker::explain_end(status)), is_script })
    }
}

/// What the script does until it was idle `times` times, or has ended; `None` if its process ended before.
async fn receive(from: &mut BufReader<ChildStdout>, times: usize) -> Result<Option<Vec<WorkerMessage>>, WorkerError> {
    let (mut received, mut idle) = (Vec::new(), 0);
    while idle < times {
        let Some(message) = next(from).await? else { return Ok(None) };
        let is_end = matches!(message, WorkerMessage::Done(_) | WorkerMessage::Failed(_));
        idle += usize::from(matches!(message, WorkerMessage::Idle(_)));
        received.push(message);
        if is_end {
            break;
        }
    }
    Ok(Some(received))
}

async fn next(from: &mut BufReader<ChildStdout>) -> Result<Option<WorkerMessage>, WorkerError> {
    let mut line = Vec::new();
    let mut bounded = from.take(MAX_MESSAGE_BYTES);
    let read = tokio::time::timeout(MAX_SILENCE, bounded.read_until(b'\n', &mut line)).await;
    if !matches!(read, Ok(Ok(_))) || line.last() != Some(&b'\n') {
        return Ok(None);
    }
    serde_json::from_slice(&line).map(Some).map_err(WorkerError::BadMessage)
}
