//! `command_executor`: the one tool that a model sees. Its only argument is a command line.
//!
//! Calls of `agent-magic-tool` go to a [`Shell`]; a few programs that read result files run in this process.
//! No real shell is involved: `line.rs` parses the line and refuses shell features by name. Any other
//! program is refused or needs a human's confirmation, as configured. This module makes no decisions about
//! tasks and treats the content of results as text only.

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::caller::{CallBudget, Caller};
use crate::code::Code;
use crate::data_class::DataClass;
use crate::error::ErrorBody;
use crate::mailbox::Mailbox;
use crate::shell::{PLAN, PrintedOutput, Shell};
use crate::task::{State, TaskId};
use line::{CommandLine, PipelineCondition, Refusal, SimpleCommand, StreamTarget};
use output_builder::OutputBuilder;
use reading::{ProgramOutput, ResultReader};
use waiting_run::WaitingRun;

mod allowed;
mod definition;
mod line;
mod output_builder;
mod reading;
mod waiting_run;

pub use definition::{Dialect, NAME, definition};
pub use reading::{JqCall, task_in};
pub use waiting_run::DEFAULT_WAIT;

/// The subtool that runs a whole line in a real shell after a human has approved it.
pub const SHELL_SUBTOOL: &str = "run_shell_command";

/// Runs the command lines that a model passes to its one tool.
#[derive(Debug, Clone)]
pub struct CommandExecutor {
    shell: Arc<dyn Shell>,
    mailbox: Mailbox,
    caller: Caller,
    foreign_commands: ForeignCommands,
}

/// What to do with a command line that needs a real shell or another program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForeignCommands {
    Refuse,
    /// Make it a task that a human must approve, each time.
    Ask,
}

/// A task that a call created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenedTask {
    pub id: TaskId,
    pub tool: String,
    pub result_file: PathBuf,
}

/// What a running command line does that others should know before it has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallProgress<'a> {
    /// It created this task, or found the task that it created before.
    Opened(&'a OpenedTask),
    /// It waits for this task, which may take as long as a human does.
    WaitsFor(&'a OpenedTask),
}

/// Gets what a running command line does. It must not block.
pub type ProgressReporter<'a> = &'a dyn Fn(CallProgress<'_>);

/// The output of one command line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandOutput {
    /// The text for the model: standard output, then standard error if any, then `exit status: N` if it is
    /// not 0. At most 50,000 bytes.
    pub text: String,
    pub status: u8,
    /// Tasks that this line created and whose final results the model has not read.
    pub opened: Vec<OpenedTask>,
    /// Tasks whose final results the model has read with this line.
    pub collected: Vec<TaskId>,
    /// Whether every command of the line only waits for results or reads them.
    pub only_reads: bool,
}

impl CommandOutput {
    /// The output for a line that was not run.
    pub fn refused(error: &ErrorBody) -> Self {
        OutputBuilder::default().refused(error)
    }
}

impl CommandExecutor {
    pub fn new(shell: Arc<dyn Shell>, mailbox: Mailbox, caller: Caller) -> Self {
        Self { shell, mailbox, caller, foreign_commands: ForeignCommands::Refuse }
    }

    /// Sets what to do with lines that need a real shell or another program.
    #[must_use]
    pub fn with_foreign_commands(mut self, foreign_commands: ForeignCommands) -> Self {
        self.foreign_commands = foreign_commands;
        self
    }

    /// The most sensitive class of the results that a command names, of those that the caller's model may get: its answer
    /// may quote them.
    pub fn class_of_named(&self, command: &str) -> Option<DataClass> {
        let words = command.split(|character: char| !character.is_ascii_alphanumeric());
        let class_of = |id: TaskId| {
            let file = serde_json::from_slice(&self.mailbox.read_result(id).ok()?).ok()?;
            DataClass::of_result(&file)
        };
        let classes = words.filter_map(|word| class_of(word.parse().ok()?));
        classes.filter(|class| self.caller.trust.is_none_or(|trust| *class <= trust)).max()
    }

    /// Lowers the most sensitive data that the model may get.
    #[must_use]
    pub fn trusted_with(mut self, trust: DataClass) -> Self {
        self.caller = self.caller.trusted_with(trust);
        self
    }

    /// Sets the question that the lines work for, unless the caller itself works for one.
    #[must_use]
    pub fn for_question(mut self, question: Option<CallBudget>) -> Self {
        self.caller.call_budget = self.caller.call_budget.or(question);
        self
    }

    /// Whether a `run` of the line waits for a human, or would if one were there, as far as that is known before the
    /// line runs: what earlier commands of the line print is not. Blocks; runs nothing.
    pub fn needs_human(&self, command: &str) -> bool {
        let Ok(line) = line::parse(command) else { return self.foreign_commands == ForeignCommands::Ask };
        let asks = |command: &SimpleCommand| {
            if !allowed::is_ours(&command.words) {
                return self.foreign_commands == ForeignCommands::Ask;
            }
            let Some(arguments) = allowed::arguments(&command.words).filter(|_| allowed::is_run(&command.words)) else {
                return false;
            };
            let is_wait = |word: &String| word == "--wait" || word.starts_with("--wait=");
            let mut words: Vec<_> = arguments.iter().filter(|word| !is_wait(word)).cloned().collect();
            words.insert(1, PLAN.to_owned());
            let stdin = line.stdin_of(command).unwrap_or_default();
            let printed = self.shell.call(&words, stdin, &self.caller);
            let (plan, failure) = (json_or_null(&printed.stdout), json_or_null(&printed.stderr));
            plan["confirmation"].is_string() || failure["error"]["code"] == Code::NoApprover.as_str()
        };
        line.commands().any(asks)
    }

    /// Runs the line `command` and blocks until it has ended.
    ///
    /// Each `run` without an idempotency key gets `key` (`key-2` for the second one of the line, and so on),
    /// so the same line with the same key never creates a task twice. An empty `key` sets no keys.
    pub fn execute(&self, command: &str, key: &str) -> CommandOutput {
        self.execute_and_report(command, key, &|_| {})
    }

    /// Like [`Self::execute`]; tells `report` of each task as soon as it exists.
    pub fn execute_and_report(&self, command: &str, key: &str, report: ProgressReporter<'_>) -> CommandOutput {
        match line::parse(command) {
            Ok(line) if line.pipelines.is_empty() => CommandOutput::refused(
                &ErrorBody::new(Code::Usage, "the command is empty").hint("start with: agent-magic-tool --help"),
            ),
            Ok(line) => match line.commands().find(|command| !allowed::is_ours(&command.words)) {
                None => self.run(&line, key, report),
                Some(foreign)
                    if self.foreign_commands == ForeignCommands::Ask && allowed::advice(&foreign.words).is_none() =>
                {
                    self.delegate(command, key, report)
                }
                Some(foreign) => CommandOutput::refused(&allowed::foreign_program(&foreign.words)),
            },
            Err(Refusal::Shell { .. }) if self.foreign_commands == ForeignCommands::Ask => {
                self.delegate(command, key, report)
            }
            Err(refusal) => {
                let code = match refusal {
                    Refusal::Shell { .. } => Code::NotCarriedOut,
                    Refusal::Malformed { .. } => Code::Usage,
                };
                CommandOutput::refused(&ErrorBody::new(code, refusal.to_string()).hint(refusal.hint()))
            }
        }
    }

    /// Whether the line may take long: it waits for results, or only reads and evaluates a jq expression.
    pub fn may_take_long(&self, command: &str) -> bool {
        line::parse(command).is_ok_and(|line| {
            let waits = line.commands().any(|command| allowed::waits(&command.words));
            let only_reads = || line.commands().all(|command| allowed::only_reads(&command.words));
            waits || line.commands().any(|command| allowed::evaluates_jq(&command.words)) && only_reads()
        })
    }

    /// Makes the unchanged line a task of [`SHELL_SUBTOOL`], which a human must approve.
    fn delegate(&self, line: &str, key: &str, report: ProgressReporter<'_>) -> CommandOutput {
        let mut words = ["run", SHELL_SUBTOOL, "--input=-"].map(str::to_owned).to_vec();
        add_key(&mut words, key, 1);
        let printed = self.shell.call(&words, &json!({ "command": line }).to_string(), &self.caller);
        let mut output = OutputBuilder::default();
        if let Some(task) = output.record_call(&words, &printed, &self.mailbox) {
            report(CallProgress::Opened(task));
        }
        output.print(printed.stdout.as_bytes());
        output.print_error(&printed.stderr);
        output.finish(printed.status, false)
    }

    fn run(&self, line: &CommandLine, key: &str, report: ProgressReporter<'_>) -> CommandOutput {
        let mut output = OutputBuilder::default();
        let (mut status, mut runs) = (0, 0);
        for pipeline in &line.pipelines {
            let is_executed = match pipeline.condition {
                PipelineCondition::Always => true,
                PipelineCondition::Success => status == 0,
                PipelineCondition::Failure => status != 0,
            };
            let (mut piped, mut before) = (Vec::new(), None);
            for (index, command) in pipeline.commands.iter().enumerate() {
                let mut words = command.words.clone();
                if allowed::is_run(&words) {
                    // Counts skipped commands too, so that a key depends only on the position in the line.
                    runs += 1;
                    add_key(&mut words, key, runs);
                }
                if !is_executed {
                    continue;
                }
                let later = &pipeline.commands[index + 1..];
                if !later.iter().any(|command| allowed::evaluates_jq(&command.words)) {
                    allowed::list_as_signatures(&mut words);
                }
                let stdin = line.stdin_of(command).map_or(piped, |text| text.as_bytes().to_vec());
                let printed = self.call(&words, stdin, &mut output, report);
                let printed = unless_in_vain(printed, before.take());
                status = printed.status;
                piped = redirect(printed, command, &mut output);
                if later.is_empty() {
                    output.print(&std::mem::take(&mut piped));
                } else if allowed::is_jq(&later[0].words) && allowed::arguments(&words).is_some() {
                    before = Some((status, piped.clone()));
                    let note;
                    (piped, note) = ResultReader::new(&self.mailbox, &*self.shell, &self.caller).with_whole_data(piped);
                    output.print_error(&note.map(|note| format!("note: {note}\n")).unwrap_or_default());
                }
            }
        }
        output.finish(status, line.commands().all(|command| allowed::only_reads(&command.words)))
    }

    fn call(
        &self,
        words: &[String],
        stdin: Vec<u8>,
        output: &mut OutputBuilder,
        report: ProgressReporter<'_>,
    ) -> ProgramOutput {
        let Some(arguments) = allowed::arguments(words) else {
            let mut reader = ResultReader::new(&self.mailbox, &*self.shell, &self.caller);
            let printed = reader.run(words, stdin);
            output.collect(reader.collected);
            return printed;
        };
        let printed = match allowed::forbidden_call(arguments) {
            Some(error) => PrintedOutput::refused(&error),
            None => self.call_ours(arguments, &String::from_utf8_lossy(&stdin), output, report),
        };
        ProgramOutput { status: printed.status, stdout: printed.stdout.into_bytes(), stderr: printed.stderr }
    }

    /// Makes a call of `agent-magic-tool`. One that waits is made in its two steps.
    fn call_ours(
        &self,
        arguments: &[String],
        stdin: &str,
        output: &mut OutputBuilder,
        report: ProgressReporter<'_>,
    ) -> PrintedOutput {
        let steps = WaitingRun::of(arguments);
        let arguments = steps.as_ref().map_or(arguments, |steps| &steps.run);
        let printed = self.shell.call(arguments, stdin, &self.caller);
        let opened = output.record_call(arguments, &printed, &self.mailbox);
        if let Some(task) = opened {
            report(CallProgress::Opened(task));
        }
        let Some(steps) = steps else { return printed };
        if let Some(task) = opened {
            report(CallProgress::WaitsFor(task));
        }
        let Some((id, _)) = result_of(&json_or_null(&printed.stdout)) else { return printed };
        let wait = steps.wait(id);
        let waited = self.shell.call(&wait, "", &self.caller);
        output.record_call(&wait, &waited, &self.mailbox);
        PrintedOutput { stderr: printed.stderr + &waited.stderr, ..waited }
    }
}

/// What `jq` printed of the result of the command `before` it, given as its status and its output. If that failed and `jq` found
/// nothing, it is what the command said; if `jq` failed on a result, it is also where the data is.
fn unless_in_vain(mut printed: ProgramOutput, before: Option<(u8, Vec<u8>)>) -> ProgramOutput {
    let Some((status, stdout)) = before else { return printed };
    let is_in_vain = printed.status != 0 || matches!(printed.stdout.trim_ascii(), b"" | b"null");
    match (status, printed.status) {
        (0, 0) => printed,
        (0, _) => {
            let id = result_of(&json_or_null(&String::from_utf8_lossy(&stdout))).map(|(id, _)| id.to_string());
            let again = id.map(|id| format!(", so do not run it again: agent-magic-tool wait {id} | jq '.data'"));
            let again = again.unwrap_or_default();
            let note = format!("note: after `|`, jq sees the whole result, and its data is `.data`{again}\n");
            printed.stderr.push_str(&note);
            printed
        }
        _ if is_in_vain => {
            let stderr = "note: jq found nothing, since the command before it did not succeed; this is what it said\n";
            ProgramOutput { status, stdout, stderr: stderr.to_owned() }
        }
        _ => printed,
    }
}

/// The first line of `text` as JSON; notes may follow it.
fn json_or_null(text: &str) -> Value {
    serde_json::Deserializer::from_str(text).into_iter().next().and_then(Result::ok).unwrap_or_default()
}

/// Applies the redirections of `command` to its output. Returns the standard input of the next command.
fn redirect(printed: ProgramOutput, command: &SimpleCommand, output: &mut OutputBuilder) -> Vec<u8> {
    let mut piped = Vec::new();
    match command.stdout {
        StreamTarget::Own => piped = printed.stdout,
        StreamTarget::Other => output.print_error(&String::from_utf8_lossy(&printed.stdout)),
        StreamTarget::Null => {}
    }
    match command.stderr {
        StreamTarget::Own => output.print_error(&printed.stderr),
        StreamTarget::Other => piped.extend(printed.stderr.into_bytes()),
        StreamTarget::Null => {}
    }
    piped
}

/// Adds the idempotency key to a `run`, unless it has one.
fn add_key(words: &mut Vec<String>, key: &str, number: usize) {
    let option = "--idempotency-key";
    if key.is_empty() || words.iter().any(|word| word.split('=').next() == Some(option)) {
        return;
    }
    let key = if number == 1 { key.to_owned() } else { format!("{key}-{number}") };
    let after_run = words.iter().position(|word| word == "run").map_or(words.len(), |place| place + 1);
    words.insert(after_run, format!("{option}={key}"));
}

/// The task of a printed result, and whether the result is final.
fn result_of(printed: &Value) -> Option<(TaskId, bool)> {
    let id = printed["id"].as_str()?.parse().ok()?;
    let state: State = printed["status"].as_str()?.parse().unwrap_or(State::Accepted);
    Some((id, state.is_final()))
}

#[cfg(test)]
mod tests;
