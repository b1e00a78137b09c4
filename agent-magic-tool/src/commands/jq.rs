//! `jq`: evaluates an expression for the agent's one tool, in a process that may not take much.
//!
//! An expression can run for ever or want all memory there is; here that ends this process alone.

use executor::base::jq::filter;
use nix::sys::resource::{Resource, setrlimit};
use protocol::code::{Code, Exit};
use protocol::shell::PrintedOutput;

use crate::context::Context;
use crate::error::Error;

/// Seconds of computing; an honest expression over the largest input takes two or three.
const SECONDS: u64 = 10;
/// Some ten times the largest input, and the program itself.
const BYTES: u64 = 1 << 30;
/// The largest input.
const MAX_INPUT_BYTES: u64 = 64 << 20;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<Exit, Error> {
    for (resource, most) in [(Resource::RLIMIT_CPU, SECONDS), (Resource::RLIMIT_AS, BYTES)] {
        setrlimit(resource, most, most)
            .map_err(|error| Error::io("the bounds of an expression could not be set", &error.into()))?;
    }
    let input = context
        .stdin
        .read_at_most(MAX_INPUT_BYTES)
        .map_err(|error| Error::io("standard input cannot be read", &error))?;
    let PrintedOutput { status, stdout, stderr } = filter(&args.words, &input);
    context.output.text(&stdout)?;
    if status == 0 {
        return Ok(Exit::Ok);
    }
    Err(Error::new(Code::SelectFailed, stderr.trim_end()))
}
