//! `hook`: called by a third-party agent at the start of a session and at the end of each turn.
//!
//! At the start of a session it records in the mailbox that the session can be woken. At the end of a
//! turn it waits for the session's open tasks and wakes the session once for each result that it has not
//! seen. The wake-up contains ids and file names, never the content of a result. Without open tasks it
//! returns immediately and prints nothing, so the turn ends as usual.
//!
//! An error must never disturb the client: it is appended to `hook.log` in the state folder, nothing is
//! printed, and the exit status is 0. The file named after a client implements its hook protocol.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use protocol::caller::Caller;
use protocol::code::{Code, Exit};
use protocol::duration::PositiveDuration;
use protocol::mailbox::Mailbox;
use protocol::mailbox::for_callers::CallerSettings;
use protocol::mailbox::wakeups::WakeTarget;
use protocol::paths::Paths;
use protocol::task::TaskId;
use serde_json::Value;

use crate::client::Client;
use crate::context::Context;
use crate::error::Error;
use crate::launch::Launch;
use crate::output::Output;
use crate::result::ResultFile;
use crate::waiting::{self, NextLook, WATCH_AFTER};

mod blocking;
mod claude_code;
mod cursor;
mod gemini_cli;
mod opencode;

/// How long the client may take to send its input, which it normally sends at once.
const INPUT_TIMEOUT: Duration = Duration::from_secs(5);
/// The largest input that is read. Some clients include the last message of the turn.
const MAX_INPUT_BYTES: u64 = 64 << 20;
/// How often a waiting hook checks whether another one has replaced it.
const REPLACED_CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// The most tasks that a wake-up lists.
const MAX_NAMED: usize = 20;
/// A larger log is deleted before the next entry.
const MAX_LOG_BYTES: u64 = 1 << 20;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The client that calls the hook
    #[arg(value_name = "CLIENT")]
    client: Client,
    /// Wait at most this long for results; must be less than the client's hook timeout [default: from the settings]
    #[arg(long, value_name = "DURATION")]
    wait: Option<PositiveDuration>,
    /// The mailbox, for clients that do not pass on the environment
    #[arg(long, value_name = "DIR")]
    mailbox: Option<PathBuf>,
}

/// A client's call of the hook.
#[derive(Debug, PartialEq)]
struct HookCall {
    event: HookEvent,
    target: WakeTarget,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HookEvent {
    /// A session starts or is resumed.
    SessionStart,
    TurnEnd,
}

/// How a program learns the settings that callers go by.
type SettingsOf<'a> = &'a dyn Fn(&Paths, &Mailbox) -> Result<CallerSettings, Error>;

pub fn run(
    args: &Args,
    context: &Context,
    settings: impl Fn(&Paths, &Mailbox) -> Result<CallerSettings, Error>,
) -> Exit {
    match wake(args, context, &settings) {
        Ok(exit) => exit,
        Err(error) => {
            // Without a log there is no other place to report the error.
            drop(log(args.client, &error, &context.paths));
            Exit::Ok
        }
    }
}

fn wake(args: &Args, context: &Context, settings: SettingsOf<'_>) -> Result<Exit, Error> {
    let input = read_input()?;
    let call = match args.client {
        Client::ClaudeCode => claude_code::parse(&input),
        Client::Codex => blocking::parse("codex", &input),
        Client::GeminiCli => gemini_cli::parse(&input),
        Client::Opencode => opencode::parse(&input),
        Client::Cursor => cursor::parse(&input),
        Client::Goose
        | Client::Aider
        | Client::AgentsMd
        | Client::ClaudeDesktop
        | Client::VsCode
        | Client::Zed
        | Client::LmStudio => None,
    };
    let call = call.ok_or_else(|| Error::usage(format!("not a known hook call of {}: {input}", args.client)))?;
    let mut paths = context.paths.clone();
    if let Some(mailbox) = &args.mailbox {
        paths.mailbox.clone_from(mailbox);
    }
    let mailbox = Mailbox::open(&paths.mailbox)?;
    let failed = |error| Error::io("failed to update the wake-ups in the mailbox", &error);
    mailbox.add_wake_target(&call.target).map_err(failed)?;
    if call.event == HookEvent::SessionStart {
        return Ok(Exit::Ok);
    }
    let wakeups = mailbox.wakeups_for(&call.target).map_err(failed)?;
    if wakeups.is_empty() {
        return Ok(Exit::Ok);
    }
    let wait = match args.wait {
        Some(wait) => wait,
        None => args.client.wait(&settings(&paths, &mailbox)?),
    };
    let waiter = Waiter {
        caller: context.caller.clone(),
        call,
        mailbox,
        paths,
        deadline: Instant::now() + wait.get(),
        name: TaskId::new().to_string(),
    };
    waiter.mailbox.set_waiter(&waiter.call.target, &waiter.name).map_err(failed)?;
    waiter.wait(&context.output, args.client)
}

/// Reads one JSON document from standard input, without waiting for the end of input after it.
fn read_input() -> Result<Value, Error> {
    let (sender, documents) = mpsc::sync_channel(1);
    std::thread::spawn(move || {
        let stdin = std::io::Read::take(std::io::stdin().lock(), MAX_INPUT_BYTES);
        let first = serde_json::Deserializer::from_reader(stdin).into_iter::<Value>().next();
        // Fails only if the receiver has timed out.
        drop(sender.send(first));
    });
    match documents.recv_timeout(INPUT_TIMEOUT) {
        Ok(Some(Ok(input))) => Ok(input),
        Ok(Some(Err(error))) => {
            Err(Error::new(Code::InvalidJson, format!("the client's input is not valid JSON: {error}")))
        }
        Ok(None) => Err(Error::usage("the client sent no input")),
        Err(_) => Err(Error::usage(format!("the client sent no complete input within {INPUT_TIMEOUT:?}"))),
    }
}

/// A hook that waits for the results of one session.
#[derive(Debug)]
struct Waiter {
    caller: Caller,
    call: HookCall,
    mailbox: Mailbox,
    paths: Paths,
    deadline: Instant,
    name: String,
}

impl Waiter {
    fn wait(&self, output: &Output, client: Client) -> Result<Exit, Error> {
        let mut launch = Launch::new(&self.paths, &self.mailbox);
        loop {
            let files = self.awaited_files()?;
            if files.iter().any(ResultFile::is_final) {
                return self.deliver(output, client);
            }
            let timed_out = Instant::now() >= self.deadline;
            // The hook of a later turn of the same session waits for the same tasks.
            let is_replaced = !self.mailbox.is_waiter(&self.call.target, &self.name);
            if files.is_empty() || timed_out || is_replaced {
                return Ok(Exit::Ok);
            }
            let ids: Vec<_> = files.iter().map(|file| file.id).collect();
            let until = self.deadline.min(Instant::now() + REPLACED_CHECK_INTERVAL);
            waiting::wait_until(&ids, &self.mailbox, &self.caller, |files, waited| {
                if waited >= WATCH_AFTER {
                    launch.ensure()?;
                }
                let is_over = files.iter().any(ResultFile::is_final) || until <= Instant::now();
                Ok(if is_over { NextLook::Never } else { NextLook::Until(until) })
            })?;
        }
    }

    /// The result files of the tasks that the session is still to be woken for.
    fn awaited_files(&self) -> Result<Vec<ResultFile>, Error> {
        let ids = self.mailbox.wakeups_for(&self.call.target);
        let ids = ids.map_err(|error| Error::io("failed to read the wake-ups of the session", &error))?;
        // A task without a result file was deleted meanwhile; that of another owner is not for this session.
        Ok(ids.into_iter().filter_map(|id| ResultFile::read(&self.mailbox, id, &self.caller).ok()).collect())
    }

    /// Prints the wake-up and then removes its records. If the hook is killed in between, the session is woken twice
    /// rather than never.
    fn deliver(&self, output: &Output, client: Client) -> Result<Exit, Error> {
        let failed = |error| Error::io("failed to record the delivery", &error);
        let lock = self.mailbox.lock_wakeups(&self.call.target).map_err(failed)?;
        let (ready, open): (Vec<_>, Vec<_>) = self.awaited_files()?.into_iter().partition(ResultFile::is_final);
        if ready.is_empty() {
            return Ok(Exit::Ok);
        }
        let text = text(&ready, open.len(), &self.mailbox);
        let exit = match client {
            Client::ClaudeCode => claude_code::respond(&text, output),
            Client::Codex => blocking::respond("block", &text, output)?,
            Client::GeminiCli => blocking::respond("deny", &text, output)?,
            Client::Opencode => opencode::respond(&text, output)?,
            Client::Cursor => cursor::respond(&text, output)?,
            Client::Goose
            | Client::Aider
            | Client::AgentsMd
            | Client::ClaudeDesktop
            | Client::VsCode
            | Client::Zed
            | Client::LmStudio => Exit::Ok,
        };
        let ids: Vec<_> = ready.iter().map(|file| file.id).collect();
        lock.remove_delivered(&ids).map_err(failed)?;
        Ok(exit)
    }
}

/// The message to the model: which tasks ended, how, and where their results are, but not their content.
fn text(ready: &[ResultFile], open: usize, mailbox: &Mailbox) -> String {
    let mut lines = vec!["Results are ready:".to_owned()];
    lines.extend(ready.iter().take(MAX_NAMED).map(|file| {
        let tool = file.field("tool").as_str().unwrap_or("task");
        format!("- {} ({tool}): {}, {}", file.id, file.state, mailbox.result_file(file.id).display())
    }));
    if ready.len() > MAX_NAMED {
        lines.push(format!("- and {} more: agent-magic-tool tasks", ready.len() - MAX_NAMED));
    }
    lines.push("Read them with `agent-magic-tool read ID`, then go on.".to_owned());
    if open > 0 {
        lines.push(format!("{open} more under way; you will be woken for the rest."));
    }
    lines.join("\n")
}

fn log(client: Client, error: &Error, paths: &Paths) -> std::io::Result<()> {
    paths.create_state()?;
    let path = paths.state.join("hook.log");
    if fs::metadata(&path).is_ok_and(|found| found.len() > MAX_LOG_BYTES) {
        fs::remove_file(&path)?;
    }
    let line = serde_json::json!({"at": protocol::clock::now().to_string(), "client": client, "error": error.body()});
    writeln!(fs::OpenOptions::new().create(true).append(true).open(path)?, "{line}")
}
