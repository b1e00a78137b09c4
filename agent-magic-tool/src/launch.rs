//! Sees to it that an executor is there: starts one, detached, when none is.
//!
//! The kernel's lock on the mailbox tells whether there is one; a second lock lets one caller at a
//! time start it. Whatever the race, the executor itself makes sure that it is alone.

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

/// One caller's effort to have an executor.
#[derive(Debug)]
pub(crate) struct Launch<'a> {
    paths: &'a Paths,
    mailbox: &'a Mailbox,
    /// Held until the executor is in office, so that nobody else starts one meanwhile.
    guard: Option<Flock<File>>,
    started: Option<StartedExecutor>,
}

#[derive(Debug)]
struct StartedExecutor {
    child: Child,
    /// What it says if it cannot start.
    words: File,
}

impl<'a> Launch<'a> {
    pub(crate) fn new(paths: &'a Paths, mailbox: &'a Mailbox) -> Self {
        Self { paths, mailbox, guard: None, started: None }
    }

    /// Whether an executor is in office; if not, one is on its way when this returns.
    pub(crate) fn ensure(&mut self) -> Result<bool, Error> {
        if self.is_executor_running()? {
            // If it ends later, that is no failure to start.
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
            self.guard =
                self.mailbox.start_guard().map_err(|error| Error::io("the start lock cannot be had", &error))?;
        }
        // Another caller may have started one while we took the guard.
        if self.guard.is_some() && !self.is_executor_running()? {
            self.started = Some(self.start()?);
        }
        Ok(false)
    }

    fn is_executor_running(&self) -> Result<bool, Error> {
        let found = self.mailbox.executor().map_err(|error| Error::io("the executor's lock cannot be read", &error))?;
        Ok(found.is_some())
    }

    fn start(&self) -> Result<StartedExecutor, Error> {
        if let Some(obstacle) = sandbox::obstacle(self.paths) {
            let mailbox = self.paths.mailbox.display();
            return Err(Error::new(Code::NoExecutor, format!("no executor runs, and one cannot be started here: {obstacle}"))
                .hint(format!("outside of the sandbox, a human starts it with: AGENT_MAGIC_TOOL_DIR={mailbox} agent-magic-tool executor start")));
        }
        let cannot = |error| {
            Error::new(Code::NoExecutor, format!("the executor could not be started: {error}"))
                .hint("start it by hand and look what it says: agent-magic-tool executor run")
        };
        let program = program().map_err(cannot)?;
        let words = tempfile::tempfile().map_err(cannot)?;
        let child = Command::new(program)
            .args(["executor", "run", "--detached"])
            .envs(self.paths.environment())
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(words.try_clone().map_err(cannot)?)
            .spawn()
            .map_err(cannot)?;
        Ok(StartedExecutor { child, words })
    }
}

impl StartedExecutor {
    /// The executor's own error, which it wrote where we can read it.
    fn failure(&mut self, status: &str) -> Error {
        #[derive(Deserialize)]
        struct PrintedError {
            error: ErrorBody,
        }
        let mut words = String::new();
        let read = self.words.rewind().and_then(|()| self.words.read_to_string(&mut words));
        if let Some(PrintedError { error }) = words.lines().rev().find_map(|line| serde_json::from_str(line).ok()) {
            let message = format!("the executor could not start: {}", error.message);
            return ErrorBody { message, code: Code::NoExecutor, ..error }.into();
        }
        let words = if read.is_ok() { words.trim() } else { "" };
        Error::new(Code::NoExecutor, format!("the executor ended while it started ({status}): {words}"))
            .hint("start it by hand and look what it says: agent-magic-tool executor run")
    }
}

/// This very program; the file at its path if it was replaced meanwhile.
pub(crate) fn program() -> std::io::Result<PathBuf> {
    let program = std::env::current_exe()?;
    let replaced = program.to_str().and_then(|path| path.strip_suffix(" (deleted)")).map(PathBuf::from);
    Ok(replaced.filter(|path| path.exists()).unwrap_or(program))
}

/// Starts an executor if one went away without finishing what it had; tells nobody if it cannot.
pub(crate) fn revive(paths: &Paths, mailbox: &Mailbox) {
    if mailbox.has_unfinished_tasks() {
        drop(Launch::new(paths, mailbox).ensure());
    }
}
