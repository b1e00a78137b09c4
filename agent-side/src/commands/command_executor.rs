//! `command-executor`: serves the one tool of the caller's own agent as JSON lines.
//!
//! Each input line gets one output line, until standard input ends. Lines are processed one after another and answered in
//! order, except for those that wait for results, evaluate jq or say `"parallel": true`: they get a thread, if they have an
//! `id` by which their answer is recognized, and hold up no other line.

use std::io::{self, BufRead, Read as _};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use protocol::code::{Code, Exit};
use protocol::command_executor::{CommandExecutor, CommandOutput, Dialect};
use protocol::json;
use protocol::mailbox::for_callers::CallerSettings;
use protocol::mailbox::{MAX_REQUEST_BYTES, Mailbox};
use protocol::shell::Shell;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::context::Context;
use crate::error::Error;
use crate::in_process::InProcess;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print the tool definition for the model, and exit
    #[arg(long, value_name = "DIALECT", num_args = 0..=1, require_equals = true, default_missing_value = "openai")]
    definition: Option<DialectName>,
}

/// The provider format of the tool definition.
#[derive(Debug, Clone, Copy, clap::ValueEnum, Deserialize)]
#[serde(rename_all = "snake_case")]
enum DialectName {
    Openai,
    Anthropic,
    Gemini,
}

impl DialectName {
    fn definition(self) -> Value {
        match self {
            Self::Openai => Dialect::OpenAi.definition(),
            Self::Anthropic => Dialect::Anthropic.definition(),
            Self::Gemini => Dialect::Gemini.definition(),
        }
    }
}

/// One line of input: either a `command`, or a `definition` (`true` or a dialect).
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct InputLine {
    /// Returned with the answer.
    #[serde(default)]
    id: Value,
    #[serde(default)]
    command: Option<String>,
    /// Repeating a command with the same key delegates nothing twice.
    #[serde(default)]
    key: String,
    #[serde(default)]
    definition: Option<Value>,
    /// Whether the lines after this one may be answered before it. Needs an `id`.
    #[serde(default)]
    parallel: bool,
}

/// How many lines are processed at once; each takes a thread. More are processed one after another.
const MAX_PARALLEL: usize = 64;

pub fn run(
    args: &Args,
    context: &Context,
    settings: impl FnOnce(&Mailbox) -> Result<CallerSettings, Error>,
) -> Result<Exit, Error> {
    if let Some(dialect) = args.definition {
        context.output.whole_json(&dialect.definition())?;
        return Ok(Exit::Ok);
    }
    let shell: Arc<dyn Shell> = Arc::new(InProcess::of(context));
    let mailbox = Mailbox::open(&context.paths.mailbox)?;
    let settings = settings(&mailbox)?;
    let executor =
        CommandExecutor::new(shell, mailbox, context.caller.clone()).with_foreign_commands(settings.foreign_commands);
    let mut stdin = io::stdin().lock();
    // The first failure to print; there is nothing to answer after it.
    let failure = Mutex::new(None);
    let running = AtomicUsize::new(0);
    let print = |answer: &Value| {
        if let Err(error) = context.output.line(answer) {
            failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
    };
    thread::scope(|scope| {
        while let Some(line) = next_line(&mut stdin)? {
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            match parse(&line) {
                Ok(input) if is_parallel(&input, &executor) && running.load(Ordering::Relaxed) < MAX_PARALLEL => {
                    running.fetch_add(1, Ordering::Relaxed);
                    scope.spawn(|| {
                        print(&answer(input, &executor));
                        running.fetch_sub(1, Ordering::Relaxed);
                    });
                }
                Ok(input) => print(&answer(input, &executor)),
                Err(refusal) => print(&refusal),
            }
            if failure.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
                break;
            }
        }
        Ok::<(), Error>(())
    })?;
    match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(Exit::Ok),
    }
}

/// Whether the line gets a thread. Without an `id` its answer could not be told from those of the other lines.
fn is_parallel(line: &InputLine, executor: &CommandExecutor) -> bool {
    let may_take_long = || line.command.as_deref().is_some_and(|command| executor.may_take_long(command));
    !line.id.is_null() && (line.parallel || may_take_long())
}

/// Reads the next line. A line that is too long is cut after the first byte over the limit.
fn next_line(source: &mut impl BufRead) -> Result<Option<Vec<u8>>, Error> {
    let failed = |error: io::Error| Error::io("failed to read standard input", &error);
    let mut line = Vec::new();
    let read = source.by_ref().take(MAX_REQUEST_BYTES + 1).read_until(b'\n', &mut line).map_err(failed)?;
    if line.len() as u64 > MAX_REQUEST_BYTES && !line.ends_with(b"\n") {
        source.skip_until(b'\n').map_err(failed)?;
    }
    Ok((read > 0).then_some(line))
}

/// Parses a line; returns the answer to one that is not valid.
fn parse(line: &[u8]) -> Result<InputLine, Value> {
    let value = match json::parse(line) {
        _ if line.len() as u64 > MAX_REQUEST_BYTES => {
            let error = Error::new(Code::RequestTooLarge, format!("the line is larger than {MAX_REQUEST_BYTES} bytes"));
            return Err(error_line(&Value::Null, &error));
        }
        Ok(value) => value,
        Err(error) => {
            let error = Error::new(Code::InvalidJson, format!("the line is not valid JSON: {error}"));
            return Err(error_line(&Value::Null, &error));
        }
    };
    let id = value.get("id").cloned().unwrap_or_default();
    let line: InputLine = serde_json::from_value(value)
        .map_err(|error| error_line(&id, &usage(&format!("the line is malformed: {error}"))))?;
    if line.parallel && line.id.is_null() {
        return Err(error_line(&id, &usage("`parallel` needs an `id`, by which the answer is recognized")));
    }
    Ok(line)
}

fn answer(line: InputLine, executor: &CommandExecutor) -> Value {
    let id = line.id;
    match (line.command, line.definition) {
        (Some(command), None) => {
            let CommandOutput { text, status, opened, .. } = executor.execute(&command, &line.key);
            let tasks: Vec<_> = opened
                .iter()
                .map(|task| json!({"id": task.id, "tool": task.tool, "result_file": task.result_file}))
                .collect();
            json!({"id": id, "output": text, "exit": status, "tasks": tasks})
        }
        (None, Some(requested)) => {
            let dialect = match requested {
                Value::Bool(true) => Ok(DialectName::Openai),
                requested => serde_json::from_value(requested),
            };
            match dialect {
                Ok(dialect) => json!({"id": id, "definition": dialect.definition()}),
                Err(_) => error_line(&id, &usage("`definition` must be true, \"openai\", \"anthropic\" or \"gemini\"")),
            }
        }
        _ => error_line(&id, &usage("a line must have either a `command` or a `definition`")),
    }
}

fn usage(message: &str) -> Error {
    Error::usage(message).hint(r#"write lines like {"id": 1, "command": "agent-magic-tool list tools"}"#)
}

fn error_line(id: &Value, error: &Error) -> Value {
    json!({"id": id, "error": error.body()})
}
