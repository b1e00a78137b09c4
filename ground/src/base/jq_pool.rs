//! Evaluates the jq expressions of definitions in processes that are kept warm, so that no expression can hold up or
//! exhaust the executor.
//!
//! A process is started when it is first needed and used again, unless its job was stopped or made it large. Two
//! expressions at a time are evaluated; the others wait. A plain path like `.a.b` needs no process.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jq::select::{self, SelectError};
use jq::worker::{self, CheckedOutputs, Job, Reply};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::children::PipedWorker;

/// How many expressions are evaluated at once. Each may use hundreds of megabytes.
const MAX_WORKERS: usize = 2;
/// How many processes wait for the next expression.
const MAX_IDLE: usize = 1;
/// A worker that gave no reply after this long is killed, even if it used little processor time.
const MAX_DURATION: Duration = Duration::from_mins(2);

/// The processes that evaluate jq expressions.
#[derive(Debug)]
pub struct JqPool {
    /// `None` evaluates in this process.
    program: Option<PathBuf>,
    workers: Semaphore,
    idle: Mutex<Vec<Worker>>,
}

#[derive(Debug)]
struct Worker(PipedWorker);

/// An expression to be evaluated on data.
#[derive(Debug, Clone, Copy)]
pub struct Query<'a> {
    pub expression: &'a str,
    pub data: &'a Value,
    /// The names of variables, which begin with `$`, and their values.
    pub variables: &'a [(&'a str, &'a Value)],
    /// The most bytes of output.
    pub max_bytes: u64,
}

impl JqPool {
    /// A pool of processes of this program, which must have the command [`worker::COMMAND`].
    pub fn of_own_processes() -> Self {
        Self::new(Some(worker::own_program()))
    }

    /// Evaluates in this process and without limits: for tests of a library, which is not such a program.
    pub fn in_process() -> Self {
        Self::new(None)
    }

    fn new(program: Option<PathBuf>) -> Self {
        Self { program, workers: Semaphore::new(MAX_WORKERS), idle: Mutex::default() }
    }

    /// Evaluates `query`: returns its value, `null` if it produces none, an array if it produces several. Fails soon
    /// after `stop` is cancelled.
    pub async fn select(&self, query: Query<'_>, stop: &CancellationToken) -> Result<Value, SelectError> {
        if let Some(value) = select::path(query.expression, query.data) {
            return Ok(value);
        }
        self.outputs(query, stop).await.map(select::one_value)
    }

    /// Returns every value that `query` produces; otherwise like [`Self::select`].
    pub async fn outputs(&self, query: Query<'_>, stop: &CancellationToken) -> Result<Vec<Value>, SelectError> {
        let Query { expression, data, variables, max_bytes } = query;
        let data = data.to_string();
        let Some(program) = &self.program else { return select::outputs_with(expression, data.as_bytes(), variables) };
        let job = Job { expression, variables, data: data.as_bytes(), max_bytes, is_checked: false };
        self.reply(program, &job, stop).await?.into_outputs(&job)
    }

    /// Like [`Self::outputs`]; also returns what the expression asks for and the data does not have.
    pub async fn checked(&self, query: Query<'_>, stop: &CancellationToken) -> Result<CheckedOutputs, SelectError> {
        let Query { expression, data, variables, max_bytes } = query;
        let data = data.to_string();
        let Some(program) = &self.program else {
            return select::checked_outputs(expression, data.as_bytes(), variables);
        };
        let job = Job { expression, variables, data: data.as_bytes(), max_bytes, is_checked: true };
        self.reply(program, &job, stop).await?.into_checked(&job)
    }

    async fn reply(&self, program: &Path, job: &Job<'_>, stop: &CancellationToken) -> Result<Reply, SelectError> {
        tokio::select! {
            biased;
            // Dropping the other future kills its worker.
            () = stop.cancelled() => Err(SelectError::Stopped),
            reply = self.perform(program, job) => reply,
        }
    }

    async fn perform(&self, program: &Path, job: &Job<'_>) -> Result<Reply, SelectError> {
        let _permit = self.workers.acquire().await.expect("the semaphore is never closed");
        let mut worker = match self.take_idle() {
            Some(worker) => worker,
            None => Worker::start(program)
                .map_err(|error| job.failed(format!("failed to start a process for it: {error}")))?,
        };
        let Ok(Ok(reply)) = tokio::time::timeout(MAX_DURATION, worker.perform(job)).await else {
            return Err(job.exhausted(worker.end().await));
        };
        let mut idle = self.idle();
        if !reply.is_last && idle.len() < MAX_IDLE {
            idle.push(worker);
        }
        Ok(reply)
    }

    fn take_idle(&self) -> Option<Worker> {
        // One that ended while it waited is of no use.
        std::iter::from_fn(|| self.idle().pop()).find_map(|mut worker| match worker.0.child.try_wait() {
            Ok(None) => Some(worker),
            Ok(Some(_)) | Err(_) => None,
        })
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Worker>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Worker {
    fn start(program: &Path) -> io::Result<Self> {
        PipedWorker::start(program, worker::COMMAND, &[]).map(Self)
    }

    async fn perform(&mut self, job: &Job<'_>) -> io::Result<Reply> {
        self.0.to.write_all(&job.header()).await?;
        self.0.to.write_all(job.data).await?;
        let mut header = [0; Reply::HEADER_BYTES];
        self.0.from.read_exact(&mut header).await?;
        let mut reply = Reply::of_header(header)?;
        let (length, content) = reply.content();
        let read = (&mut self.0.from).take(length).read_to_end(content).await?;
        if read as u64 == length { Ok(reply) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    /// Ends the worker and returns how it ended, unless it was still working.
    async fn end(mut self) -> Option<ExitStatus> {
        let is_over = tokio::time::timeout(Duration::from_secs(1), self.0.child.wait()).await;
        is_over.ok().and_then(Result::ok)
    }
}
