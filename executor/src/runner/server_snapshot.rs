//! Asks an MCP server what it offers, for a human's command, outside of any task.

use std::path::PathBuf;
use std::time::Duration;

use ground::base::runtime;
use ground::config::secret::Secrets;
use protocol::code::Code;
use protocol::error::ErrorBody;
use serde_json::Value;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

use super::attempt_clock::AttemptClock;
use super::mcp::{self, McpServer, SignInLink};
use super::{Config, Failure, RunnerContext};

/// How long a server may take in all, apart from a sign-in: `npx` and `uvx` download one at its first start.
const MAX_TIME: Duration = Duration::from_mins(2);

/// Returns when this process is told to end.
async fn interrupted() {
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        },
        Err(_) => std::future::pending().await,
    }
}

/// Returns what [`mcp::snapshot`] returns, without any secret that the server repeats. `spool` is a folder for what is
/// too large for memory; `show` shows the link of a sign-in, if a human can be asked.
pub fn take(
    server: &McpServer,
    config: &Config,
    secrets: Secrets,
    spool: PathBuf,
    show: Option<&dyn Fn(&SignInLink)>,
) -> Result<Value, ErrorBody> {
    let failed = |message: String| Failure::new(Code::BadConfig, message).error;
    let context = RunnerContext::new(config.clone(), secrets, spool).map_err(|error| failed(error.to_string()))?;
    let runtime = runtime::start(&mut Builder::new_current_thread())?;
    let taken = runtime.block_on(async {
        let clock = AttemptClock::default();
        let taking = mcp::snapshot(server, &context, &clock, show);
        let stopped = tokio::select! {
            taken = Box::pin(taking) => return taken,
            () = clock.expired(MAX_TIME) => Failure::new(
                Code::TimedOut,
                format!("the MCP server `{}` did not answer within {} seconds", server.name, MAX_TIME.as_secs()),
            )
            .hint("start it by hand to see what it waits for"),
            () = interrupted() => Failure::new(Code::Cancelled, "interrupted"),
        };
        // Its program must not outlive this one.
        context.mcp.until_programs_end().await;
        Err(stopped)
    });
    let taken = taken.map_err(|failure| {
        let mut error = failure.error;
        context.secrets.redact_error(&mut error);
        error
    })?;
    let text = taken.to_string();
    let redacted = context.secrets.redact(&text);
    serde_json::from_str(&redacted)
        .map_err(|_| Failure::new(Code::Internal, "the snapshot without secrets is not valid JSON").error)
}
