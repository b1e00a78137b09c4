//! `jq-worker`: evaluates jq expressions for the executor and for `read --jq`, in a process that limits itself.
//!
//! Decides nothing: `ground/src/base/jq_worker.rs` says what is read and written.

use std::io;

use ground::base::jq_worker;
use protocol::code::Exit;

use crate::error::Error;
use crate::output;

pub(crate) fn run() -> Result<Exit, Error> {
    jq_worker::serve(io::stdin().lock(), output::replies())
        .map(|()| Exit::Ok)
        .map_err(|error| Error::io("failed to serve jq expressions", &error))
}
