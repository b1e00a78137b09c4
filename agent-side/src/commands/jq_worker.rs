//! `jq-worker`: evaluates jq expressions for the executor and for `read --jq`, in a process that limits itself.
//!
//! Decides nothing: `jq/src/worker.rs` says what is read and written.

use std::io;

use jq::worker;
use protocol::code::Exit;

use crate::error::Error;
use crate::output;

pub fn run() -> Result<Exit, Error> {
    worker::serve(io::stdin().lock(), output::replies())
        .map(|()| Exit::Ok)
        .map_err(|error| Error::io("failed to serve jq expressions", &error))
}
