//! The MCP servers that other agents are configured to use: listed, and read as settings of our own.
//!
//! Pure: it says where each client keeps its configuration and reads a text; opening files is up to the command. In what
//! is listed nothing looks like a secret: of variables and headers it has the names, of arguments and URLs what is not
//! secret. [`ServerSettings`] have the values, and [`ServerSettings::connection`] separates what has to be stored as a
//! secret.

use serde::Serialize;
use serde_json::{Map, Value};
use serde_with_macros::skip_serializing_none;

mod redaction;
mod servers;
mod settings;

pub use redaction::{credential_in_command, credential_in_url, is_credential_value};
pub use settings::{ServerConnection, ServerSettings, StoredValue};

/// A client and a place in which it may keep its configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentPlace {
    pub client: &'static str,
    pub base: BaseFolder,
    /// The file, below the base.
    pub file: &'static str,
    format: Format,
}

/// What the path of a configuration file begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BaseFolder {
    /// The user's home folder.
    Home,
    /// The folder of configurations by the XDG base directories.
    Config,
    /// The folder that this variable names; without it, this folder in the home folder.
    Variable(&'static str, &'static str),
    /// The project: the folder in which the command is called.
    Project,
}

/// Where in a file the servers stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    /// JSON, with comments if the client allows them: an object of servers at this JSON pointer.
    Json(&'static str),
    /// Claude Code's own file: servers of the user, and of each project.
    ClaudeCode,
    /// OpenCode's file: `mcp`, in which newer versions have `servers`.
    OpenCode,
    /// TOML: a table of servers of this name.
    Toml(&'static str),
}

const fn place(client: &'static str, base: BaseFolder, file: &'static str, format: Format) -> AgentPlace {
    AgentPlace { client, base, file, format }
}

const SERVERS: Format = Format::Json("/mcpServers");
const VS_CODE: Format = Format::Json("/servers");
const ZED: Format = Format::Json("/context_servers");
const CODEX: Format = Format::Toml("mcp_servers");

/// Every place that is looked at. The formats are those of November 2026.
pub const PLACES: [AgentPlace; 25] = [
    place("claude-code", BaseFolder::Variable("CLAUDE_CONFIG_DIR", ""), ".claude.json", Format::ClaudeCode),
    place("claude-code", BaseFolder::Project, ".mcp.json", SERVERS),
    place("claude-desktop", BaseFolder::Config, "Claude/claude_desktop_config.json", SERVERS),
    place("claude-desktop", BaseFolder::Home, "Library/Application Support/Claude/claude_desktop_config.json", SERVERS),
    place("cursor", BaseFolder::Home, ".cursor/mcp.json", SERVERS),
    place("cursor", BaseFolder::Project, ".cursor/mcp.json", SERVERS),
    place("vs-code", BaseFolder::Config, "Code/User/mcp.json", VS_CODE),
    place("vs-code", BaseFolder::Config, "Code - Insiders/User/mcp.json", VS_CODE),
    place("vs-code", BaseFolder::Config, "VSCodium/User/mcp.json", VS_CODE),
    place("vs-code", BaseFolder::Home, "Library/Application Support/Code/User/mcp.json", VS_CODE),
    place("vs-code", BaseFolder::Project, ".vscode/mcp.json", VS_CODE),
    place("copilot", BaseFolder::Variable("COPILOT_HOME", ".copilot"), "mcp-config.json", SERVERS),
    place("codex", BaseFolder::Variable("CODEX_HOME", ".codex"), "config.toml", CODEX),
    place("codex", BaseFolder::Project, ".codex/config.toml", CODEX),
    place("gemini-cli", BaseFolder::Home, ".gemini/settings.json", SERVERS),
    place("gemini-cli", BaseFolder::Project, ".gemini/settings.json", SERVERS),
    place("opencode", BaseFolder::Config, "opencode/opencode.json", Format::OpenCode),
    place("opencode", BaseFolder::Config, "opencode/opencode.jsonc", Format::OpenCode),
    place("opencode", BaseFolder::Project, "opencode.json", Format::OpenCode),
    place("opencode", BaseFolder::Project, "opencode.jsonc", Format::OpenCode),
    place("opencode", BaseFolder::Project, ".opencode/opencode.json", Format::OpenCode),
    place("opencode", BaseFolder::Project, ".opencode/opencode.jsonc", Format::OpenCode),
    place("zed", BaseFolder::Config, "zed/settings.json", ZED),
    place("zed", BaseFolder::Home, "Library/Application Support/Zed/settings.json", ZED),
    place("zed", BaseFolder::Project, ".zed/settings.json", ZED),
];

/// An MCP server as a client is configured to reach it.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AgentServer {
    pub name: String,
    pub transport: Transport,
    /// The program and its arguments, without secrets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Without secrets.
    pub url: Option<String>,
    /// The names of the environment variables that it is given or needs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub environment: Vec<String>,
    /// The names of the headers that are sent to it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<String>,
    /// The project for which alone it is configured, if the file has servers of several.
    pub project: Option<String>,
    /// Whether the client is told not to use it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub disabled: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    Stdio,
    Http,
    Sse,
    /// Neither a command nor a URL.
    Unknown,
}

/// Reads one entry: its name, its content, and the project that it is for.
type ReadEntry<T> = fn(&str, &Map<String, Value>, Option<&String>) -> T;

/// Why a file cannot be read. Tells no content of it.
#[derive(Debug, thiserror::Error)]
pub enum AgentsError {
    #[error("it is not valid JSON: {0}")]
    Json(String),
    #[error("it is not valid TOML{0}")]
    Toml(String),
}

impl AgentPlace {
    /// Lists the servers in `text`, the content of the file, without secrets.
    pub fn servers(self, text: &str) -> Result<Vec<AgentServer>, AgentsError> {
        self.read(text, servers::listed)
    }

    /// Reads the servers in `text` with their secrets.
    pub fn settings(self, text: &str) -> Result<Vec<ServerSettings>, AgentsError> {
        self.read(text, settings::of)
    }

    fn read<T>(self, text: &str, read: ReadEntry<T>) -> Result<Vec<T>, AgentsError> {
        let document = match self.format {
            Format::Toml(_) => toml_document(text)?,
            Format::Json(_) | Format::ClaudeCode | Format::OpenCode => json_document(text)?,
        };
        Ok(match self.format {
            Format::Json(pointer) => servers::each(document.pointer(pointer), None, read),
            Format::Toml(key) => servers::each(document.get(key), None, read),
            Format::OpenCode => {
                let mcp = &document["mcp"];
                servers::each(Some(if mcp["servers"].is_object() { &mcp["servers"] } else { mcp }), None, read)
            }
            Format::ClaudeCode => {
                let projects = document["projects"].as_object().into_iter().flatten();
                let own = servers::each(document.get("mcpServers"), None, read);
                own.into_iter()
                    .chain(
                        projects.flat_map(|(path, project)| servers::each(project.get("mcpServers"), Some(path), read)),
                    )
                    .collect()
            }
        })
    }
}

fn json_document(text: &str) -> Result<Value, AgentsError> {
    // An empty file is what clients make before anything is configured.
    if text.trim().is_empty() {
        return Ok(Value::Null);
    }
    jsonc_parser::parse_to_serde_value(text, &jsonc_parser::ParseOptions::default())
        .map_err(|error| AgentsError::Json(error.to_string()))
}

fn toml_document(text: &str) -> Result<Value, AgentsError> {
    toml::from_str(text).map_err(|error: toml::de::Error| {
        let line = error.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        AgentsError::Toml(line.map(|line| format!(" on line {line}")).unwrap_or_default())
    })
}

#[cfg(test)]
mod tests;
