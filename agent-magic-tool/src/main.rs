//! The program: the command line, and the executor that it starts when none is running.
//!
//! A command parses its arguments, posts one request and prints one answer. The executor makes all decisions about
//! tasks.

use std::process::ExitCode;

mod cli;
mod commands;
mod grouped_help;
mod own_listing;
mod profile;

fn main() -> ExitCode {
    cli::main()
}
