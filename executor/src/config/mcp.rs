//! What `agent-magic-tool mcp` serves, and to which clients.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpServerSettings {
    /// The names under which a proxy serves it to other machines.
    pub public_names: Vec<String>,
    /// What each client may use, and its key, by the client's name.
    pub clients: BTreeMap<String, McpClientSettings>,
}

/// Lists of names and globs. `None` means everything, an empty list nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpClientSettings {
    pub tools: Option<Vec<String>>,
    pub resources: Option<Vec<String>>,
    pub prompts: Option<Vec<String>>,
    /// The subtools that the client's command lines may name.
    pub subtools: Option<Vec<String>>,
    /// The file with the key that the client shows over HTTP.
    pub key_file: Option<PathBuf>,
}
