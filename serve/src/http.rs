//! The HTTP server: one listener, one door, and the routes of each interface.
//!
//! An interface gives a router over [`ServeState`]. A request reaches it only after the door has let it in, with the
//! [`HttpClient`] as an extension.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use ground::config::ServeSettings;
use ground::config::api_keys::ApiKeys;
pub use ground::config::api_keys::HistoryKeeper;
use ground::page_client::api_client::PageApi;
use protocol::tool_scope::ToolScope;
use tokio::sync::Semaphore;

use crate::limits::ConcurrencyLimit;
use crate::service::SessionService;
use crate::service::turn::Asker;

pub mod api;
mod door;
mod error;
mod extract;
pub(crate) mod model_protocol;
pub mod openapi;
mod server;
pub(crate) mod stream;
pub(crate) mod stream_types;
mod waiting_stream;

pub(crate) use door::check_request;
pub(crate) use error::retry_seconds;
pub use error::status_of;
pub use server::{Binding, BindingError, serve};

/// What every route needs.
#[derive(Debug)]
pub struct ServeState {
    pub service: Arc<SessionService>,
    pub keys: ApiKeys,
    pub page: PageApi,
    pub settings: ServeSettings,
    wrong_keys: door::WrongKeys,
    bodies: Semaphore,
    /// The requests of each API key that are being answered.
    requests: ConcurrencyLimit<String>,
}

impl ServeState {
    pub fn new(service: Arc<SessionService>, keys: ApiKeys, page: PageApi, settings: ServeSettings) -> Self {
        Self {
            service,
            keys,
            page,
            settings,
            wrong_keys: door::WrongKeys::default(),
            bodies: door::bodies(),
            requests: ConcurrencyLimit::new(door::MAX_REQUESTS_OF_KEY),
        }
    }
}

/// The client of a request that the door has let in.
#[derive(Debug, Clone)]
pub struct HttpClient {
    pub address: IpAddr,
    /// The name of its API key, if it showed one.
    pub key: Option<String>,
    /// The key itself, for the executor, which alone says whether it may decide.
    pub bearer: Option<Bearer>,
    pub history: HistoryKeeper,
    /// The model that its key names, if any.
    pub model: Option<String>,
    pub tool_scope: ToolScope,
    pub read_only: bool,
    /// Whether it may see its sessions and tasks beyond what its own call returns.
    pub may_read: bool,
    /// Nothing in its messages is a command.
    pub has_no_commands: bool,
    /// How many agents started each other before this request.
    pub depth: u8,
}

/// An API key as a client showed it.
#[derive(Clone, PartialEq, Eq)]
pub struct Bearer(Arc<str>);

impl Bearer {
    fn new(key: &str) -> Self {
        Self(key.into())
    }

    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bearer(…)")
    }
}

impl HttpClient {
    /// Who asks in a session of this client.
    pub fn asker(&self, interface: &str, session: String) -> Asker {
        Asker {
            session,
            interface: interface.to_owned(),
            key: self.key.clone(),
            depth: self.depth,
            tool_scope: self.tool_scope.clone(),
            read_only: self.read_only,
            can_decide: false,
            model: self.model.clone(),
            only_asks: !self.may_read,
            has_no_commands: self.has_no_commands,
        }
    }

    /// The id of the one session of a client that names none: its address, and its key if it has one.
    pub fn own_session(&self, kind: &str) -> String {
        let address = self.address;
        match &self.key {
            Some(key) => format!("{kind}-{address}-{key}"),
            None => format!("{kind}-{address}"),
        }
    }
}
