//! `command-executor`: serves the one tool of the caller's own agent as JSON lines.
//!
//! Each input line gets one output line, in order, until standard input ends. Lines are processed one
//! after another, so a command that waits delays the lines after it.

use std::io::{self, BufRead, Read as _};
use std::sync::Arc;

use executor::config::Config;
use protocol::code::{Code, Exit};
use protocol::command_executor::{CommandExecutor, CommandOutput, Dialect};
use protocol::json;
use protocol::mailbox::{MAX_REQUEST_BYTES, Mailbox};
use protocol::shell::Shell;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::context::Context;
use crate::error::Error;
use crate::in_process::InProcess;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
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
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<Exit, Error> {
    if let Some(dialect) = args.definition {
        context.output.json(&dialect.definition())?;
        return Ok(Exit::Ok);
    }
    let config = Config::read(&context.paths)?;
    let shell: Arc<dyn Shell> = Arc::new(InProcess::of(context));
    let mailbox = Mailbox::open(&context.paths.mailbox)?;
    let executor =
        CommandExecutor::new(shell, mailbox, context.caller.clone()).with_foreign_commands(config.shell.others);
    let mut stdin = io::stdin().lock();
    while let Some(line) = next_line(&mut stdin)? {
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        context.output.line(&answer(&line, &executor))?;
    }
    Ok(Exit::Ok)
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

fn answer(line: &[u8], executor: &CommandExecutor) -> Value {
    let value = match json::parse(line) {
        _ if line.len() as u64 > MAX_REQUEST_BYTES => {
            let error = Error::new(Code::RequestTooLarge, format!("the line is larger than {MAX_REQUEST_BYTES} bytes"));
            return error_line(&Value::Null, &error);
        }
        Ok(value) => value,
        Err(error) => {
            let error = Error::new(Code::InvalidJson, format!("the line is not valid JSON: {error}"));
            return error_line(&Value::Null, &error);
        }
    };
    let given_id = value.get("id").cloned().unwrap_or_default();
    match serde_json::from_value(value) {
        Ok(InputLine { id, command: Some(command), key, definition: None }) => {
            let CommandOutput { text, status, opened, .. } = executor.execute(&command, &key);
            let tasks: Vec<_> = opened
                .iter()
                .map(|task| json!({"id": task.id, "tool": task.tool, "result_file": task.result_file}))
                .collect();
            json!({"id": id, "output": text, "exit": status, "tasks": tasks})
        }
        Ok(InputLine { id, command: None, definition: Some(requested), .. }) => {
            let dialect = match requested {
                Value::Bool(true) => Ok(DialectName::Openai),
                requested => serde_json::from_value(requested),
            };
            match dialect {
                Ok(dialect) => json!({"id": id, "definition": dialect.definition()}),
                Err(_) => error_line(&id, &usage("`definition` must be true, \"openai\", \"anthropic\" or \"gemini\"")),
            }
        }
        Ok(_) => error_line(&given_id, &usage("a line must have either a `command` or a `definition`")),
        Err(error) => error_line(&given_id, &usage(&format!("the line is malformed: {error}"))),
    }
}

fn usage(message: &str) -> Error {
    Error::usage(message).hint(r#"write lines like {"id": 1, "command": "agent-magic-tool list tools"}"#)
}

fn error_line(id: &Value, error: &Error) -> Value {
    json!({"id": id, "error": error.body()})
}
