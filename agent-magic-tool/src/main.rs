//! The program: the command line, and the executor that it starts when none is running.
//!
//! A command parses its arguments, posts one request and prints one answer. The executor makes all decisions about
//! tasks.

use std::process::ExitCode;

mod answer;
mod backoff;
mod cli;
mod commands;
mod context;
mod error;
mod grouped_help;
mod handover;
mod in_process;
mod launch;
mod option_value;
mod output;
mod progress;
mod result;
mod result_data;
mod sandbox;
mod sanitized;
mod usage;
mod waiting;
mod wake_promise;

fn main() -> ExitCode {
    cli::main()
}
