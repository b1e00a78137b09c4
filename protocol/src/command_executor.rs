//! `command_executor`: the one tool that a model sees, a command line as its only argument.
//!
//! Calls of `agent-magic-tool` go to a [`Shell`]; a few programs read result files, in this process.
//! There is no shell: `line.rs` sees what a line would have done to one, and refuses it by name.
//! Anything else is refused or asked about, as the human's configuration says. Decides nothing
//! about tasks, and takes no word of a result for anything but text.

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::caller::Caller;
use crate::code::Code;
use crate::error::ErrorBody;
use crate::mailbox::Mailbox;
use crate::shell::{PrintedOutput, Shell};
use crate::task::{State, TaskId};
use answering::OutputBuilder;
use line::{CommandLine, PipelineCondition, Refusal, SimpleCommand, StreamTarget};
use reading::{ProgramOutput, ResultReader};

mod allowed;
mod answering;
mod definition;
mod line;
mod reading;

pub use allowed::AGENT_COMMANDS;
pub use definition::{Dialect, NAME, definition};
pub use reading::JqCall;

/// The subtool that carries out a whole line in a real shell, once a human has allowed it.
pub const SHELL_SUBTOOL: &str = "run_shell_command";

/// Carries out what a model asks of its one tool.
#[derive(Debug, Clone)]
pub struct CommandExecutor {
    shell: Arc<dyn Shell>,
    mailbox: Mailbox,
    caller: Caller,
    others: ForeignCommands,
}

/// What becomes of a command line that needs a real shell or another program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForeignCommands {
    Refuse,
    /// It becomes a task that a human must allow, each time.
    Ask,
}

/// A task that a call delegated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenedTask {
    pub id: TaskId,
    pub tool: String,
    pub result_file: PathBuf,
}

/// What became of one line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandOutput {
    /// As the model reads it: stdout, then stderr if any, then `exit status: N` when not 0; at most
    /// 50,000 bytes.
    pub text: String,
    pub status: u8,
    /// Tasks that this call delegated and whose results the model has not read.
    pub opened: Vec<OpenedTask>,
    /// Tasks whose final results the model has now read, however it did.
    pub collected: Vec<TaskId>,
    /// Every command was one that only waits or reads.
    pub only_reads: bool,
}

impl CommandOutput {
    /// The answer to a line that was not carried out.
    pub fn refused(error: &ErrorBody) -> Self {
        OutputBuilder::default().refused(error)
    }
}

impl CommandExecutor {
    pub fn new(shell: Arc<dyn Shell>, mailbox: Mailbox, caller: Caller) -> Self {
        Self { shell, mailbox, caller, others: ForeignCommands::Refuse }
    }

    /// What becomes of lines that are none of ours.
    #[must_use]
    pub fn with_others(mut self, others: ForeignCommands) -> Self {
        self.others = others;
        self
    }

    /// Carries out `command`, and blocks until that is done.
    ///
    /// Every `run` without an idempotency key gets `key` (`key-2` for the second of the line, and so on),
    /// so that the same line under the same key delegates nothing twice. An empty `key` is none.
    pub fn carry_out(&self, command: &str, key: &str) -> CommandOutput {
        match line::parse(command) {
            Ok(line) if line.pipelines.is_empty() => CommandOutput::refused(
                &ErrorBody::new(Code::Usage, "the command is empty").hint("begin with: agent-magic-tool --help"),
            ),
            Ok(line) => match line.commands().find(|command| !allowed::is_ours(&command.words)) {
                None => self.run(&line, key),
                Some(foreign) if self.others == ForeignCommands::Ask && allowed::advice(&foreign.words).is_none() => {
                    self.delegate(command, key)
                }
                Some(foreign) => CommandOutput::refused(&allowed::foreign(&foreign.words)),
            },
            Err(Refusal::Shell { .. }) if self.others == ForeignCommands::Ask => self.delegate(command, key),
            Err(refusal) => {
                let code = match refusal {
                    Refusal::Shell { .. } => Code::NotCarriedOut,
                    Refusal::Broken { .. } => Code::Usage,
                };
                CommandOutput::refused(&ErrorBody::new(code, refusal.to_string()).hint(refusal.hint()))
            }
        }
    }

    /// The whole line, as it is, becomes a task that a human reads first.
    fn delegate(&self, line: &str, key: &str) -> CommandOutput {
        let mut words = ["run", SHELL_SUBTOOL, "--input=-"].map(str::to_owned).to_vec();
        add_key(&mut words, key, 1);
        let printed = self.shell.call(&words, &json!({ "command": line }).to_string(), &self.caller);
        let mut answering = OutputBuilder::default();
        answering.note(&words, &printed, &self.mailbox);
        answering.print(printed.stdout.as_bytes());
        answering.complain(&printed.stderr);
        answering.end(printed.status, false)
    }

    fn run(&self, line: &CommandLine, key: &str) -> CommandOutput {
        let mut answering = OutputBuilder::default();
        let (mut status, mut runs) = (0, 0);
        for pipeline in &line.pipelines {
            let has_its_turn = match pipeline.after {
                PipelineCondition::Anything => true,
                PipelineCondition::Success => status == 0,
                PipelineCondition::Failure => status != 0,
            };
            let mut piped = Vec::new();
            for (index, command) in pipeline.commands.iter().enumerate() {
                let mut words = command.words.clone();
                if allowed::is_run(&words) {
                    // By its place in the line, whether it has its turn or not.
                    runs += 1;
                    add_key(&mut words, key, runs);
                }
                if !has_its_turn {
                    continue;
                }
                let stdin = line.stdin_of(command).map_or(piped, |text| text.as_bytes().to_vec());
                let ran = self.call(&words, stdin, &mut answering);
                status = ran.status;
                piped = pass_on(ran, command, &mut answering);
                if index + 1 == pipeline.commands.len() {
                    answering.print(&std::mem::take(&mut piped));
                }
            }
        }
        answering.end(status, line.commands().all(|command| allowed::only_reads(&command.words)))
    }

    fn call(&self, words: &[String], stdin: Vec<u8>, answering: &mut OutputBuilder) -> ProgramOutput {
        let Some(arguments) = allowed::arguments(words) else {
            let mut reading = ResultReader::new(&self.mailbox, &*self.shell, &self.caller);
            let ran = reading.run(words, stdin);
            answering.collect(reading.collected);
            return ran;
        };
        let printed = match allowed::barred(arguments) {
            Some(error) => PrintedOutput::refused(&error),
            None => self.shell.call(arguments, &String::from_utf8_lossy(&stdin), &self.caller),
        };
        answering.note(arguments, &printed, &self.mailbox);
        ProgramOutput { status: printed.status, stdout: printed.stdout.into_bytes(), stderr: printed.stderr }
    }
}

/// Gives what a command printed to where it goes; what comes back is for the next command.
fn pass_on(ran: ProgramOutput, command: &SimpleCommand, answering: &mut OutputBuilder) -> Vec<u8> {
    let mut next = Vec::new();
    match command.stdout {
        StreamTarget::Own => next = ran.stdout,
        StreamTarget::Other => answering.complain(&String::from_utf8_lossy(&ran.stdout)),
        StreamTarget::Nowhere => {}
    }
    match command.stderr {
        StreamTarget::Own => answering.complain(&ran.stderr),
        StreamTarget::Other => next.extend(ran.stderr.into_bytes()),
        StreamTarget::Nowhere => {}
    }
    next
}

/// Gives a `run` its idempotency key, unless it has one.
fn add_key(words: &mut Vec<String>, key: &str, number: usize) {
    let option = "--idempotency-key";
    if key.is_empty() || words.iter().any(|word| word.split('=').next() == Some(option)) {
        return;
    }
    let key = if number == 1 { key.to_owned() } else { format!("{key}-{number}") };
    let after_run = words.iter().position(|word| word == "run").map_or(words.len(), |place| place + 1);
    words.insert(after_run, format!("{option}={key}"));
}

/// Whether a result as it is printed is final, and its task.
fn result_of(printed: &Value) -> Option<(TaskId, bool)> {
    let id = printed["id"].as_str()?.parse().ok()?;
    let state: State = printed["status"].as_str()?.parse().unwrap_or(State::Accepted);
    Some((id, state.is_final()))
}

#[cfg(test)]
mod tests;
