//! Starts an executor in the background when none is running.
//!
//! The executor's lock on the mailbox shows whether one is running; a second lock lets only one
//! caller at a time start it. If two executors start all the same, the second one exits by itself.

use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::path::PathBuf;
use std::process::{Child, ExitStatus, Stdio};
use std::time::Duration;

use nix::fcntl::Flock;
use protocol::code::Code;
use protocol::error::ErrorBody;
use protocol::mailbox::Mailbox;
use protocol::mailbox::for_callers::CallerSettings;
use protocol::mailbox::presence::ExecutorPhase;
use protocol::paths::{CAPTURED, Paths, STARTED_PROGRAM};
use serde::Deserialize;

use crate::backoff::Backoff;
use crate::context::Context;
use crate::error::Error;
use crate::full_program;
use crate::progress::Progress;
use crate::sandbox;

/// The hint when an executor does not start.
pub const START_BY_HAND: &str = "run it in the foreground to see why: agent-magic-tool executor run";

/// How often an executor that was started here may fail after it began to serve. Its successor may succeed, for
/// example if a disk was full; the second failure is reported.
const MAX_FAILURES: u32 = 1;
/// How long a command that needs no executor waits to learn whether one can be started.
const REVIVAL_TIMEOUT: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_millis(5);

/// One caller's attempt to get an executor running.
#[derive(Debug)]
pub struct Launch<'a> {
    paths: &'a Paths,
    mailbox: &'a Mailbox,
    /// Held until the executor is running, so that no other caller starts one.
    guard: Option<Flock<File>>,
    started: Option<StartedExecutor>,
    /// How many executors that were started here failed after they began to serve.
    failures: u32,
    progress: Progress,
}

#[derive(Debug)]
struct StartedExecutor {
    child: Child,
    /// Its standard error, which holds the reason if it fails to start.
    stderr: File,
    /// Whether it was seen to hold the executor's lock.
    has_run: bool,
}

impl<'a> Launch<'a> {
    pub fn new(paths: &'a Paths, mailbox: &'a Mailbox) -> Self {
        Self { paths, mailbox, guard: None, started: None, failures: 0, progress: Progress::new() }
    }

    /// Returns whether an executor is running; starts one if not. Call it again until it returns true, and then from
    /// time to time: an executor that fails is replaced once, and then its error is returned.
    pub fn ensure(&mut self) -> Result<bool, Error> {
        let running = self.executor()?;
        if self.progress.is_due() {
            self.look(running);
        }
        if running.is_some() {
            self.guard = None;
            if let Some(started) = &mut self.started {
                started.has_run |= running == Some(started.child.id());
            }
            return Ok(true);
        }
        if let Some(mut started) = self.started.take() {
            match started.child.try_wait() {
                Ok(None) => {
                    self.started = Some(started);
                    return Ok(false);
                }
                Ok(Some(status)) if status.success() => {}
                // It was killed while it ran.
                Ok(Some(status)) if started.has_run && status.code().is_none() => {}
                Ok(Some(status)) => self.judge(&mut started, status)?,
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
        if self.guard.is_some() && self.executor()?.is_none() {
            self.started = Some(self.start()?);
        }
        Ok(false)
    }

    /// Why it is useless to wait any longer for the executor; `None` while it is not.
    pub fn reason_to_give_up(&self) -> Option<String> {
        self.progress.reason_to_give_up()
    }

    /// How long the executor has made no progress.
    pub fn quiet(&self) -> Duration {
        self.progress.quiet()
    }

    fn look(&mut self, running: Option<u32>) {
        let child = self.started.as_ref().map(|started| started.child.id());
        let phase = match running {
            Some(_) => self.mailbox.identity().map(|identity| identity.phase).unwrap_or_default(),
            None => ExecutorPhase::Starting,
        };
        self.progress.look(running.or(child).unwrap_or_default(), phase);
    }

    /// Decides what the failure of the executor that was `started` here means: `Ok` to start another one.
    fn judge(&mut self, started: &mut StartedExecutor, status: ExitStatus) -> Result<(), Error> {
        let Some(words) = self.mailbox.failure().filter(|_| started.printed().is_empty()) else {
            return Err(started.failure(&status.to_string()));
        };
        self.failures += 1;
        if self.failures > MAX_FAILURES { Err(failed("the executor failed", words)) } else { Ok(()) }
    }

    fn executor(&self) -> Result<Option<u32>, Error> {
        self.mailbox.executor().map_err(|error| Error::io("failed to read the executor's lock", &error))
    }

    fn start(&self) -> Result<StartedExecutor, Error> {
        let is_alone = || full_program::path().is_none().then(|| "the full program is not here".to_owned());
        if let Some(obstacle) = sandbox::obstacle(self.paths).or_else(is_alone) {
            let mailbox = self.paths.mailbox.display();
            return Err(Error::new(Code::NoExecutor, format!("no executor is running, and one cannot be started here: {obstacle}"))
                .hint(format!("ask the user to start it outside the sandbox: AGENT_MAGIC_TOOL_DIR={mailbox} agent-magic-tool executor start")));
        }
        let failed =
            |error| Error::new(Code::NoExecutor, format!("failed to start the executor: {error}")).hint(START_BY_HAND);
        let stderr = tempfile::tempfile().map_err(failed)?;
        let child = full_program::command()?
            .args(["executor", "run", "--detached"])
            .envs(self.paths.environment())
            // A program that starts an executor does not take it along when it ends.
            .env_remove(STARTED_PROGRAM)
            .env_remove(CAPTURED)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr.try_clone().map_err(failed)?)
            .spawn()
            .map_err(failed)?;
        Ok(StartedExecutor { child, stderr, has_run: false })
    }
}

impl StartedExecutor {
    /// Returns the error that the executor printed before it ended.
    fn failure(&mut self, status: &str) -> Error {
        #[derive(Deserialize)]
        struct PrintedError {
            error: ErrorBody,
        }
        let text = self.printed();
        if let Some(PrintedError { error }) = text.lines().rev().find_map(|line| serde_json::from_str(line).ok()) {
            return failed("the executor failed to start", error);
        }
        let reason = if text.is_empty() { "it gave no reason" } else { text.trim() };
        Error::new(Code::NoExecutor, format!("the executor ended during startup ({status}): {reason}"))
            .hint(START_BY_HAND)
    }

    fn printed(&mut self) -> String {
        let mut text = String::new();
        let read = self.stderr.rewind().and_then(|()| self.stderr.read_to_string(&mut text));
        read.map(|_| text).unwrap_or_default()
    }
}

fn failed(what: &str, error: ErrorBody) -> Error {
    let message = format!("{what}: {}", error.message);
    // A human must correct the configuration: the message names the file and the line.
    let code = if error.code == Code::BadConfig { Code::BadConfig } else { Code::NoExecutor };
    ErrorBody { message, code, ..error }.into()
}

/// Returns the path of this program. If the file was replaced while running, the path names the new file.
pub fn program() -> std::io::Result<PathBuf> {
    let program = std::env::current_exe()?;
    let replaced = program.to_str().and_then(|path| path.strip_suffix(" (deleted)")).map(PathBuf::from);
    Ok(replaced.filter(|path| path.exists()).unwrap_or(program))
}

/// The settings that the executor tells its callers; the defaults if it tells none, or none can be started here.
pub fn settings(paths: &Paths, mailbox: &Mailbox) -> CallerSettings {
    let mut launch = Launch::new(paths, mailbox);
    let mut backoff = Backoff::new(MAX_PAUSE);
    loop {
        if let Some(settings) = mailbox.settings() {
            return settings;
        }
        match launch.ensure() {
            Ok(runs) if !(runs && is_serving(mailbox)) && launch.reason_to_give_up().is_none() => backoff.pause(None),
            Ok(_) | Err(_) => return mailbox.settings().unwrap_or_default(),
        }
    }
}

/// Whether the executor that runs has begun to serve. What an executor that was killed left behind says nothing about it.
fn is_serving(mailbox: &Mailbox) -> bool {
    let identity = mailbox.identity().filter(|identity| identity.phase == ExecutorPhase::Serving);
    // From inside a container its id is not visible.
    identity.zip(mailbox.executor().ok().flatten()).is_some_and(|(identity, pid)| pid == identity.pid || pid == 0)
}

/// Starts an executor if the last one ended with unfinished tasks or failed, and notes why it cannot run.
pub fn revive(context: &Context, mailbox: &Mailbox) {
    if !mailbox.has_unfinished_tasks() && mailbox.failure().is_none() {
        return;
    }
    let mut launch = Launch::new(&context.paths, mailbox);
    let mut backoff = Backoff::new(MAX_PAUSE);
    while backoff.waited() < REVIVAL_TIMEOUT {
        match launch.ensure() {
            Ok(true) if is_serving(mailbox) => return,
            Ok(_) => backoff.pause(None),
            Err(error) => {
                let body = error.body();
                let hint = body.hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default();
                context.output.note(&format!("{}{hint}", body.message));
                return;
            }
        }
    }
}
