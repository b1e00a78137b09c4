//! The `mcp` runner: calls one tool of an MCP server.
//!
//! A server is started or connected to at the first call and kept for the
//! next ones: [`pool`] knows the servers, [`connection`] makes one connection, [`call`] makes one call over it,
//! [`files`] gives it the files that an input names, [`executed`] knows from which files a program was started,
//! [`coverage`] says what they leave open, [`questions`] brings what a server asks to the human's page, [`sign_in`] has a
//! human sign in to a server. Messages and transports are the matter of the crate `mcp`.

use std::collections::BTreeSet;
use std::path::PathBuf;

use definition::run::mcp::{Mcp, McpServer};
use futures_util::future::BoxFuture;
use ground::config::secret::SecretName;
use ground::task::fingerprint::Fingerprint;
use mcp::client::ClientError;
use serde_json::{Map, json};
use url::Url;

use super::{CancellationToken, Code, Config, Failure, Invocation, Runner, RunnerContext, RunnerOutput, Value, fields};
use crate::attempt_clock::AttemptClock;
use connection::{NotConnected, ServerConnection};

mod call;
mod connection;
mod coverage;
mod executed;
mod files;
mod pool;
mod program;
mod questions;
mod sign_in;

pub use coverage::{Uncovered, uncovered};
pub use pool::McpServers;
pub use sign_in::{SignInLink, SignIns};

impl Runner for Mcp {
    fn plan(&self, invocation: &Invocation, _: &Config) -> Result<Value, Failure> {
        let server = &self.server;
        let mut plan = json!({"server": server.name, "tool": self.tool, "arguments": filled(self, invocation)?});
        if let Some(url) = &server.url {
            plan["url"] = url.as_str().into();
        } else {
            plan["command"] = json!(server.command);
        }
        Ok(plan)
    }

    /// Fails if the server's program cannot be found, or a file that it reads must not be read.
    fn check_before(&self, invocation: &Invocation, context: &RunnerContext) -> Result<(), Failure> {
        executed::check_program(&self.server, context)?;
        files::read_files(self, invocation, context).map(drop)
    }

    /// The secrets in its headers, and where its server is.
    fn sent_secrets(&self, _: &Invocation, _: &Config) -> Result<Vec<(SecretName, Url)>, Failure> {
        let url = self.server.url.as_deref().and_then(|url| Url::parse(url).ok());
        let secrets = self.server.headers.values().filter_map(|text| connection::header_secret(text).1);
        Ok(url.map(|url| secrets.map(|secret| (secret, url.clone())).collect()).unwrap_or_default())
    }

    /// The files that the server's program executes, and those that it reads.
    fn files(&self, invocation: &Invocation, context: &RunnerContext) -> Result<Vec<Fingerprint>, Failure> {
        let mut files = executed::executed(&self.server, context, invocation.caller.uid)?;
        files.extend(files::read_files(self, invocation, context)?);
        Ok(files)
    }

    fn code_folders(&self, _: &Invocation) -> Result<BTreeSet<PathBuf>, Failure> {
        Ok(executed::code_folders_of(&self.server))
    }

    fn passed_on(&self, invocation: &Invocation) -> Result<Option<(Value, PathBuf)>, Failure> {
        if self.server.url.is_some() {
            return Ok(None);
        }
        let folder = self.server.folder.as_deref().unwrap_or("/").into();
        Ok(Some((Value::Object(filled(self, invocation)?), folder)))
    }

    fn perform<'a>(
        &'a self,
        invocation: &'a Invocation,
        context: &'a RunnerContext,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<RunnerOutput, Failure>> {
        Box::pin(call::call(self, invocation, context, cancel))
    }
}

/// The arguments of a call.
fn filled(mcp: &Mcp, invocation: &Invocation) -> Result<Map<String, Value>, Failure> {
    match &mcp.arguments {
        None => Ok(invocation.input.clone()),
        Some(arguments) => fields::FieldValues::of(invocation).all(arguments),
    }
}

/// Asks `server` what it offers. If it wants a sign-in, `show` shows the link to the human, while `clock` stands still.
/// Shape: `{"protocol": "2026-07-28", "info": {"name", "version", ...}, "instructions": "...",
/// "tools": [{"digest": "16 hexadecimal digits", "tool": {as the server sent it}}]}`.
pub async fn snapshot(
    server: &McpServer,
    context: &RunnerContext,
    clock: &AttemptClock,
    show: Option<&dyn Fn(&SignInLink)>,
) -> Result<Value, Failure> {
    let mut asked = 0;
    loop {
        let challenge = match snapshot_once(server, context).await {
            Ok(taken) => return Ok(taken),
            Err(NotConnected::Failed(failure)) => return Err(failure),
            Err(NotConnected::SignIn(challenge)) => challenge,
        };
        let Some(show) = show.filter(|_| asked < sign_in::MAX_SIGN_INS) else { return Err(sign_in::unasked(server)) };
        asked += 1;
        let _pause = clock.pause();
        Box::pin(sign_in::sign_in_at_terminal(server, context, challenge.as_deref(), show)).await?;
    }
}

async fn snapshot_once(server: &McpServer, context: &RunnerContext) -> Result<Value, NotConnected> {
    let headers = connection::headers(server, context).await?;
    let opened = ServerConnection::open(server, &headers, context).await?;
    let described = opened.client.description();
    let tools = opened.client.tools().await.map_err(|error| match error {
        ClientError::NeedsSignIn(challenge) => NotConnected::SignIn(challenge),
        error => {
            let message = format!("`{}` does not list its tools: {error}", server.name);
            let failure = Failure::new(Code::BadResponse, message);
            connection::with_last_words(failure, opened.program.as_ref(), context).into()
        }
    })?;
    let gone = opened.program.as_ref().map(program::ServerProgram::gone);
    let ServerConnection { client, program, .. } = opened;
    client.close().await;
    drop(program);
    if let Some(mut gone) = gone {
        gone.wait_for(Option::is_some).await.ok();
    }
    Ok(json!({
        "protocol": described.protocol,
        "info": described.info,
        "instructions": described.instructions,
        "tools": tools,
    }))
}
