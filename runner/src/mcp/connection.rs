//! Makes one connection to a server: starts its program or opens its URL, and finds out which way it speaks.

use std::collections::HashMap;

use definition::run::mcp::{McpServer, McpTransport};
use ground::base::credential;
use ground::config::secret::SecretName;
use ground::task::failure::{Failure, Retry};
use ground::task::fingerprint::Fingerprint;
use mcp::client::{Authorization, ClientError, Connection, ConnectionSettings, Greeting, HttpEndpoint, HttpKind};
use protocol::code::Code;
use reqwest::header::{HeaderName, HeaderValue};
use url::Url;

use super::program::ServerProgram;
use super::{executed, sign_in};
use crate::RunnerContext;

/// A connection, and the program at its other end if we started it.
#[derive(Debug)]
pub(super) struct ServerConnection {
    pub(super) client: Connection,
    pub(super) program: Option<ServerProgram>,
    /// What gives requests their tokens, if a human signs in to the server.
    pub(super) authorization: Option<Authorization>,
}

/// Why there is no connection.
#[derive(Debug)]
pub(super) enum NotConnected {
    /// The server wants a sign-in. Has its `WWW-Authenticate` header, if it sent one.
    SignIn(Option<String>),
    Failed(Failure),
}

impl From<Failure> for NotConnected {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// The secrets of a server, opened: headers by their names.
pub(super) type OpenedHeaders = HashMap<HeaderName, HeaderValue>;

impl ServerConnection {
    /// Connects to `server`.
    pub(super) async fn open(
        server: &McpServer,
        headers: &OpenedHeaders,
        context: &RunnerContext,
    ) -> Result<Self, NotConnected> {
        let max_bytes = usize::try_from(context.config.executor.output_bytes).unwrap_or(usize::MAX);
        // base64 makes a third more of a file, and a result has its text twice.
        let max_bytes = max_bytes.saturating_mul(3);
        let mut first = None;
        for greeting in Greeting::attempts(server.protocol.as_deref()) {
            let settings = ConnectionSettings { max_bytes, greeting: *greeting };
            let opened = match &server.url {
                Some(url) => Self::to_url(server, url, headers, &settings, context).await,
                None => Self::to_program(server, &settings, context).await,
            };
            match opened {
                Ok(connection) => return Ok(connection),
                Err(NotOpened::Otherwise(reason)) => return Err(reason),
                Err(NotOpened::Greeting(failure)) => first = first.or(Some(failure)),
            }
        }
        let failure = first.unwrap_or_else(|| Failure::new(Code::Internal, "there is no way to greet a server"));
        Err(failure.into())
    }

    /// Whether it is to a program that was started from the files that a human was `shown`; to whatever is at its URL
    /// otherwise.
    pub(super) fn is_from(&self, shown: Option<&[Fingerprint]>) -> bool {
        self.program.as_ref().zip(shown).is_none_or(|(program, shown)| program.started_from.is(shown))
    }

    async fn to_program(
        server: &McpServer,
        settings: &ConnectionSettings,
        context: &RunnerContext,
    ) -> Result<Self, NotOpened> {
        let (program, stdout, stdin) = ServerProgram::start(server, context).await?;
        match Connection::of_program(stdout, stdin, settings).await {
            // By now it has opened the files that it was started from.
            Ok(_) if !program.started_from.is_current() => Err(executed::drifted(server).into()),
            Ok(client) => Ok(Self { client, program: Some(program), authorization: None }),
            Err(error) => {
                let exit = program.exit_soon().await.map(|exit| format!("; {exit}")).unwrap_or_default();
                let failure = with_last_words(unreachable(server, &error, &exit), Some(&program), context);
                Err(NotOpened::of(&error, failure))
            }
        }
    }

    async fn to_url(
        server: &McpServer,
        url: &str,
        headers: &OpenedHeaders,
        settings: &ConnectionSettings,
        context: &RunnerContext,
    ) -> Result<Self, NotOpened> {
        let parsed = Url::parse(url).map_err(|error| Failure::new(Code::BadDefinition, error.to_string()))?;
        let client = context.http.client_for_configured(&parsed).await?;
        let authorization = sign_in::authorization(server, client, context).await?;
        let endpoint = |kind| HttpEndpoint {
            url: url.to_owned(),
            client: client.clone(),
            headers: headers.clone(),
            authorization: authorization.clone(),
            kind,
        };
        let kinds: &[HttpKind] = match (server.transport, settings.greeting) {
            (McpTransport::StreamableHttp, _) | (McpTransport::Auto, Greeting::Probe | Greeting::Discover) => {
                &[HttpKind::Streamable]
            }
            (McpTransport::Sse, _) => &[HttpKind::Sse],
            (McpTransport::Auto, Greeting::Initialize) => &[HttpKind::Streamable, HttpKind::Sse],
        };
        let mut first = None;
        for kind in kinds {
            match Connection::of_url(endpoint(*kind), settings).await {
                Ok(client) => return Ok(Self { client, program: None, authorization }),
                Err(ClientError::NeedsSignIn(challenge)) => {
                    return Err(NotOpened::Otherwise(NotConnected::SignIn(challenge)));
                }
                // What the first way said is what the server means.
                Err(error) => first = first.or(Some(error)),
            }
        }
        let error = first.unwrap_or_else(|| ClientError::Connect("no transport is left".to_owned()));
        Err(NotOpened::of(&error, unreachable(server, &error, "")))
    }
}

/// Why one way did not lead to a connection.
enum NotOpened {
    /// The greeting failed: another one may not.
    Greeting(Failure),
    Otherwise(NotConnected),
}

impl NotOpened {
    fn of(error: &ClientError, failure: Failure) -> Self {
        match error {
            ClientError::Connect(_)
            | ClientError::Refused { .. }
            | ClientError::Malformed(_)
            | ClientError::Closed(_) => Self::Greeting(failure),
            _ => Self::Otherwise(failure.into()),
        }
    }
}

impl From<Failure> for NotOpened {
    fn from(failure: Failure) -> Self {
        Self::Otherwise(failure.into())
    }
}

/// The failure of a connection that was not made.
fn unreachable(server: &McpServer, error: &ClientError, exit: &str) -> Failure {
    let message = format!("the MCP server `{}` could not be reached: {error}{exit}", server.name);
    match error {
        ClientError::NeedsSignIn(_) => sign_in::unasked(server),
        ClientError::Cancelled => Failure::new(Code::Cancelled, message),
        _ => {
            let code = if server.url.is_some() { Code::Unreachable } else { Code::CannotStart };
            Failure::new(code, message).retry(Retry::Later).detail("server", server.place())
        }
    }
}

/// Adds what the program said before it ended.
pub(super) fn with_last_words(failure: Failure, program: Option<&ServerProgram>, context: &RunnerContext) -> Failure {
    let words = program.map(ServerProgram::last_words).unwrap_or_default();
    if words.is_empty() {
        return failure;
    }
    failure.detail("stderr", credential::mask(&context.secrets.redact(&words)).into_owned())
}

/// The secret at the end of a header, and what is before it.
pub(super) fn header_secret(text: &str) -> (&str, Option<SecretName>) {
    let (before, last) = text.rsplit_once(' ').unwrap_or(("", text));
    (before, SecretName::in_reference(last))
}

/// Opens the headers of `server`: `secret:NAME` at the end of a text is replaced by the secret.
pub(super) async fn headers(server: &McpServer, context: &RunnerContext) -> Result<OpenedHeaders, Failure> {
    let mut opened = OpenedHeaders::new();
    for (name, text) in &server.headers {
        let (before, secret) = header_secret(text);
        let value = match secret {
            Some(secret) => {
                let secret = match server.url.as_deref().map(Url::parse) {
                    Some(Ok(url)) => context.secrets.get_for(&secret, &url).await?,
                    _ => return Err(Failure::new(Code::BadDefinition, "only a server with a URL has headers")),
                };
                let space = if before.is_empty() { "" } else { " " };
                format!("{before}{space}{}", secret.expose())
            }
            None => text.clone(),
        };
        let wrong = || {
            Failure::new(
                Code::BadDefinition,
                format!("the header `{name}` of the MCP server `{}` is not valid", server.name),
            )
        };
        let name = HeaderName::try_from(name.as_str()).map_err(|_| wrong())?;
        let mut value = HeaderValue::try_from(value).map_err(|_| wrong())?;
        value.set_sensitive(true);
        opened.insert(name, value);
    }
    Ok(opened)
}
