//! Asks an MCP server what it offers, for a human's command, outside of any task.

use std::path::PathBuf;

use protocol::code::Code;
use protocol::error::ErrorBody;
use serde_json::Value;

use super::mcp::{self, McpServer};
use super::{Config, Failure, RunnerContext};
use crate::config::secret::Secrets;

/// Returns what [`mcp::snapshot`] returns, without any secret that the server repeats. `spool` is a folder for what is
/// too large for memory.
pub fn take(server: &McpServer, config: &Config, secrets: Secrets, spool: PathBuf) -> Result<Value, ErrorBody> {
    let failed = |message: String| Failure::new(Code::BadConfig, message).error;
    let context = RunnerContext::new(config.clone(), secrets, spool).map_err(|error| failed(error.to_string()))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| failed(format!("failed to start a runtime: {error}")))?;
    let taken = runtime.block_on(mcp::snapshot(server, &context)).map_err(|failure| failure.error)?;
    let text = taken.to_string();
    let redacted = context.secrets.redact(&text);
    serde_json::from_str(&redacted)
        .map_err(|_| Failure::new(Code::Internal, "the snapshot without secrets is not valid JSON").error)
}
