//! `executor`: the daemon, for the humans who look after it.

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

/// A new executor is in office by then, or something is wrong.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// Beyond the grace of its tasks.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);
const MAX_PAUSE: Duration = Duration::from_millis(20);

pub(crate) mod page;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum ExecutorCommand {
    /// Start it in the background, if it does not run
    Start,
    /// Let running tasks finish for a moment, then stop it; what is open goes on when it starts again
    Stop,
    /// Who it is, and how many tasks are open
    Status,
    /// Open the page where a human confirms; for humans only
    Page,
    /// Switch a subtool on again that is off for a session which called it too often
    SwitchOn {
        /// The subtool
        name: String,
        /// For this session alone [default: for all of them]
        #[arg(long, value_name = "SESSION")]
        session: Option<String>,
    },
    /// Run it here, in the foreground, with its log on standard error
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

/// Sees to it that an executor serves the mailbox.
fn ensure(mailbox: &Mailbox, context: &Context) -> Result<(), Error> {
    let mut launch = Launch::new(&context.paths, mailbox);
    let mut patience = Backoff::new(MAX_PAUSE);
    while !launch.ensure()? {
        if patience.waited() > START_TIMEOUT {
            return Err(Error::new(Code::NoExecutor, format!("the executor did not start within {START_TIMEOUT:?}"))
                .hint(launch::START_BY_HAND));
        }
        patience.pause(None);
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
    mailbox.executor().map_err(|error| Error::io("the executor's lock cannot be read", &error))
}

fn stop(context: &Context) -> Result<Exit, Error> {
    let mailbox = Mailbox::open(&context.paths.mailbox)?;
    let Some(pid) = executor_of(&mailbox)? else {
        context.output.json(&json!({"stopped": false, "mailbox": mailbox.root()}))?;
        context.output.note("no executor runs");
        return Ok(Exit::Ok);
    };
    let Ok(target @ 1..) = i32::try_from(pid) else {
        return Err(Error::new(Code::NoExecutor, "the executor runs where its process id cannot be seen from here")
            .hint("stop it from outside of this sandbox"));
    };
    kill(Pid::from_raw(target), Signal::SIGTERM)
        .map_err(|error| Error::new(Code::NoExecutor, format!("process {pid} cannot be told to stop: {error}")))?;
    let deadline = Instant::now() + Config::read(&context.paths)?.executor.grace.get() + STOP_TIMEOUT;
    let mut patience = Backoff::new(MAX_PAUSE);
    while executor_of(&mailbox)? == Some(pid) {
        if Instant::now() > deadline {
            return Err(Error::new(Code::NoExecutor, format!("the executor (process {pid}) has not stopped yet"))
                .hint(format!("look at its log: {}", context.paths.log().display())));
        }
        patience.pause(Some(deadline));
    }
    context.output.json(&json!({"stopped": true, "pid": pid, "mailbox": mailbox.root()}))?;
    Ok(Exit::Ok)
}

/// Straight in the executor's own folder: what comes through the mailbox may be an agent's.
fn switch_on(name: &str, session: Option<&str>, context: &Context) -> Result<Exit, Error> {
    let tool = name.parse().map_err(|error: InvalidName| Error::usage(error.to_string()))?;
    let switched = SwitchedOffTools::below(&context.paths.executor()).switch_on(&tool, session);
    let switched = switched.map_err(|error| Error::io("what is switched off cannot be changed", &error))?;
    context.output.json(&json!({"switched_on": switched}))?;
    Ok(if switched.is_empty() { Exit::NotFound } else { Exit::Ok })
}

fn serve(detached: bool, context: &Context) -> Result<Exit, Error> {
    if detached {
        detach::from_caller().map_err(|error| Error::io("the executor cannot be detached", &error))?;
    }
    let paths = &context.paths;
    paths
        .make_state()
        .map_err(|error| Error::io(&format!("the state folder `{}` cannot be used", paths.state.display()), &error))?;
    let config = Config::read(paths)?;
    let log_file = paths.log();
    let to = if detached {
        log::LogTarget::File(&log_file)
    } else {
        log::LogTarget::Stderr { is_journal: paths.stderr_is_journal() }
    };
    log::start(to, &config.executor).map_err(|error| Error::new(Code::BadConfig, chain(&error)))?;
    let program = launch::program();
    let is_executor_running = || {
        if detached {
            detach::let_go_of_stderr();
        }
    };
    let ended = daemon::run(paths, is_executor_running).map_err(|error| {
        let hint = error.hint().unwrap_or_else(|| format!("its log: {}", log_file.display()));
        Error::new(Code::NoExecutor, chain(&error)).hint(hint)
    })?;
    match ended {
        ExitReason::NotNeeded if !detached => {
            Err(Error::new(Code::NoExecutor, "another executor has this mailbox")
                .hint("agent-magic-tool executor status"))
        }
        // After an eviction open tasks wait for an executor with a new mailbox.
        ExitReason::Upgraded | ExitReason::Evicted => {
            let program = program.map_err(|error| Error::io("the new program cannot be found", &error))?;
            let error = std::process::Command::new(program).args(std::env::args_os().skip(1)).exec();
            Err(Error::io("the new program cannot be started", &error))
        }
        ExitReason::NotNeeded | ExitReason::Idle | ExitReason::Asked => Ok(Exit::Ok),
    }
}
