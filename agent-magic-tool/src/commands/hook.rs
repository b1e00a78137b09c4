//! `hook`: called by another maker's agent, at the start of a session and at the end of each turn.
//!
//! At the start it says in the mailbox that this session can be woken. At the end of a turn it waits for
//! what the session left open, and wakes it once for each result that it has not seen: by name and file,
//! never by content. With nothing open it answers at once and says nothing, so that the turn just ends.
//!
//! Whatever goes wrong, the client must go on as if there were no hook: the fault goes into `hook.log` in
//! the state folder, nothing is printed, and the exit status is 0. What each client sends and wants to hear
//! is said by the file of its name; decides nothing about tasks.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use executor::config::Config;
use protocol::code::{Code, Exit};
use protocol::duration::PositiveDuration;
use protocol::mailbox::Mailbox;
use protocol::mailbox::wakeups::WakeTarget;
use protocol::paths::Paths;
use protocol::task::TaskId;
use serde_json::Value;

use crate::commands::setup::client::Client;
use crate::context::Context;
use crate::error::Error;
use crate::launch::Launch;
use crate::output::Output;
use crate::result::{self, ResultFile, WaitMode};

mod blocking;
mod claude_code;
mod cursor;
mod gemini_cli;
mod opencode;

/// A client sends its words at once; one that never ends them is not waited for.
const INPUT_TIMEOUT: Duration = Duration::from_secs(5);
/// More than any client says; the last message of a turn is in it.
const MAX_INPUT_BYTES: u64 = 64 << 20;
/// How soon a waiting hook sees that another one took its place.
const LOOK_ROUND: Duration = Duration::from_secs(2);
/// More names than this help nobody.
const MAX_NAMED: usize = 20;
/// A log of more bytes begins anew.
const MAX_LOG_BYTES: u64 = 1 << 20;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The client that calls
    #[arg(value_name = "CLIENT")]
    client: Client,
    /// Wait for results this long at most, less than the client waits for its hook [default: by the settings]
    #[arg(long, value_name = "DURATION")]
    wait: Option<PositiveDuration>,
    /// The mailbox, where the client does not hand the environment on
    #[arg(long, value_name = "DIR")]
    mailbox: Option<PathBuf>,
}

/// What a client says when it calls.
#[derive(Debug, PartialEq)]
struct HookCall {
    moment: HookMoment,
    listener: WakeTarget,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HookMoment {
    /// A session begins, or goes on after a pause.
    Start,
    TurnEnds,
}

pub(crate) fn run(args: &Args, context: &Context) -> Exit {
    match wake(args, context) {
        Ok(exit) => exit,
        Err(error) => {
            // There is nobody to tell if not even the log can be written.
            drop(log(args.client, &error, &context.paths));
            Exit::Ok
        }
    }
}

fn wake(args: &Args, context: &Context) -> Result<Exit, Error> {
    let given = read_words()?;
    let call = match args.client {
        Client::ClaudeCode => claude_code::call(&given),
        Client::Codex => blocking::call("codex", &given),
        Client::GeminiCli => gemini_cli::call(&given),
        Client::Opencode => opencode::call(&given),
        Client::Cursor => cursor::call(&given),
        Client::Goose | Client::Aider | Client::AgentsMd => None,
    };
    let call = call.ok_or_else(|| Error::usage(format!("no call of {} that is known: {given}", args.client)))?;
    let mut paths = context.paths.clone();
    if let Some(mailbox) = &args.mailbox {
        paths.mailbox.clone_from(mailbox);
    }
    let mailbox = Mailbox::open(&paths.mailbox)?;
    let unwritten = |error| Error::io("the mailbox cannot be written", &error);
    mailbox.add_wake_target(&call.listener).map_err(unwritten)?;
    if call.moment == HookMoment::Start {
        return Ok(Exit::Ok);
    }
    let owed = mailbox.wakeups_for(&call.listener).map_err(unwritten)?;
    if owed.is_empty() {
        return Ok(Exit::Ok);
    }
    let wait = match args.wait {
        Some(wait) => wait,
        None => args.client.wait(&Config::read(&paths)?.wake),
    };
    let waiter =
        Waiter { call, mailbox, paths, deadline: Instant::now() + wait.get(), name: TaskId::new().to_string() };
    waiter.mailbox.set_waiter(&waiter.call.listener, &waiter.name).map_err(unwritten)?;
    waiter.wait(&context.output, args.client)
}

/// One document; whatever follows it, and whether anything does, is not waited for.
fn read_words() -> Result<Value, Error> {
    let (sender, words) = mpsc::sync_channel(1);
    std::thread::spawn(move || {
        let stdin = std::io::Read::take(std::io::stdin().lock(), MAX_INPUT_BYTES);
        let first = serde_json::Deserializer::from_reader(stdin).into_iter::<Value>().next();
        // Whoever waited has given up.
        drop(sender.send(first));
    });
    match words.recv_timeout(INPUT_TIMEOUT) {
        Ok(Some(Ok(given))) => Ok(given),
        Ok(Some(Err(error))) => Err(Error::new(Code::InvalidJson, format!("the client's words are no JSON: {error}"))),
        Ok(None) => Err(Error::usage("the client said nothing")),
        Err(_) => Err(Error::usage(format!("the client said nothing whole within {INPUT_TIMEOUT:?}"))),
    }
}

/// One hook that waits for one session.
#[derive(Debug)]
struct Waiter {
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
            let files = self.owed()?;
            if files.iter().any(ResultFile::is_final) {
                return self.tell(output, client);
            }
            let is_over = Instant::now() >= self.deadline;
            // A later turn of the same session waits for the same tasks.
            let is_relieved = !self.mailbox.is_waiter(&self.call.listener, &self.name);
            if files.is_empty() || is_over || is_relieved {
                return Ok(Exit::Ok);
            }
            let ids: Vec<_> = files.iter().map(|file| file.id).collect();
            let until = self.deadline.min(Instant::now() + LOOK_ROUND);
            result::wait_for(&ids, &self.mailbox, WaitMode::Any, Some(until), || launch.ensure().map(drop))?;
        }
    }

    fn owed(&self) -> Result<Vec<ResultFile>, Error> {
        let ids = self.mailbox.wakeups_for(&self.call.listener);
        let ids = ids.map_err(|error| Error::io("what the session is owed cannot be read", &error))?;
        // What was forgotten since then is nobody's concern.
        Ok(ids.into_iter().filter_map(|id| ResultFile::read(&self.mailbox, id).ok()).collect())
    }

    /// Says it first and takes the marks away then: killed in between, it is said once more.
    fn tell(&self, output: &Output, client: Client) -> Result<Exit, Error> {
        let unwritten = |error| Error::io("the session cannot be told", &error);
        let lock = self.mailbox.lock_wakeups(&self.call.listener).map_err(unwritten)?;
        let (ready, open): (Vec<_>, Vec<_>) = self.owed()?.into_iter().partition(ResultFile::is_final);
        if ready.is_empty() {
            return Ok(Exit::Ok);
        }
        let text = text(&ready, open.len(), &self.mailbox);
        let exit = match client {
            Client::ClaudeCode => claude_code::say(&text, output),
            Client::Codex => blocking::say("block", &text, output)?,
            Client::GeminiCli => blocking::say("deny", &text, output)?,
            Client::Opencode => opencode::say(&text, output)?,
            Client::Cursor => cursor::say(&text, output)?,
            Client::Goose | Client::Aider | Client::AgentsMd => Exit::Ok,
        };
        let ids: Vec<_> = ready.iter().map(|file| file.id).collect();
        lock.remove_delivered(&ids).map_err(unwritten)?;
        Ok(exit)
    }
}

/// What the model reads: which tasks, how they ended, where the results are. What is in them it reads there.
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
