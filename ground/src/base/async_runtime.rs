//! The async runtime of a command or a session that has none.

use protocol::code::Code;
use protocol::error::ErrorBody;
use tokio::runtime::{Builder, Runtime};

/// Starts a runtime on the thread that blocks on it.
pub fn start_on_this_thread() -> Result<Runtime, ErrorBody> {
    start(&mut Builder::new_current_thread())
}

/// Starts a runtime with this many threads of its own.
pub fn start_with_threads(threads: usize) -> Result<Runtime, ErrorBody> {
    start(Builder::new_multi_thread().worker_threads(threads))
}

fn start(builder: &mut Builder) -> Result<Runtime, ErrorBody> {
    let runtime = builder.enable_all().build();
    runtime.map_err(|error| ErrorBody::new(Code::Internal, format!("failed to start the async runtime: {error}")))
}
