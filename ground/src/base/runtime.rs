//! The async runtime of a caller that has none, like a command that does one thing.

use protocol::code::Code;
use protocol::error::ErrorBody;
use tokio::runtime::{Builder, Runtime};

/// Starts the runtime that `builder` describes, with timers and I/O.
pub fn start(builder: &mut Builder) -> Result<Runtime, ErrorBody> {
    let runtime = builder.enable_all().build();
    runtime.map_err(|error| ErrorBody::new(Code::Internal, format!("failed to start the async runtime: {error}")))
}
