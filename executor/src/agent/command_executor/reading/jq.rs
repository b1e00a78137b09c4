//! `jq`: expressions over JSON texts.
//!
//! What an expression takes in time and memory nobody can tell beforehand, so it is evaluated in a
//! process of its own, by [`filter`]; here its files are read.

use serde_json::Value;

use super::options::{self, Options};
use super::{Failed, Ran, Reading};
use crate::agent::shell::Printed;
use crate::code::Exit;
use crate::select::{self, SelectError};

/// An expression takes some ten times as much memory as its data.
const MOST_BYTES: usize = 32 << 20;

const LONG: [(&str, char); 4] = [("raw-output", 'r'), ("compact-output", 'c'), ("slurp", 's'), ("null-input", 'n')];

fn options(arguments: &[String]) -> Result<(Options, String), Failed> {
    let mut options = options::read("jq", "-r, -c, -s, -n", "rcsnM", "", &LONG, arguments)?;
    let expression = if options.operands.is_empty() { ".".to_owned() } else { options.operands.remove(0) };
    Ok((options, expression))
}

pub(super) fn jq(arguments: &[String], reading: &mut Reading<'_>) -> Result<Ran, Failed> {
    let (options, expression) = options(arguments)?;
    let mut text = Vec::new();
    if !options.has('n') {
        for file in options.files() {
            text.extend(reading.read(&file)?);
            text.push(b'\n');
        }
    }
    if text.len() > MOST_BYTES {
        return Err(Failed(2, format!("more than {MOST_BYTES} bytes; use: agent-magic-tool read ID --jq EXPR")));
    }
    let flags = "rcsn".chars().filter(|letter| options.has(*letter)).map(|letter| format!("-{letter}"));
    let words: Vec<_> =
        std::iter::once("jq".to_owned()).chain(flags).chain(["--".to_owned(), expression.clone()]).collect();
    let printed = reading.shell.call(&words, &String::from_utf8_lossy(&text), reading.caller);
    if printed.status == Exit::Bug as u8 {
        return Err(Failed(5, format!("`{expression}` takes too much time or memory; ask for less")));
    }
    Ok(Ran { status: printed.status, stdout: printed.stdout.into_bytes(), stderr: printed.stderr })
}

/// What `jq` prints for these arguments, which name no files, and this input.
pub fn filter(arguments: &[String], input: &[u8]) -> Printed {
    evaluate(arguments, input).unwrap_or_else(|Failed(status, message)| Printed {
        status,
        stdout: String::new(),
        stderr: format!("jq: {message}\n"),
    })
}

fn evaluate(arguments: &[String], input: &[u8]) -> Result<Printed, Failed> {
    let (options, expression) = options(arguments)?;
    let mut inputs = Vec::new();
    for input in serde_json::Deserializer::from_slice(input).into_iter::<Value>() {
        inputs.push(input.map_err(|error| Failed(2, format!("the input is not JSON: {error}")))?);
    }
    if options.has('n') {
        inputs = vec![Value::Null];
    } else if options.has('s') {
        inputs = vec![Value::Array(inputs)];
    }
    select::check(&expression).map_err(failed)?;
    let mut stdout = String::new();
    for input in &inputs {
        for output in select::outputs(&expression, input).map_err(failed)? {
            let text = match output {
                Value::String(text) if options.has('r') => text,
                value if options.has('c') => value.to_string(),
                value => format!("{value:#}"),
            };
            stdout.extend([text.as_str(), "\n"]);
        }
    }
    Ok(Printed { stdout, ..Printed::default() })
}

#[expect(clippy::needless_pass_by_value, reason = "it is made for `map_err`")]
fn failed(error: SelectError) -> Failed {
    match error {
        SelectError::Syntax { .. } => Failed(3, error.to_string()),
        SelectError::Failed { .. } => Failed(5, error.to_string()),
    }
}
