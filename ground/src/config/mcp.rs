//! The Model Context Protocol: what `agent-magic-tool mcp` serves, and to which clients; how servers are signed in to.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use url::Url;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpSettings {
    /// The port on loopback at which a sign-in to a server ends; 0 is any free one.
    pub sign_in_port: u16,
    /// The https URL of our client metadata document, if a human has published one.
    #[serde(deserialize_with = "super::none_if_empty")]
    pub client_metadata_url: Option<Url>,
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
    /// The profile with the client's rights.
    pub profile: Option<String>,
    /// The file with the key that the client shows over HTTP.
    pub key_file: Option<PathBuf>,
}
