//! `executor`: starts, stops and inspects the executor.

use std::os::unix::process::CommandExt as _;
use std::time::{Duration, Instant};

use executor::config::{Config, log};
use executor::daemon::{self, ExitReason, detach};
use executor::store::switched_off::SwitchedOffTools;
use executor::task::name::InvalidName;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use protocol::code::{Code, Exit};
use protocol::error::chain;
use protocol::handover::Reply;
use protocol::mailbox::Mailbox;
use protocol::mailbox::request::{Answer, Operation};
use serde_json::{Value, json};

use crate::backoff::Backoff;
use crate::context::Context;
use crate::error::Error;
use crate::handover;
use crate::launch::{self, Launch};

/// How long a new executor may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the executor may take to stop, after the grace period of its tasks.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);
const MAX_PAUSE: Duration = Duration::from_millis(20);

pub(crate) mod page;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum ExecutorCommand {
    /// Start it in the background, unless it is running
    Start,
    /// Stop it, after a grace period for running tasks; open tasks continue when it starts again
    Stop,
    /// Show its process, version, page and open tasks
    Status,
    /// Open the page where a human confirms tasks; for humans only
    Page,
    /// Switch on a subtool that is off for a session that called it too often
    SwitchOn {
        /// The subtool
        name: String,
        /// Only for this session [default: for all sessions]
        #[arg(long, value_name = "SESSION")]
        session: Option<String>,
    },
    /// Run it in the foreground, logging to standard error
    Run {
        #[arg(long, hide = true)]
        detached: bool,
    },
}

pub(crate) fn run(command: &ExecutorCommand, context: &Context) -> Result<Exit, Error> {
    match command {
        ExecutorCommand::Start => start(context),
        ExecutorCommand::Stop => stop(context),
        ExecutorCommand::Status => status(context),
        ExecutorCommand::Page => page::run(context),
        ExecutorCommand::SwitchOn { name, session } => switch_on(name, session.as_deref(), context),
        ExecutorCommand::Run { detached } => serve(*detached, context),
    }
}

fn start(context: &Context) -> Result<Exit, Error> {
    let mailbox = Mailbox::open(&context.paths.mailbox)?;
    ensure(&mailbox, context)?;
    context.output.json(&ask_status(&mailbox, context)?)?;
    Ok(Exit::Ok)
}

/// Starts an executor for the mailbox unless one is running, and waits until it runs.
fn ensure(mailbox: &Mailbox, context: &Context) -> Result<(), Error> {
    let mut launch = Launch::new(&context.paths, mailbox);
    let mut backoff = Backoff::new(MAX_PAUSE);
    while !launch.ensure()? {
        if backoff.waited() > START_TIMEOUT {
            return Err(Error::new(Code::NoExecutor, format!("the executor did not start within {START_TIMEOUT:?}"))
                .hint(launch::START_BY_HAND));
        }
        backoff.pause(None);
    }
    Ok(())
}

fn status(context: &Context) -> Result<Exit, Error> {
    let mailbox = Mailbox::open(&context.paths.mailbox)?;
    if executor_of(&mailbox)?.is_none() {
        context.output.json(&json!({"running": false, "mailbox": mailbox.root()}))?;
        return Ok(Exit::NoExecutor);
    }
    context.output.json(&ask_status(&mailbox, context)?)?;
    Ok(Exit::Ok)
}

pub(super) fn ask_status(mailbox: &Mailbox, context: &Context) -> Result<Value, Error> {
    match handover::ask(context, mailbox, Operation::Status)? {
        Reply::Answer(Answer::Status(mut status)) => {
            if let Some(status) = status.as_object_mut() {
                status.shift_insert(0, "running".to_owned(), true.into());
                status.insert("log".to_owned(), context.paths.log().display().to_string().into());
            }
            Ok(status)
        }
        Reply::Answer(Answer::Refused(error)) => Err(error.into()),
        Reply::Accepted(_) | Reply::Answer(_) => Err(Error::unexpected_answer("status")),
    }
}

fn executor_of(mailbox: &Mailbox) -> Result<Option<u32>, Error> {
    mailbox.executor().map_err(|error| Error::io("failed to read the executor's lock", &error))
}

fn stop(context: &Context) -> Result<Exit, Error> {
    let mailbox = Mailbox::open(&context.paths.mailbox)?;
    let Some(pid) = executor_of(&mailbox)? else {
        context.output.json(&json!({"stopped": false, "mailbox": mailbox.root()}))?;
        context.output.note("no executor is running");
        return Ok(Exit::Ok);
    };
    let Ok(target @ 1..) = i32::try_from(pid) else {
        return Err(Error::new(Code::NoExecutor, "the executor's process id is not visible from here")
            .hint("stop it from outside this sandbox"));
    };
    kill(Pid::from_raw(target), Signal::SIGTERM)
        .map_err(|error| Error::new(Code::NoExecutor, format!("failed to stop process {pid}: {error}")))?;
    let deadline = Instant::now() + Config::read(&context.paths)?.executor.grace.get() + STOP_TIMEOUT;
    let mut backoff = Backoff::new(MAX_PAUSE);
    while executor_of(&mailbox)? == Some(pid) {
        if Instant::now() > deadline {
            return Err(Error::new(Code::NoExecutor, format!("the executor (process {pid}) has not stopped yet"))
                .hint(format!("see its log: {}", context.paths.log().display())));
        }
        backoff.pause(Some(deadline));
    }
    context.output.json(&json!({"stopped": true, "pid": pid, "mailbox": mailbox.root()}))?;
    Ok(Exit::Ok)
}

/// Changes the executor's folder directly, since a request through the mailbox might come from an agent.
fn switch_on(name: &str, session: Option<&str>, context: &Context) -> Result<Exit, Error> {
    let tool = name.parse().map_err(|error: InvalidName| Error::usage(error.to_string()))?;
    let switched = SwitchedOffTools::below(&context.paths.executor()).switch_on(&tool, session);
    let switched =
        switched.map_err(|error| Error::io("failed to update the subtools that are switched off", &error))?;
    context.output.json(&json!({"switched_on": switched}))?;
    Ok(if switched.is_empty() { Exit::NotFound } else { Exit::Ok })
}

fn serve(detached: bool, context: &Context) -> Result<Exit, Error> {
    if detached {
        detach::from_caller().map_err(|error| Error::io("failed to detach the executor", &error))?;
    }
    let paths = &context.paths;
    paths.create_state().map_err(|error| {
        Error::io(&format!("failed to create the state folder `{}`", paths.state.display()), &error)
    })?;
    let config = Config::read(paths)?;
    let log_file = paths.log();
    let log_target = if detached {
        log::LogTarget::File(&log_file)
    } else {
        log::LogTarget::Stderr { is_journal: paths.stderr_is_journal() }
    };
    log::start(log_target, &config.executor).map_err(|error| Error::new(Code::BadConfig, chain(&error)))?;
    let program = launch::program();
    let is_executor_running = || {
        if detached {
            detach::close_stderr();
        }
    };
    let ended = daemon::run(paths, is_executor_running).map_err(|error| {
        let hint = error.hint().unwrap_or_else(|| format!("see its log: {}", log_file.display()));
        Error::new(Code::NoExecutor, chain(&error)).hint(hint)
    })?;
    match ended {
        ExitReason::NotNeeded if !detached => {
            Err(Error::new(Code::NoExecutor, "another executor is serving this mailbox")
                .hint("see: agent-magic-tool executor status"))
        }
        // After an eviction, open tasks need an executor with a new mailbox.
        ExitReason::Upgraded | ExitReason::Evicted => {
            let program = program.map_err(|error| Error::io("failed to find the new program", &error))?;
            let error = std::process::Command::new(program).args(std::env::args_os().skip(1)).exec();
            Err(Error::io("failed to start the new program", &error))
        }
        ExitReason::NotNeeded | ExitReason::Idle | ExitReason::Asked => Ok(Exit::Ok),
    }
}
