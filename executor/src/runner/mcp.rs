//! The `mcp` runner: calls one tool of an MCP server.
//!
//! This file has the types of the definition. A server is started or connected to at the first call and kept for the
//! next ones: [`pool`] knows the servers, [`connection`] makes one connection, [`call`] makes one call over it,
//! [`files`] gives it the files that an input names, [`executed`] knows from which files a program was started,
//! [`coverage`] says what they leave open, [`questions`] brings what a server asks to the human's page, [`sign_in`] has a
//! human sign in to a server. Messages and transports are the matter of the crate `mcp`.

use std::collections::BTreeMap;

use ground::base::template;
use ground::config::secret::SecretName;
use serde_json::{Map, json};
use url::Url;

use super::{
    CancellationToken, Code, Config, DefinitionMistake, DefinitionMistakes, Deserialize, Failure, Invocation,
    JsonSchema, Runner, RunnerContext, RunnerOutput, Serialize, TextKind, Value, fields,
};
use crate::runner::attempt_clock::AttemptClock;
use connection::{NotConnected, ServerConnection};
use mcp::client::ClientError;

mod call;
mod connection;
mod coverage;
mod executed;
mod files;
mod pool;
mod program;
mod questions;
mod sign_in;

pub use coverage::Uncovered;
pub use pool::McpServers;
pub use sign_in::{SignInLink, SignIns};

/// A call of one tool of an MCP server.
#[expect(clippy::unsafe_derive_deserialize, reason = "the only unsafe code is that of `tokio::select`")]
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mcp {
    /// The server. Usually in `$defaults`: all tools of a server have the same.
    pub server: McpServer,
    /// The tool, as the server calls it.
    #[schemars(length(min = 1))]
    pub tool: String,
    /// The arguments of the call: JSON templates. Absent: the input as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Map<String, Value>>,
    /// The arguments that are paths of files which the server reads. They must lie in the folders of `[files] roots`;
    /// the server gets copies of them, and an approval is bound to their content. Only for a server that is a `command`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(example = ["path"])]
    pub files: Vec<String>,
    /// What the tool was when it was imported: a digest of its description and schemas. A server that offers
    /// something else under this name is not called until a human has imported it again. Absent: whatever it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[0-9a-f]{16}$"))]
    pub digest: Option<String>,
}

/// An MCP server: a program that is started here, or a URL.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct McpServer {
    /// Its name, for humans.
    #[schemars(length(min = 1, max = 64))]
    pub name: String,
    /// The program (an absolute path, or a name to look up in `PATH`) and its arguments: constants.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(example = ["npx", "-y", "@modelcontextprotocol/server-everything"])]
    pub command: Vec<String>,
    /// Environment variables of the program in addition to `PATH`, `HOME`, `LANG`, `TMPDIR` and `USER`: constants, or
    /// `secret:NAME`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The absolute path of the folder in which the program runs. Absent: `/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// Files and folders of the program that an approval is bound to, besides those that its command names: absolute, or
    /// relative to the folder in which it runs. They are compared when it starts, and before each approved call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(example = ["server", "/usr/lib/node_modules/server/dist"])]
    pub covers: Vec<String>,
    /// The URL of a server that runs already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^https?://"))]
    pub url: Option<String>,
    /// Headers of each request: constants; `secret:NAME`, also after a text as in `Bearer secret:NAME`, inserts a
    /// secret.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The secret with the tokens of an OAuth sign-in. It is written when a human has signed in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oauth: Option<SecretName>,
    /// How a URL is spoken to. Absent: streamable HTTP, and SSE if the server knows only that.
    #[serde(default)]
    pub transport: McpTransport,
    /// The protocol version that the server spoke when it was imported: tried first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = "2026-07-28")]
    pub protocol: Option<String>,
}

/// How the URL of an MCP server is spoken to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum McpTransport {
    #[default]
    Auto,
    StreamableHttp,
    /// The transport of 2024-11-05: one stream for all answers.
    Sse,
}

impl McpServer {
    fn check(&self) -> Vec<DefinitionMistake> {
        let mut found = DefinitionMistakes::default();
        let mistake = |place: &str, message: &str| Err(DefinitionMistake::new(place, &message));
        if self.name.trim().is_empty() {
            found.note(mistake("server.name", "give the server a name"));
        }
        match (&self.url, self.command.first()) {
            (Some(_), Some(_)) => {
                found.note(mistake("server", "has both a `command` and a `url`; a server is one of them"));
            }
            (None, None) => found.note(mistake("server", "names neither a `command` to start nor a `url`")),
            (Some(url), None) => {
                let is_url = Url::parse(url).is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
                if !is_url {
                    found.note(mistake("server.url", "is not an http or https URL"));
                }
            }
            (None, Some(program)) if program.trim().is_empty() => {
                found.note(mistake("server.command", "begins with the program's name, which is empty"));
            }
            (None, Some(_)) => {}
        }
        let of_program = !self.env.is_empty() || self.folder.is_some() || !self.covers.is_empty();
        if self.url.is_some() && of_program {
            found.note(mistake("server", "`env`, `folder` and `covers` are for a `command`; a URL gets `headers`"));
        }
        if self.covers.iter().any(|path| path.is_empty() || path.contains('\0')) {
            found.note(mistake("server.covers", "name files and folders; one of the names is empty"));
        }
        if self.url.is_none() && (!self.headers.is_empty() || self.oauth.is_some()) {
            found.note(mistake("server", "`headers` and `oauth` are for a `url`; a command gets `env`"));
        }
        if self.folder.as_ref().is_some_and(|folder| !folder.starts_with('/')) {
            found.note(mistake("server.folder", "must be an absolute path"));
        }
        let texts = self.command.iter().chain(&self.covers).chain(self.env.values()).chain(self.headers.values());
        if texts.chain(&self.url).chain(&self.folder).any(|text| !template::is_constant(text)) {
            found.note(mistake("server", "must not contain templates: all calls share one server"));
        }
        if self.command.iter().any(|argument| SecretName::in_reference(argument).is_some()) {
            let message = "a secret must not be an argument, which every user of the machine can read; use `env`";
            found.note(mistake("server.command", message));
        }
        found.into_vec()
    }

    /// Where it is, for humans: its command line or its URL.
    pub fn place(&self) -> String {
        self.url.clone().unwrap_or_else(|| self.command.join(" "))
    }
}

impl Mcp {
    /// The arguments of a call.
    pub(super) fn filled(&self, invocation: &Invocation) -> Result<Map<String, Value>, Failure> {
        match &self.arguments {
            None => Ok(invocation.input.clone()),
            Some(arguments) => fields::FieldValues::of(invocation).all(arguments),
        }
    }
}

impl Mcp {
    /// The secrets in its headers, and where its server is.
    pub(super) fn sent_secrets(&self) -> Vec<(SecretName, Url)> {
        let url = self.server.url.as_deref().and_then(|url| Url::parse(url).ok());
        let secrets = self.server.headers.values().filter_map(|text| connection::header_secret(text).1);
        url.map(|url| secrets.map(|secret| (secret, url.clone())).collect()).unwrap_or_default()
    }
}

impl Runner for Mcp {
    fn check(&self) -> Vec<DefinitionMistake> {
        let mut found = self.server.check();
        if self.tool.trim().is_empty() {
            found.push(DefinitionMistake::new("tool", &"name the tool of the server"));
        }
        if self.server.url.is_some() && !self.files.is_empty() {
            found.push(DefinitionMistake::new("files", &"a server at a URL reads no files of this machine"));
        }
        for name in self.files.iter().filter(|name| self.arguments.as_ref().is_some_and(|all| !all.contains_key(*name)))
        {
            found.push(DefinitionMistake::new("files", &format!("`arguments` has no `{name}`")));
        }
        found
    }

    fn text_kind(&self, place: &str) -> TextKind {
        if place.starts_with("arguments") {
            TextKind::Template
        } else if place.starts_with("server.env.") {
            TextKind::TemplateOrSecret
        } else if place.starts_with("server.headers.") {
            TextKind::TemplateOrLastSecret
        } else {
            TextKind::Constant
        }
    }

    fn plan(&self, invocation: &Invocation, _: &Config) -> Result<Value, Failure> {
        let server = &self.server;
        let mut plan = json!({"server": server.name, "tool": self.tool, "arguments": self.filled(invocation)?});
        if let Some(url) = &server.url {
            plan["url"] = url.as_str().into();
        } else {
            plan["command"] = json!(server.command);
        }
        Ok(plan)
    }

    async fn perform(
        &self,
        invocation: &Invocation,
        context: &RunnerContext,
        cancel: &CancellationToken,
    ) -> Result<RunnerOutput, Failure> {
        self.call(invocation, context, cancel).await
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
