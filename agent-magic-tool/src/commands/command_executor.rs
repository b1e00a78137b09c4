//! `command-executor`: the one tool of an agent of one's own, as JSON lines.
//!
//! One line in, one line out, in this order, until standard input ends. Starts no runtime: a line
//! that waits holds up those after it.

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
    /// Print the tool's definition, for the model, and do nothing else
    #[arg(long, value_name = "DIALECT", num_args = 0..=1, require_equals = true, default_missing_value = "openai")]
    definition: Option<DialectName>,
}

/// In whose words the definition is.
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

/// One line of the input: `command`, or `definition` (`true`, or a dialect).
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct InputLine {
    /// Comes back with the answer.
    #[serde(default)]
    id: Value,
    #[serde(default)]
    command: Option<String>,
    /// The same command under the same key delegates nothing twice.
    #[serde(default)]
    key: String,
    #[serde(default)]
    definition: Option<Value>,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<Exit, Error> {
    if let Some(words) = args.definition {
        context.output.json(&words.definition())?;
        return Ok(Exit::Ok);
    }
    let config = Config::read(&context.paths)?;
    let shell: Arc<dyn Shell> = Arc::new(InProcess::of(context));
    let mailbox = Mailbox::open(&context.paths.mailbox)?;
    let executor = CommandExecutor::new(shell, mailbox, context.caller.clone()).with_others(config.shell.others);
    let mut stdin = io::stdin().lock();
    while let Some(line) = next_line(&mut stdin)? {
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let answered = answer(&line, &executor);
        context.output.line(&answered)?;
    }
    Ok(Exit::Ok)
}

/// The next line; of one that is too long only so much that this can be told.
fn next_line(source: &mut impl BufRead) -> Result<Option<Vec<u8>>, Error> {
    let broken = |error: io::Error| Error::io("standard input cannot be read", &error);
    let mut line = Vec::new();
    let read = source.by_ref().take(MAX_REQUEST_BYTES + 1).read_until(b'\n', &mut line).map_err(broken)?;
    if line.len() as u64 > MAX_REQUEST_BYTES && !line.ends_with(b"\n") {
        source.skip_until(b'\n').map_err(broken)?;
    }
    Ok((read > 0).then_some(line))
}

fn answer(line: &[u8], executor: &CommandExecutor) -> Value {
    let id = |value: &Value| value.get("id").cloned().unwrap_or_default();
    let value = match json::parse(line) {
        _ if line.len() as u64 > MAX_REQUEST_BYTES => {
            let error = Error::new(Code::RequestTooLarge, format!("the line is larger than {MAX_REQUEST_BYTES} bytes"));
            return wrong(&Value::Null, &error);
        }
        Ok(value) => value,
        Err(error) => {
            let error = Error::new(Code::InvalidJson, format!("the line is not valid JSON: {error}"));
            return wrong(&Value::Null, &error);
        }
    };
    let shown_id = id(&value);
    match serde_json::from_value(value) {
        Ok(InputLine { id, command: Some(command), key, definition: None }) => {
            let CommandOutput { text, status, opened, .. } = executor.carry_out(&command, &key);
            let tasks: Vec<_> = opened
                .iter()
                .map(|task| json!({"id": task.id, "tool": task.tool, "result_file": task.result_file}))
                .collect();
            json!({"id": id, "output": text, "exit": status, "tasks": tasks})
        }
        Ok(InputLine { id, command: None, definition: Some(wanted), .. }) => {
            let words = match wanted {
                Value::Bool(true) => Ok(DialectName::Openai),
                wanted => serde_json::from_value(wanted),
            };
            match words {
                Ok(words) => json!({"id": id, "definition": words.definition()}),
                Err(_) => wrong(&id, &usage("`definition` is true, \"openai\", \"anthropic\" or \"gemini\"")),
            }
        }
        Ok(_) => wrong(&shown_id, &usage("a line has either a `command` or a `definition`")),
        Err(error) => wrong(&shown_id, &usage(&format!("the line cannot be understood: {error}"))),
    }
}

fn usage(message: &str) -> Error {
    Error::usage(message).hint(r#"{"id": 1, "command": "agent-magic-tool list tools"}"#)
}

fn wrong(id: &Value, error: &Error) -> Value {
    json!({"id": id, "error": error.body()})
}
