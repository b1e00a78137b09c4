//! `executor`: starts, stops and inspects the executor.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use agent_side::backoff::Backoff;
use agent_side::context::Context;
use agent_side::error::Error;
use agent_side::handover;
use agent_side::launch::{self, Launch};
use agent_side::other_configuration::other_than_own;
use executor::daemon::{self, ExitReason, detach};
use ground::base::jq_pool::JqPool;
use ground::config::known::KnownConfigurations;
use ground::config::{Config, ConfigText, log};
use ground::task::name::InvalidName;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use protocol::code::{Code, Exit};
use protocol::error::{ErrorBody, chain};
use protocol::handover::Reply;
use protocol::mailbox::Mailbox;
use protocol::mailbox::request::{Answer, Operation};
use serde_json::{Value, json};
use store::switched_off::SwitchedOffTools;
use store::{StoreError, sqlite};

use crate::profile;

/// How long the executor may take to stop, after the grace period of its tasks.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);
const MAX_PAUSE: Duration = Duration::from_millis(20);

pub(crate) mod open_page;
mod reload;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum ExecutorCommand {
    /// Start it in the background, unless it is running
    Start {
        /// Go on with the defaults although there was a configuration before
        #[arg(long)]
        without_configuration: bool,
        /// Use the configuration of this environment although another one was used before
        #[arg(long, conflicts_with = "without_configuration")]
        with_this_configuration: bool,
    },
    /// Stop it, after a grace period for running tasks; open tasks continue when it starts again
    Stop,
    /// Show its process, version, page and open tasks
    Status,
    /// Apply the configuration now, and show what changed; it is also applied by itself
    Reload,
    /// Open the page where a human confirms tasks; for humans only
    Page(open_page::Args),
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
    if let ExecutorCommand::Stop | ExecutorCommand::Reload | ExecutorCommand::SwitchOn { .. } = command {
        profile::refuse_restricted("executor", context)?;
    }
    match command {
        ExecutorCommand::Start { without_configuration, with_this_configuration } => {
            if *without_configuration {
                forget_configuration(context)?;
            } else if *with_this_configuration {
                forget_other_configuration(context)?;
            }
            start(context)
        }
        ExecutorCommand::Stop => stop(context),
        ExecutorCommand::Status => status(context),
        ExecutorCommand::Reload => reload::run(context),
        ExecutorCommand::Page(args) => open_page::run(args, context),
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

/// Has the next executor start without the configuration that was there before.
fn forget_configuration(context: &Context) -> Result<(), Error> {
    let path = context.paths.config_file();
    if path.exists() && !ConfigText::read(&path)?.is_blank() {
        let message = format!("there is a configuration: `{}`", path.display());
        return Err(Error::new(Code::Usage, message).hint("leave out `--without-configuration`, or empty the file"));
    }
    KnownConfigurations::of(&context.paths)
        .remove()
        .map_err(|error| Error::new(Code::Io, format!("failed to forget the configuration: {error}")))
}

/// Has the next executor start with the configuration of this environment, although another one was used before.
fn forget_other_configuration(context: &Context) -> Result<(), Error> {
    if executor_of(&Mailbox::open(&context.paths.mailbox)?)?.is_some() {
        return Err(Error::new(Code::Usage, "an executor is running, and keeps its configuration")
            .hint("stop it first: agent-magic-tool executor stop"));
    }
    KnownConfigurations::of(&context.paths)
        .accept()
        .map_err(|error| Error::new(Code::Io, format!("failed to forget the configuration of before: {error}")))
}

/// Starts an executor for the mailbox unless one is running, and waits until it runs.
fn ensure(mailbox: &Mailbox, context: &Context) -> Result<(), Error> {
    let mut launch = Launch::new(&context.paths, mailbox);
    let mut backoff = Backoff::new(MAX_PAUSE);
    while !launch.ensure()? {
        if let Some(reason) = launch.reason_to_give_up() {
            return Err(Error::new(Code::NoExecutor, reason).hint(launch::START_BY_HAND));
        }
        backoff.pause(None);
    }
    Ok(())
}

fn status(context: &Context) -> Result<Exit, Error> {
    let mailbox = Mailbox::open(&context.paths.mailbox)?;
    if executor_of(&mailbox)?.is_none() {
        let mut status = json!({"running": false, "mailbox": mailbox.root()});
        // The record may have been repaired since an executor failed over it, or damaged since one ended well.
        let damage = sqlite::inspect(&context.paths.store(), false).err().map(|error| damage_of(&error));
        if let Some(failure) = damage.or_else(|| mailbox.failure()) {
            status["failure"] = json!(failure);
        }
        context.output.json(&status)?;
        return Ok(Exit::NoExecutor);
    }
    let mut status = ask_status(&mailbox, context)?;
    note_config(&status["config"], context);
    if let Some(problem) = page_problem(&status) {
        context.output.note(problem);
    }
    // The executor reads most of its record from memory, and does not notice what happens to a part of the file.
    let damage = sqlite::inspect_small(&context.paths.store()).err().map(|error| damage_of(&error));
    let exit = if damage.is_some() { Exit::Failed } else { Exit::Ok };
    if let Some(damage) = damage {
        status["failure"] = json!(damage);
    }
    context.output.json(&status)?;
    Ok(exit)
}

fn damage_of(error: &StoreError) -> ErrorBody {
    let body = ErrorBody::new(Code::NoExecutor, chain(error));
    ErrorBody { hint: error.hint(), ..body }
}

/// Tells a human what of the configuration is not in force.
fn note_config(config: &Value, context: &Context) {
    if let Some(message) = foreign_configuration(config, context) {
        context.output.note(&message);
    }
    if let Some(message) = config["problem"]["message"].as_str() {
        context.output.note(&format!("the last good configuration stays in force: {message}"));
    }
    if let Some(keys) = waits_for_restart(config) {
        context.output.note(&format!("takes effect after `agent-magic-tool executor stop`: {keys}"));
    }
}

/// Why the page is not where the configuration has it.
pub(super) fn page_problem(status: &Value) -> Option<&str> {
    status["page"]["problem"].as_str()
}

/// Says that the executor reads another configuration than this command, as when both have homes of their own and one
/// mailbox.
pub(super) fn foreign_configuration(config: &Value, context: &Context) -> Option<String> {
    other_than_own(Path::new(config["file"].as_str()?), context)
}

/// The keys that take effect only in the next executor, as words; `None` without any.
pub(super) fn waits_for_restart(config: &Value) -> Option<String> {
    let keys: Vec<_> = config["needs_restart"].as_array()?.iter().filter_map(Value::as_str).collect();
    (!keys.is_empty()).then(|| format!("`{}`", keys.join("`, `")))
}

pub(super) fn ask_status(mailbox: &Mailbox, context: &Context) -> Result<Value, Error> {
    match handover::ask(context, mailbox, Operation::Status)? {
        Reply::Answer(Answer::Status(mut status)) => {
            if let Some(status) = status.as_object_mut() {
                status.shift_insert(0, "running".to_owned(), true.into());
                status.insert("log".to_owned(), context.paths.log().display().to_string().into());
                if let Some(problem) = mailbox.disk_problem() {
                    context.output.note(&format!("{}; {}", problem.message, problem.hint));
                    status.insert("disk".to_owned(), json!(problem));
                }
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
    let process = Process::new(Pid::from_raw(target));
    process.signal(Signal::SIGTERM)?;
    let grace = grace(context);
    let is_gone = |deadline: Instant| -> Result<bool, Error> {
        let mut backoff = Backoff::new(MAX_PAUSE);
        // The lock is free a moment before the process has ended.
        while executor_of(&mailbox)? == Some(pid) || process.is_alive() {
            if Instant::now() > deadline {
                return Ok(false);
            }
            backoff.pause(Some(deadline));
        }
        Ok(true)
    };
    let mut stopped = is_gone(Instant::now() + grace + STOP_TIMEOUT)?;
    if !stopped {
        context.output.note("the executor has not stopped yet; telling it to interrupt its tasks");
        process.signal(Signal::SIGTERM)?;
        stopped = is_gone(Instant::now() + STOP_TIMEOUT)?;
    }
    if !stopped {
        let message = format!("the executor (process {pid}) does not stop");
        return Err(Error::new(Code::NoExecutor, message).hint(format!(
            "end it by force: kill -KILL {pid}; no task is lost, and open tasks continue when it starts again; its log: {}",
            context.paths.log().display()
        )));
    }
    context.output.json(&json!({"stopped": true, "pid": pid, "mailbox": mailbox.root()}))?;
    Ok(Exit::Ok)
}

/// A process, which is not confused with a later one of the same id.
#[derive(Debug)]
struct Process {
    pid: Pid,
    started: Option<String>,
}

impl Process {
    fn new(pid: Pid) -> Self {
        Self { pid, started: Self::stat(pid).map(|(_, started)| started) }
    }

    fn signal(&self, signal: Signal) -> Result<(), Error> {
        match kill(self.pid, signal) {
            // It has just ended.
            Ok(()) | Err(nix::Error::ESRCH) => Ok(()),
            Err(error) => Err(Error::new(Code::NoExecutor, format!("failed to stop process {}: {error}", self.pid))),
        }
    }

    fn is_alive(&self) -> bool {
        match Self::stat(self.pid) {
            // A zombie has ended; its parent has not asked for its status yet.
            Some((state, started)) => state != 'Z' && Some(started) == self.started,
            // Without `/proc`.
            None => self.started.is_none() && kill(self.pid, None).is_ok(),
        }
    }

    /// Returns the state of a process, and when it was started.
    fn stat(pid: Pid) -> Option<(char, String)> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name of the program, in parentheses, may contain anything.
        let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        Some((fields.first()?.chars().next()?, (*fields.get(19)?).to_owned()))
    }
}

/// The grace period of running tasks. A broken configuration must not keep anyone from stopping the executor.
fn grace(context: &Context) -> Duration {
    Config::read(&context.paths).unwrap_or_default().executor.grace.get()
}

/// Changes the executor's folder directly, since a request through the mailbox might come from an agent.
fn switch_on(name: &str, session: Option<&str>, context: &Context) -> Result<Exit, Error> {
    let tool = name.parse().map_err(|error: InvalidName| Error::usage(error.to_string()))?;
    let switched = SwitchedOffTools::below(&context.paths.executor()).switch_on(&tool, session);
    let switched =
        switched.map_err(|error| Error::io("failed to update the subtools that are switched off", &error))?;
    if switched.is_empty() {
        let whose = session.map(|session| format!(" for the session `{session}`")).unwrap_or_default();
        return Err(Error::new(Code::NotFound, format!("`{tool}` is not switched off{whose}"))
            .hint("what is switched off: agent-magic-tool doctor"));
    }
    context.output.json(&json!({"switched_on": switched}))?;
    Ok(Exit::Ok)
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
    let ended = daemon::run(paths, JqPool::of_own_processes(), is_executor_running)
        .map_err(|error| Error::from(error.body(&paths.log())))?;
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
