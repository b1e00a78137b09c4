//! One call of a tool: checks that the tool is what was imported, calls it, and turns its answer into data.

use std::sync::Arc;

use mcp::client::{BinaryContent, CallHandle, ClientError, ToolAnswer, ToolCall};
use protocol::code::Code;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::connection::with_last_words;
use super::pool::UsedServer;
use super::questions::CallDesk;
use super::{Mcp, McpServer};
use crate::runner::spool::Spool;
use crate::runner::{Invocation, RunnerContext, RunnerOutput};
use crate::task::failure::{Failure, Retry};

/// How much of a server's message is shown.
const MAX_ERROR_CHARS: usize = 4_000;

impl Mcp {
    pub(super) async fn call(
        &self,
        invocation: &Invocation,
        context: &RunnerContext,
        cancel: &CancellationToken,
    ) -> Result<RunnerOutput, Failure> {
        let arguments = self.filled(invocation)?;
        let stopped = || Failure::new(Code::Cancelled, format!("cancelled before `{}` was called", self.tool));
        let server = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(stopped()),
            server = context.mcp.get(&self.server, context) => server?,
        };
        let handle = match &invocation.job {
            None => None,
            Some(job) => Some(serde_json::from_str::<CallHandle>(job).map_err(|error| {
                Failure::new(Code::Internal, format!("failed to read where the call was left: {error}"))
            })?),
        };
        if handle.is_none() {
            tokio::select! {
                biased;
                () = cancel.cancelled() => return Err(stopped()),
                checked = self.check_digest(&server) => checked?,
            }
        }
        let host = Arc::new(CallDesk::new(&self.server.name, invocation, context, cancel));
        if let Some(handle) = &handle {
            host.goes_on(handle);
        }
        let call = ToolCall { tool: self.tool.clone(), arguments, handle, host, cancel: cancel.clone() };
        let answer = server.connection.client.call(call).await;
        match answer {
            Ok(answer) => {
                server.on_success();
                self.output(answer, invocation, context).await
            }
            Err(error) => Err(self.failure(error, &server, context).await),
        }
    }

    /// Fails if the server offers something else under the tool's name than what was imported.
    async fn check_digest(&self, server: &UsedServer) -> Result<(), Failure> {
        let Some(expected) = &self.digest else { return Ok(()) };
        let client = &server.connection.client;
        let mut digests = server.digests.lock().await;
        if client.have_tools_changed() {
            *digests = None;
        }
        if digests.is_none() {
            let tools = client.tools().await.map_err(|error| {
                let message = format!("the MCP server `{}` does not list its tools: {error}", self.server.name);
                Failure::new(Code::BadResponse, message).retry(Retry::Later)
            })?;
            let named = tools
                .into_iter()
                .filter_map(|offered| Some((offered.tool["name"].as_str()?.to_owned(), offered.digest)));
            *digests = Some(named.collect());
        }
        let found = digests.as_ref().and_then(|digests| digests.get(&self.tool));
        let McpServer { name, .. } = &self.server;
        let hint = "a human must look at what changed and take it over: agent-magic-tool import --refresh";
        match found {
            Some(digest) if digest == expected => Ok(()),
            Some(_) => {
                let message = format!(
                    "the MCP server `{name}` offers another `{}` than when it was imported: its description or its \
                     parameters changed",
                    self.tool
                );
                Err(Failure::new(Code::Drifted, message).hint(hint))
            }
            None => {
                let message = format!("the MCP server `{name}` has no tool `{}` anymore", self.tool);
                Err(Failure::new(Code::NotFound, message).hint(hint))
            }
        }
    }

    async fn output(
        &self,
        answer: ToolAnswer,
        invocation: &Invocation,
        context: &RunnerContext,
    ) -> Result<RunnerOutput, Failure> {
        let output = match answer {
            ToolAnswer::Data(data) => RunnerOutput::json(data),
            ToolAnswer::Binary(binary) => self.file(binary, invocation, context).await?,
            ToolAnswer::Error { text, data } => {
                let message = protocol::excerpt::chars(&text, MAX_ERROR_CHARS).into_owned();
                let failure = Failure::new(Code::ApiError, message).detail("server", self.server.name.as_str());
                return Err(with_data(failure, data));
            }
        };
        Ok(output.with_meta("mcp_server", self.server.name.as_str()))
    }

    async fn file(
        &self,
        binary: BinaryContent,
        invocation: &Invocation,
        context: &RunnerContext,
    ) -> Result<RunnerOutput, Failure> {
        let spool = Spool::of(context, invocation, context.config.executor.output_bytes);
        let chunks = futures_util::stream::iter([Ok(binary.bytes)]);
        let data = spool.store(chunks, binary.content_type).await?;
        let output = RunnerOutput { data, meta: Map::new(), facts: None };
        let output = match binary.text {
            Some(text) => output.with_meta("text", text),
            None => output,
        };
        Ok(if binary.others.is_empty() { output } else { output.with_meta("content", Value::Array(binary.others)) })
    }

    async fn failure(&self, error: ClientError, server: &UsedServer, context: &RunnerContext) -> Failure {
        let (name, tool) = (&self.server.name, &self.tool);
        let is_without_effect = error.is_without_effect();
        let failure = match error {
            ClientError::Refused { code, message, data } => {
                let message = protocol::excerpt::chars(&message, MAX_ERROR_CHARS).into_owned();
                with_data(Failure::new(Code::ApiError, message).detail("jsonrpc_code", code), data)
            }
            ClientError::NeedsSignIn(_) => {
                Failure::new(Code::NeedsReauthorization, format!("the MCP server `{name}` wants a sign-in"))
            }
            ClientError::Closed(reason) => {
                let program = server.connection.program.as_ref();
                let exit = match program {
                    Some(program) => program.exit_soon().await.map(|exit| format!("; {exit}")).unwrap_or_default(),
                    None => String::new(),
                };
                let message = format!("the MCP server `{name}` ended the connection during `{tool}`: {reason}{exit}");
                let failure = Failure::new(Code::ConnectionLost, message).retry(Retry::Later);
                with_last_words(failure, program, context)
            }
            ClientError::Connect(reason) => {
                let message = format!("the MCP server `{name}` could not be reached: {reason}");
                Failure::new(Code::Unreachable, message).retry(Retry::Later)
            }
            ClientError::TooLarge { .. } => {
                let message =
                    format!("the answer of `{tool}` is larger than {} bytes", context.config.executor.output_bytes);
                Failure::new(Code::ResponseTooLarge, message)
                    .hint("ask for less; a human can raise `output_bytes` under [executor] in config.toml")
            }
            ClientError::Cancelled => {
                let failure = Failure::new(Code::Cancelled, format!("cancelled while `{tool}` was running"));
                with_last_words(failure, server.connection.program.as_ref(), context)
            }
            ClientError::Malformed(_) | ClientError::AsksForever(_) | ClientError::TaskEnded(_) => {
                Failure::new(Code::BadResponse, format!("the MCP server `{name}`: {error}"))
            }
        };
        let failure = match server.connection.client.noise() {
            Some(noise) if failure.error.code != Code::ApiError => {
                failure.detail("printed", context.secrets.redact(&noise).into_owned())
            }
            _ => failure,
        };
        let failure = failure.detail("server", name.as_str());
        if is_without_effect { failure } else { failure.effect_possible() }
    }
}

/// Adds what a server says beside its message.
fn with_data(failure: Failure, data: Option<Value>) -> Failure {
    match data {
        Some(data) => failure.detail("data", data),
        None => failure,
    }
}
