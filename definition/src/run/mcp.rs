//! The mcp runner's settings: one tool of an MCP server.

use std::collections::BTreeMap;

use ground::base::template;
use ground::config::secret::SecretName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with_macros::skip_serializing_none;
use url::Url;

use super::{DefinitionMistake, DefinitionMistakes, Settings, TextKind};

/// A call of one tool of an MCP server.
#[skip_serializing_none]
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mcp {
    /// The server. Usually in `$defaults`: all tools of a server have the same.
    pub server: McpServer,
    /// The tool, as the server calls it.
    #[schemars(length(min = 1))]
    pub tool: String,
    /// The arguments of the call: JSON templates. Absent: the input as it is.
    pub arguments: Option<Map<String, Value>>,
    /// The arguments that are paths of files which the server reads. They must lie in the folders of `[files] roots`;
    /// the server gets copies of them, and an approval is bound to their content. Only for a server that is a `command`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(example = ["path"])]
    pub files: Vec<String>,
    /// What the tool was when it was imported: a digest of its description and schemas. A server that offers
    /// something else under this name is not called until a human has imported it again. Absent: whatever it is.
    #[schemars(regex(pattern = "^[0-9a-f]{16}$"))]
    pub digest: Option<String>,
}

/// An MCP server: a program that is started here, or a URL.
#[skip_serializing_none]
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
    pub folder: Option<String>,
    /// Files and folders of the program that an approval is bound to, besides those that its command names: absolute, or
    /// relative to the folder in which it runs. They are compared when it starts, and before each approved call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(example = ["server", "/usr/lib/node_modules/server/dist"])]
    pub covers: Vec<String>,
    /// The URL of a server that runs already.
    #[schemars(regex(pattern = r"^https?://"))]
    pub url: Option<String>,
    /// Headers of each request: constants; `secret:NAME`, also after a text as in `Bearer secret:NAME`, inserts a
    /// secret.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The secret with the tokens of an OAuth sign-in. It is written when a human has signed in.
    pub oauth: Option<SecretName>,
    /// How a URL is spoken to. Absent: streamable HTTP, and SSE if the server knows only that.
    #[serde(default)]
    pub transport: McpTransport,
    /// The protocol version that the server spoke when it was imported: tried first.
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

impl Settings for Mcp {
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
}
