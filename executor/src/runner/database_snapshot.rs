//! Asks a database what it contains, for a human's command, outside of any task.

use std::path::PathBuf;

use ground::base::runtime;
use ground::config::secret::Secrets;
use protocol::code::Code;
use protocol::error::ErrorBody;
use serde_json::Value;
use tokio::runtime::Builder;
use tokio_util::sync::CancellationToken;

use super::{Config, Failure, RunnerContext, sql};

/// Returns what callers may see of the database `name`, as [`sql::snapshot`] returns it.
pub fn take(name: &str, config: &Config, secrets: Secrets) -> Result<Value, ErrorBody> {
    let failed = |message: String| Failure::new(Code::BadConfig, message).error;
    let context =
        RunnerContext::new(config.clone(), secrets, PathBuf::new()).map_err(|error| failed(error.to_string()))?;
    let runtime = runtime::start(Builder::new_multi_thread().worker_threads(1))?;
    // A database that does not answer ends the reading by itself.
    let taken = runtime.block_on(async {
        let taken = Box::pin(sql::snapshot(name, &context, &CancellationToken::new())).await;
        context.databases.close().await;
        taken
    });
    taken.map_err(|failure| failure.error)
}
