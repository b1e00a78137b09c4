//! Who sent a request, and what the client may use.

use hyper::http::request::Parts;
use protocol::caller::{Caller, MCP_CLIENT, session_label};
use protocol::digest;
use protocol::task::TaskId;
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use sha2::{Digest as _, Sha256};

use super::ServerSettings;
use super::access::ClientAccess;
use super::keys::KeyName;

/// The most characters of a client's own name that become part of its session.
const MAX_NAME_CHARS: usize = 40;

/// Who sent a request.
#[derive(Debug)]
pub(super) struct Client {
    name: String,
    pub(super) access: ClientAccess,
    pub(super) caller: Caller,
}

impl Client {
    /// Over HTTP the one whose key the request showed, otherwise the one that it says it is. `connection` tells its
    /// connections and sessions apart.
    pub(super) fn of(context: &RequestContext<RoleServer>, settings: &ServerSettings, connection: TaskId) -> Self {
        let parts = context.extensions.get::<Parts>();
        let key = parts.and_then(|parts| parts.extensions.get::<KeyName>());
        let stated = || context.client_info().map(|info| plain(&info.name)).filter(|name| !name.is_empty());
        let name = match key {
            Some(KeyName(name)) => name.clone(),
            None => settings.client.clone().or_else(stated).unwrap_or_else(|| "client".to_owned()),
        };
        let session = match (key, &settings.caller.session) {
            // What it delegates belongs to the key, whichever connection it uses.
            (Some(KeyName(key)), _) => session_label(Some(&client_label(key)), None, "key"),
            (None, Some(own)) => own.clone(),
            // A client that the configuration names has its tasks also when it comes back.
            (None, None) if settings.client.is_some() => format!("mcp:{name}"),
            (None, None) => format!("mcp:{name}:{connection}"),
        };
        let access = settings.access.of(&name);
        let mut caller = Caller { session: Some(session), ..settings.caller.clone() };
        caller.tool_scope = caller.tool_scope.also(&access.subtools);
        Self { name, access, caller }
    }

    /// Why the client may not use something.
    pub(super) fn refused(&self, kind: &str, name: &str) -> ErrorData {
        let message = format!("the client `{}` may not use the {kind} `{name}`: it is not on its list", self.name);
        ErrorData::invalid_params(message, None)
    }
}

/// What callers call the client of a key: other clients never have the same label.
fn client_label(name: &str) -> String {
    let plain = plain(name);
    if plain == name {
        return format!("{MCP_CLIENT}{plain}");
    }
    format!("{MCP_CLIENT}{plain}.{}", &digest::hex(&Sha256::digest(name))[..16])
}

/// The characters of a client's name that need no quoting anywhere.
fn plain(name: &str) -> String {
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    name.chars().map(|c| if is_plain(&c) { c } else { '-' }).take(MAX_NAME_CHARS).collect()
}
