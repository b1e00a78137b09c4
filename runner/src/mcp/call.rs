//! One call of a tool: checks that the tool is what was imported, calls it, and turns its answer into data.

use std::sync::Arc;

use definition::run::mcp::{Mcp, McpServer};
use ground::task::failure::{Failure, Retry};
use mcp::client::{BinaryContent, CallHandle, ClientError, ToolAnswer, ToolCall};
use protocol::code::Code;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::connection::{NotConnected, with_last_words};
use super::pool::UsedServer;
use super::questions::CallDesk;
use super::sign_in::{self, SignInDesk};
use super::{files, filled};
use crate::spool::Spool;
use crate::{Invocation, RunnerContext, RunnerOutput};

/// How much of a server's message is shown.
const MAX_ERROR_CHARS: usize = 4_000;

/// Why a call has no answer.
enum CallFailure {
    Client(ClientError),
    Known(Failure),
}

impl From<Failure> for CallFailure {
    fn from(failure: Failure) -> Self {
        Self::Known(failure)
    }
}

pub(super) async fn call(
    mcp: &Mcp,
    invocation: &Invocation,
    context: &RunnerContext,
    cancel: &CancellationToken,
) -> Result<RunnerOutput, Failure> {
    let mut arguments = filled(mcp, invocation)?;
    // Kept until the call has ended.
    let copies = files::copy_files(mcp, &mut arguments, invocation, context).await?;
    let left_at = match invocation.job.as_deref() {
        None => None,
        Some(job) => Some(serde_json::from_str::<CallHandle>(job).map_err(|error| {
            Failure::new(Code::Internal, format!("failed to read where the call was left: {error}"))
        })?),
    };
    // However the call ends, a question that the server still asks ends with it.
    let asking = cancel.child_token();
    let _end = asking.clone().drop_guard();
    let host = Arc::new(CallDesk::new(&mcp.server.name, invocation, context, &asking, left_at.as_ref()));
    let mut signing = SignInDesk::new(&mcp.server, invocation, context, cancel);
    let (mut signed_in_on, mut has_taken_over): (Option<UsedServer>, bool) = (None, false);
    loop {
        signing.before_asking();
        let server = match signed_in_on.take() {
            Some(server) => server,
            None => match connected(mcp, invocation, context, cancel).await {
                Ok(server) => server,
                Err(NotConnected::SignIn(challenge)) => {
                    Box::pin(signing.sign_in(challenge.as_deref(), host.handle().is_none())).await?;
                    continue;
                }
                Err(NotConnected::Failed(failure)) => return Err(failure),
            },
        };
        let called = call_on(mcp, &server, &host, &arguments, &mut signing, cancel).await;
        if let Some(failure) = host.unasked() {
            return Err(failure);
        }
        let wanted = match called {
            Ok(answer) => {
                server.on_success();
                copies.check().await?;
                return output(mcp, answer, invocation, context).await;
            }
            Err(CallFailure::Known(failure)) => return Err(failure),
            Err(CallFailure::Client(ClientError::NeedsSignIn(challenge))) => challenge,
            Err(CallFailure::Client(error)) => return Err(failure(mcp, error, &server, context).await),
        };
        if !std::mem::replace(&mut has_taken_over, true) && server.take_over_sign_in(&mcp.server, context).await? {
            signed_in_on = Some(server).filter(|server| !server.connection.client.is_closed());
            continue;
        }
        Box::pin(signing.sign_in(wanted.as_deref(), host.handle().is_none())).await?;
        server.on_sign_in(&mcp.server, context).await?;
        signed_in_on = Some(server).filter(|server| !server.connection.client.is_closed());
    }
}

/// Returns the server, connected.
async fn connected(
    mcp: &Mcp,
    invocation: &Invocation,
    context: &RunnerContext,
    cancel: &CancellationToken,
) -> Result<UsedServer, NotConnected> {
    tokio::select! {
        biased;
        () = cancel.cancelled() => Err(stopped(mcp).into()),
        server = context.mcp.get(&mcp.server, invocation.approved.as_deref(), context) => server,
    }
}

fn stopped(mcp: &Mcp) -> Failure {
    Failure::new(Code::Cancelled, format!("cancelled before `{}` was called", mcp.tool))
}

/// Makes the call, or goes on with it.
async fn call_on(
    mcp: &Mcp,
    server: &UsedServer,
    host: &Arc<CallDesk>,
    arguments: &Map<String, Value>,
    signing: &mut SignInDesk<'_>,
    cancel: &CancellationToken,
) -> Result<ToolAnswer, CallFailure> {
    let handle = host.handle();
    if handle.is_none() {
        tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(stopped(mcp).into()),
            checked = check_digest(mcp, server) => checked?,
        }
    }
    signing.before_sending().await?;
    let (tool, arguments, cancel) = (mcp.tool.clone(), arguments.clone(), cancel.clone());
    let call = ToolCall { tool, arguments, handle, host: Arc::<CallDesk>::clone(host), cancel };
    server.connection.client.call(call).await.map_err(CallFailure::Client)
}

/// Fails if the server offers something else under the tool's name than what was imported.
async fn check_digest(mcp: &Mcp, server: &UsedServer) -> Result<(), CallFailure> {
    let Some(expected) = &mcp.digest else { return Ok(()) };
    let client = &server.connection.client;
    let mut digests = server.digests.lock().await;
    if client.have_tools_changed() {
        *digests = None;
    }
    if digests.is_none() {
        let tools = client.tools().await.map_err(|error| match error {
            wanted @ ClientError::NeedsSignIn(_) => CallFailure::Client(wanted),
            error => {
                let message = format!("the MCP server `{}` does not list its tools: {error}", mcp.server.name);
                Failure::new(Code::BadResponse, message).retry(Retry::Later).into()
            }
        })?;
        let named =
            tools.into_iter().filter_map(|offered| Some((offered.tool["name"].as_str()?.to_owned(), offered.digest)));
        *digests = Some(named.collect());
    }
    let found = digests.as_ref().and_then(|digests| digests.get(&mcp.tool));
    let McpServer { name, .. } = &mcp.server;
    let hint = "a human must look at what changed and take it over: agent-magic-tool import --refresh";
    match found {
        Some(digest) if digest == expected => Ok(()),
        Some(_) => {
            let message = format!(
                "the MCP server `{name}` offers another `{}` than when it was imported: its description or its \
                 parameters changed",
                mcp.tool
            );
            Err(Failure::new(Code::Drifted, message).hint(hint).into())
        }
        None => {
            let message = format!("the MCP server `{name}` has no tool `{}` anymore", mcp.tool);
            Err(Failure::new(Code::NotFound, message)
                .hint("use another tool; a human removes this definition, which `import --refresh` keeps if it was edited")
                .into())
        }
    }
}

async fn output(
    mcp: &Mcp,
    answer: ToolAnswer,
    invocation: &Invocation,
    context: &RunnerContext,
) -> Result<RunnerOutput, Failure> {
    let output = match answer {
        ToolAnswer::Data(data) => RunnerOutput::json(data),
        ToolAnswer::Binary(binary) => {
            // The tool was done before its answer could not be kept.
            file(binary, invocation, context).await.map_err(Failure::effect_possible)?
        }
        ToolAnswer::Error { text, data } => {
            let message = protocol::excerpt::chars(&text, MAX_ERROR_CHARS).into_owned();
            let failure = Failure::new(Code::ApiError, message).detail("server", mcp.server.name.as_str());
            return Err(with_data(failure, data));
        }
    };
    Ok(output.with_meta("mcp_server", mcp.server.name.as_str()))
}

async fn file(
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

async fn failure(mcp: &Mcp, error: ClientError, server: &UsedServer, context: &RunnerContext) -> Failure {
    let (name, tool) = (&mcp.server.name, &mcp.tool);
    let is_without_effect = error.is_without_effect();
    let has_answered = matches!(error, ClientError::Refused { .. });
    let failure = match error {
        ClientError::Refused { code, message, data } => {
            let message = protocol::excerpt::chars(&message, MAX_ERROR_CHARS).into_owned();
            with_data(Failure::new(Code::ApiError, message).detail("jsonrpc_code", code), data)
        }
        ClientError::NeedsSignIn(_) => sign_in::unasked(&mcp.server),
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
    match (is_without_effect, has_answered) {
        (true, _) => failure,
        (false, true) => failure.answered(),
        (false, false) => failure.effect_possible(),
    }
}

/// Adds what a server says beside its message.
fn with_data(failure: Failure, data: Option<Value>) -> Failure {
    match data {
        Some(data) => failure.detail("data", data),
        None => failure,
    }
}
