//! `jq`: evaluates an expression over JSON texts.
//!
//! The time and memory that an expression takes are not known in advance, so the hidden command `jq`
//! evaluates it in its own process. This module reads the files for it.

use super::options::{self, ProgramOptions};
use super::{ProgramFailure, ProgramOutput, ResultReader};
use crate::code::Exit;

/// The largest input. Evaluating an expression takes about ten times as much memory as its input.
const MAX_BYTES: usize = 32 << 20;

const LONG: [(&str, char); 4] = [("raw-output", 'r'), ("compact-output", 'c'), ("slurp", 's'), ("null-input", 'n')];

/// A call of `jq`, without its files.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "these are independent options of jq")]
pub struct JqCall {
    pub expression: String,
    /// Whether strings are printed as they are, not as JSON.
    pub raw: bool,
    pub compact: bool,
    /// Whether all inputs are combined into one array.
    pub slurp: bool,
    /// Whether the only input is `null`.
    pub null_input: bool,
}

impl JqCall {
    /// Parses the arguments of a call without files.
    pub fn parse(arguments: &[String]) -> Result<Self, String> {
        options(arguments)
            .map(|(options, expression)| Self::of(&options, expression))
            .map_err(|ProgramFailure(_, message)| message)
    }

    fn of(options: &ProgramOptions, expression: String) -> Self {
        Self {
            expression,
            raw: options.has('r'),
            compact: options.has('c'),
            slurp: options.has('s'),
            null_input: options.has('n'),
        }
    }
}

fn options(arguments: &[String]) -> Result<(ProgramOptions, String), ProgramFailure> {
    let mut options = options::read("jq", "-r, -c, -s, -n", "rcsnM", "", &LONG, arguments)?;
    let expression = if options.operands.is_empty() { ".".to_owned() } else { options.operands.remove(0) };
    Ok((options, expression))
}

pub(super) fn jq(arguments: &[String], reader: &mut ResultReader<'_>) -> Result<ProgramOutput, ProgramFailure> {
    let (options, expression) = options(arguments)?;
    let mut text = Vec::new();
    if !options.has('n') {
        for file in options.files() {
            text.extend(reader.read(&file)?);
            text.push(b'\n');
        }
    }
    if text.len() > MAX_BYTES {
        return Err(ProgramFailure(2, format!("more than {MAX_BYTES} bytes; use: agent-magic-tool read ID --jq EXPR")));
    }
    let flags = "rcsn".chars().filter(|letter| options.has(*letter)).map(|letter| format!("-{letter}"));
    let words: Vec<_> =
        std::iter::once("jq".to_owned()).chain(flags).chain(["--".to_owned(), expression.clone()]).collect();
    let printed = reader.shell.call(&words, &String::from_utf8_lossy(&text), reader.caller);
    if printed.status == Exit::Bug as u8 {
        return Err(ProgramFailure(5, format!("`{expression}` took too much time or memory; select less data")));
    }
    Ok(ProgramOutput { status: printed.status, stdout: printed.stdout.into_bytes(), stderr: printed.stderr })
}
