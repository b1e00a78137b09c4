//! `jq`: expressions over JSON texts, bounded in time.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::options;
use super::{Failed, Ran, Reading};
use crate::select::{self, SelectError};

/// An expression takes some ten times as much memory as its data.
const MOST_BYTES: usize = 32 << 20;
/// Longer ones are no question about a result.
const LONGEST_EXPRESSION: usize = 8_000;
/// Far more than an honest expression takes.
const LONGEST: Duration = Duration::from_secs(10);
/// Deeply nested expressions and data need a deep stack.
const STACK: usize = 64 << 20;

const LONG: [(&str, char); 4] = [("raw-output", 'r'), ("compact-output", 'c'), ("slurp", 's'), ("null-input", 'n')];

pub(super) fn jq(arguments: &[String], reading: &mut Reading<'_>) -> Result<Ran, Failed> {
    let mut options = options::read("jq", "-r, -c, -s, -n", "rcsnM", "", &LONG, arguments)?;
    let expression = if options.operands.is_empty() { ".".to_owned() } else { options.operands.remove(0) };
    if expression.len() > LONGEST_EXPRESSION || defines(&expression) {
        let message = format!("an expression has at most {LONGEST_EXPRESSION} bytes here, and defines no functions");
        return Err(Failed(3, message));
    }
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
    let (slurp, null) = (options.has('s'), options.has('n'));
    let outputs = bounded(move || {
        let mut inputs = Vec::new();
        for input in serde_json::Deserializer::from_slice(&text).into_iter::<Value>() {
            inputs.push(input.map_err(|error| Failed(2, format!("the input is not JSON: {error}")))?);
        }
        match (null, slurp) {
            (true, _) => inputs = vec![Value::Null],
            (false, true) => inputs = vec![Value::Array(inputs)],
            (false, false) => {}
        }
        let mut outputs = Vec::new();
        for input in &inputs {
            outputs.extend(select::outputs(&expression, input).map_err(failed)?);
        }
        Ok(outputs)
    })?;
    let mut stdout = String::new();
    for output in &outputs {
        match output {
            Value::String(text) if options.has('r') => stdout.push_str(text),
            value if options.has('c') => stdout.push_str(&value.to_string()),
            value => stdout.push_str(&format!("{value:#}")),
        }
        stdout.push('\n');
    }
    Ok(Ran { stdout: stdout.into_bytes(), ..Ran::default() })
}

fn failed(error: SelectError) -> Failed {
    match error {
        SelectError::Syntax { .. } => Failed(3, error.to_string()),
        SelectError::Failed { .. } => Failed(5, error.to_string()),
    }
}

/// Whether it could call itself for ever.
fn defines(expression: &str) -> bool {
    let is_part_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$' | '"' | ':');
    expression.match_indices("def").any(|(at, word)| {
        let after = &expression[at + word.len()..];
        !expression[..at].ends_with(is_part_of_name) && after.starts_with(char::is_whitespace)
    })
}

/// What `work` gives, unless it takes too long: then it is left to itself.
fn bounded<T: Send + 'static>(work: impl FnOnce() -> Result<T, Failed> + Send + 'static) -> Result<T, Failed> {
    let (sender, done) = mpsc::sync_channel(1);
    let run = move || drop(sender.send(work()));
    thread::Builder::new()
        .name("jq".to_owned())
        .stack_size(STACK)
        .spawn(run)
        .map_err(|error| Failed(2, format!("it cannot be started: {error}")))?;
    done.recv_timeout(LONGEST).map_err(|_| Failed(5, format!("it took longer than {LONGEST:?}; ask for less")))?
}

#[cfg(test)]
mod tests {
    use super::defines;

    #[test]
    fn a_definition_is_seen_and_a_name_is_not_taken_for_one() {
        assert!(defines("def f: f; f") && defines(". | def  g(x): x; g(1)"));
        assert!(!defines(".def | .default") && !defines("\"def \""));
    }
}
