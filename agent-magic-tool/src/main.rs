//! The program: the command line, and the executor that it starts when none is there.
//!
//! Words in, one request out, one answer printed. Decides nothing about tasks.

use std::process::ExitCode;

mod backoff;
mod cli;
mod commands;
mod context;
mod error;
mod handover;
mod in_process;
mod launch;
mod output;
mod result;
mod sandbox;
mod wake_promise;

fn main() -> ExitCode {
    cli::main()
}
