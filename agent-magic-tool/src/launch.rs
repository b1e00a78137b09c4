//! Starts an executor in the background when none is running.
//!
//! The executor's lock on the mailbox shows whether one is running; a second lock lets only one
//! caller at a time start it. If two executors start all the same, the second one exits by itself.

use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use nix::fcntl::Flock;
use protocol::code::Code;
use protocol::error::ErrorBody;
use protocol::mailbox::Mailbox;
use protocol::paths::Paths;
use serde::Deserialize;

use crate::error::Error;
use crate::sandbox;

/// The hint when an executor does not start.
pub(crate) const START_BY_HAND: &str = "run it in the foreground to see why: agent-magic-tool executor run";

/// One caller's attempt to get an executor running.
#[derive(Debug)]
pub(crate) struct Launch<'a> {
    paths: &'a Paths,
    mailbox: &'a Mailbox,
    /// Held until the executor is running, so that no other caller starts one.
    guard: Option<Flock<File>>,
    started: Option<StartedExecutor>,
}

#[derive(Debug)]
struct StartedExecutor {
    child: Child,
    /// Its standard error, which holds the reason if it fails to start.
    stderr: File,
}

impl<'a> Launch<'a> {
    pub(crate) fn new(paths: &'a Paths, mailbox: &'a Mailbox) -> Self {
        Self { paths, mailbox, guard: None, started: None }
    }

    /// Returns whether an executor is running; starts one if not. Call it again until it returns true.
    pub(crate) fn ensure(&mut self) -> Result<bool, Error> {
        if self.is_executor_running()? {
            // If it ends later, that is not a failure to start.
            (self.guard, self.started) = (None, None);
            return Ok(true);
        }
        if let Some(started) = &mut self.started {
            match started.child.try_wait() {
                Ok(None) => return Ok(false),
                Ok(Some(status)) if status.success() => {}
                Ok(Some(status)) => return Err(started.failure(&status.to_string())),
                Err(error) => return Err(started.failure(&error.to_string())),
            }
        }
        if self.guard.is_none() {
            self.guard = self
                .mailbox
                .acquire_start_lock()
                .map_err(|error| Error::io("failed to take the start lock", &error))?;
        }
        // Another caller may have started one while we took the guard.
        if self.guard.is_some() && !self.is_executor_running()? {
            self.started = Some(self.start()?);
        }
        Ok(false)
    }

    fn is_executor_running(&self) -> Result<bool, Error> {
        let found = self.mailbox.executor().map_err(|error| Error::io("failed to read the executor's lock", &error))?;
        Ok(found.is_some())
    }

    fn start(&self) -> Result<StartedExecutor, Error> {
        if let Some(obstacle) = sandbox::obstacle(self.paths) {
            let mailbox = self.paths.mailbox.display();
            return Err(Error::new(Code::NoExecutor, format!("no executor is running, and one cannot be started here: {obstacle}"))
                .hint(format!("ask the user to start it outside the sandbox: AGENT_MAGIC_TOOL_DIR={mailbox} agent-magic-tool executor start")));
        }
        let failed =
            |error| Error::new(Code::NoExecutor, format!("failed to start the executor: {error}")).hint(START_BY_HAND);
        let program = program().map_err(failed)?;
        let stderr = tempfile::tempfile().map_err(failed)?;
        let child = Command::new(program)
            .args(["executor", "run", "--detached"])
            .envs(self.paths.environment())
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr.try_clone().map_err(failed)?)
            .spawn()
            .map_err(failed)?;
        Ok(StartedExecutor { child, stderr })
    }
}

impl StartedExecutor {
    /// Returns the error that the executor printed before it ended.
    fn failure(&mut self, status: &str) -> Error {
        #[derive(Deserialize)]
        struct PrintedError {
            error: ErrorBody,
        }
        let mut text = String::new();
        let read = self.stderr.rewind().and_then(|()| self.stderr.read_to_string(&mut text));
        if let Some(PrintedError { error }) = text.lines().rev().find_map(|line| serde_json::from_str(line).ok()) {
            let message = format!("the executor failed to start: {}", error.message);
            return ErrorBody { message, code: Code::NoExecutor, ..error }.into();
        }
        let text = if read.is_ok() { text.trim() } else { "" };
        Error::new(Code::NoExecutor, format!("the executor ended during startup ({status}): {text}"))
            .hint(START_BY_HAND)
    }
}

/// Returns the path of this program. If the file was replaced while running, the path names the new file.
pub(crate) fn program() -> std::io::Result<PathBuf> {
    let program = std::env::current_exe()?;
    let replaced = program.to_str().and_then(|path| path.strip_suffix(" (deleted)")).map(PathBuf::from);
    Ok(replaced.filter(|path| path.exists()).unwrap_or(program))
}

/// Starts an executor if the last one ended with unfinished tasks. Failures are ignored.
pub(crate) fn revive(paths: &Paths, mailbox: &Mailbox) {
    if mailbox.has_unfinished_tasks() {
        drop(Launch::new(paths, mailbox).ensure());
    }
}
