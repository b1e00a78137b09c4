//! `jq`: expressions over JSON texts.
//!
//! What an expression takes in time and memory nobody can tell beforehand, so it is evaluated in a
//! process of its own, by the hidden command `jq`; here its files are read.

use super::options::{self, ProgramOptions};
use super::{ProgramFailure, ProgramOutput, ResultReader};
use crate::code::Exit;

/// An expression takes some ten times as much memory as its data.
const MAX_BYTES: usize = 32 << 20;

const LONG: [(&str, char); 4] = [("raw-output", 'r'), ("compact-output", 'c'), ("slurp", 's'), ("null-input", 'n')];

/// What `jq` is asked to do, but for the files that it reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JqCall {
    pub expression: String,
    /// Texts are printed as they are, not as JSON.
    pub raw: bool,
    pub compact: bool,
    /// All inputs make one array.
    pub slurp: bool,
    /// The only input is `null`.
    pub null_input: bool,
}

impl JqCall {
    /// Reads the arguments of a call that names no files.
    pub fn read(arguments: &[String]) -> Result<Self, String> {
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

pub(super) fn jq(arguments: &[String], reading: &mut ResultReader<'_>) -> Result<ProgramOutput, ProgramFailure> {
    let (options, expression) = options(arguments)?;
    let mut text = Vec::new();
    if !options.has('n') {
        for file in options.files() {
            text.extend(reading.read(&file)?);
            text.push(b'\n');
        }
    }
    if text.len() > MAX_BYTES {
        return Err(ProgramFailure(2, format!("more than {MAX_BYTES} bytes; use: agent-magic-tool read ID --jq EXPR")));
    }
    let flags = "rcsn".chars().filter(|letter| options.has(*letter)).map(|letter| format!("-{letter}"));
    let words: Vec<_> =
        std::iter::once("jq".to_owned()).chain(flags).chain(["--".to_owned(), expression.clone()]).collect();
    let printed = reading.shell.call(&words, &String::from_utf8_lossy(&text), reading.caller);
    if printed.status == Exit::Bug as u8 {
        return Err(ProgramFailure(5, format!("`{expression}` takes too much time or memory; ask for less")));
    }
    Ok(ProgramOutput { status: printed.status, stdout: printed.stdout.into_bytes(), stderr: printed.stderr })
}
