//! What each client may use. A list only restricts: what a human must approve, and which subtools there are, stays the
//! configuration's.

use std::collections::BTreeMap;

use protocol::tool_scope::ToolScope;

/// What one client may use, as names and globs. A scope without lists covers everything, an empty list nothing.
#[derive(Debug, Clone, Default)]
pub struct ClientAccess {
    pub tools: ToolScope,
    /// Over the URIs of resources.
    pub resources: ToolScope,
    pub prompts: ToolScope,
    /// The subtools that the command lines of the client may name.
    pub subtools: ToolScope,
}

/// The lists of all clients that have one, by the client's name. A client without one may use everything.
#[derive(Debug, Clone, Default)]
pub struct AccessLists(BTreeMap<String, ClientAccess>);

impl AccessLists {
    pub(super) fn of(&self, client: &str) -> ClientAccess {
        self.0.get(client).cloned().unwrap_or_default()
    }
}

impl FromIterator<(String, ClientAccess)> for AccessLists {
    fn from_iter<I: IntoIterator<Item = (String, ClientAccess)>>(lists: I) -> Self {
        Self(lists.into_iter().collect())
    }
}
