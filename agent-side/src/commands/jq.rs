//! `jq`: evaluates an expression for `command-executor`, in a process with limited resources.
//!
//! An expression can run forever or exhaust the memory; here that ends only this process.

use jq::filter::{Filtered, filter};
use jq::worker;
use nix::sys::resource::{Resource, setrlimit};
use protocol::code::{Code, Exit};

use crate::context::Context;
use crate::error::Error;

/// The limit on memory: about ten times the largest input, plus the program itself.
const MAX_MEMORY_BYTES: u64 = 1 << 30;
/// The largest input, in bytes; the rest is ignored.
const MAX_INPUT_BYTES: u64 = 64 << 20;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

pub fn run(args: &Args, context: &Context) -> Result<Exit, Error> {
    let limit = |resource, limit| {
        setrlimit(resource, limit, limit).map_err(|error| Error::io("failed to set the resource limits", &error.into()))
    };
    limit(Resource::RLIMIT_AS, MAX_MEMORY_BYTES)?;
    let input = context
        .stdin
        .read_at_most(MAX_INPUT_BYTES)
        .map_err(|error| Error::io("failed to read standard input", &error))?;
    // The kernel counts whole seconds, and this process has used only milliseconds.
    limit(Resource::RLIMIT_CPU, worker::cpu_seconds(input.len() as u64))?;
    let filtered = filter(&args.arguments, &input);
    let Filtered { stdout, missing } =
        filtered.map_err(|(_, message)| Error::new(Code::SelectFailed, format!("jq: {message}")))?;
    context.output.text(&stdout)?;
    for note in missing {
        context.output.note(&note);
    }
    Ok(Exit::Ok)
}
