//! A sign-in at a terminal: a command shows the link, and waits until the browser comes back.
//!
//! It asks in place of the executor's page and keeps the tokens in the same place. Unlike there, nothing is recorded
//! until the tokens are there, so a command that is stopped leaves nothing behind.

use std::time::Duration;

use definition::run::mcp::McpServer;
use ground::task::failure::Failure;
use protocol::code::Code;

use super::record::SignInRecord;
use super::{SignInAttempt, SignInSite, expected, flow, host, unasked};
use crate::RunnerContext;

/// How long a human may take: long enough for a second factor on another device.
const MAX_TIME: Duration = Duration::from_mins(10);

/// What a human needs in order to sign in.
#[derive(Debug)]
pub struct SignInLink {
    /// The name of the MCP server.
    pub server: String,
    /// The host on which the human signs in.
    pub host: String,
    /// The address that the human opens.
    pub url: String,
    /// How long the human may take.
    pub max_time: Duration,
}

/// Has the human sign in to `server`, as `challenge` demands, and returns when the tokens are stored. `show` shows the
/// link.
pub(in crate::mcp) async fn sign_in(
    server: &McpServer,
    context: &RunnerContext,
    challenge: Option<&str>,
    show: &dyn Fn(&SignInLink),
) -> Result<(), Failure> {
    let Some(site) = SignInSite::of(server, context)? else { return Err(unasked(server)) };
    let mut record = site.file.read()?;
    // The authorization server may have forgotten the client of an earlier sign-in, and tells only the human.
    SignInRecord::give_up(&mut record);
    let started = flow::begin(&site, &record, server, context, challenge).await?;
    let SignInAttempt { pending, mut manager, port } = started;
    site.file.watch(&pending);
    let (name, url) = (server.name.clone(), pending.link.clone());
    show(&SignInLink { server: name, host: host(&url), url, max_time: MAX_TIME });
    let Ok(came_back) = tokio::time::timeout(MAX_TIME, port.wait(&expected(&pending))).await else {
        let minutes = MAX_TIME.as_secs() / 60;
        let message = format!("no human signed in to the MCP server `{}` within {minutes} minutes", server.name);
        return Err(Failure::new(Code::NeedsReauthorization, message).hint("run it again when you can sign in"));
    };
    let came_back = came_back.map_err(|error| Failure::new(Code::Io, error.to_string()))?;
    flow::finish(&site, server, &mut manager, &pending, &came_back).await
}
