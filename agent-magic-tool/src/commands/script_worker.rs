//! `script-worker`: runs one script for the executor, in a process that limits itself.
//!
//! Decides nothing: `script/src/worker.rs` says what is read and written.

use std::io::{self, BufReader};

use agent_side::error::Error;
use agent_side::output;
use protocol::code::Exit;
use script::worker;

pub(crate) fn run() -> Result<Exit, Error> {
    worker::serve_process(BufReader::new(io::stdin()), output::replies())
        .map(|()| Exit::Ok)
        .map_err(|error| Error::io("failed to run a script", &error))
}
