//! The servers that are kept between calls: one connection for each, made by the first call that needs it.
//!
//! A server that hangs or crashes holds up no other: each has a place of its own. A place knows how often its server
//! failed in a row, and lets nothing through for a while after the second time. A server that was not called for
//! [`MAX_IDLE`] is ended.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use definition::run::mcp::McpServer;
use ground::config::secret::SecretName;
use ground::task::failure::{Failure, Retry};
use ground::task::fingerprint::Fingerprint;
use protocol::code::Code;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::connection::{NotConnected, OpenedHeaders, ServerConnection, headers};
use super::executed;
use super::sign_in::{self, SignIns};
use crate::RunnerContext;

/// How long a server is kept that is not called.
const MAX_IDLE: Duration = Duration::from_mins(5);
/// How long nothing is tried after the second failure in a row; doubled with each further one.
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_mins(1);

/// The servers of one executor.
#[derive(Debug, Default)]
pub struct McpServers {
    places: Mutex<HashMap<u64, Arc<ServerPlace>>>,
    pub sign_ins: SignIns,
    /// What watches the servers and their programs.
    tracker: TaskTracker,
}

/// Where the connection to one server is kept.
#[derive(Debug, Default)]
struct ServerPlace {
    /// Locked while a connection is made.
    kept: tokio::sync::Mutex<KeptServer>,
}

#[derive(Debug, Default)]
struct KeptServer {
    server: Option<Arc<LiveServer>>,
    failures: u32,
    last_failure: String,
    not_before: Option<Instant>,
}

/// A connected server.
#[derive(Debug)]
pub(super) struct LiveServer {
    pub(super) connection: ServerConnection,
    /// The digests of its tools by their names, once they were listed.
    pub(super) digests: tokio::sync::Mutex<Option<HashMap<String, String>>>,
    running: AtomicUsize,
    last_used: Mutex<Instant>,
}

/// A server in use: it is not ended for being idle.
#[derive(Debug)]
pub(super) struct UsedServer {
    live: Arc<LiveServer>,
    place: Arc<ServerPlace>,
}

impl std::ops::Deref for UsedServer {
    type Target = LiveServer;

    fn deref(&self) -> &LiveServer {
        &self.live
    }
}

impl UsedServer {
    fn of(live: &Arc<LiveServer>, place: &Arc<ServerPlace>) -> Self {
        live.running.fetch_add(1, Ordering::AcqRel);
        Self { live: Arc::clone(live), place: Arc::clone(place) }
    }

    /// Takes the tokens of a new sign-in to `server`.
    pub(super) async fn on_sign_in(&self, server: &McpServer, context: &RunnerContext) -> Result<(), Failure> {
        match &self.connection.authorization {
            Some(authorization) => sign_in::renew(authorization, server, context).await,
            None => Ok(()),
        }
    }

    /// Takes the tokens of a sign-in to `server` that another process finished. Returns whether there were such.
    pub(super) async fn take_over_sign_in(&self, server: &McpServer, context: &RunnerContext) -> Result<bool, Failure> {
        match &self.connection.authorization {
            Some(authorization) => sign_in::take_over(authorization, server, context).await,
            None => Ok(false),
        }
    }

    /// Is told that a call succeeded: what failed before is forgotten.
    pub(super) fn on_success(&self) {
        if let Ok(mut kept) = self.place.kept.try_lock() {
            (kept.failures, kept.not_before) = (0, None);
        }
    }
}

impl Drop for UsedServer {
    fn drop(&mut self) {
        *self.live.last_used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.live.running.fetch_sub(1, Ordering::AcqRel);
    }
}

impl LiveServer {
    /// How long it has not been called; `None` while it is.
    fn idle(&self) -> Option<Duration> {
        let is_idle = self.running.load(Ordering::Acquire) == 0;
        is_idle.then(|| self.last_used.lock().unwrap_or_else(PoisonError::into_inner).elapsed())
    }
}

impl McpServers {
    pub(super) fn tracker(&self) -> &TaskTracker {
        &self.tracker
    }

    /// Returns when the programs that are no longer used have ended, which takes some seconds at most.
    pub async fn until_programs_end(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }

    fn places(&self) -> MutexGuard<'_, HashMap<u64, Arc<ServerPlace>>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the server, connected; for a call that a human approved, one that runs what the human was `shown`.
    pub(super) async fn get(
        &self,
        server: &McpServer,
        shown: Option<&[Fingerprint]>,
        context: &RunnerContext,
    ) -> Result<UsedServer, NotConnected> {
        if let Some(shown) = shown {
            executed::check_covered(server, shown, context).await?;
        }
        let headers = headers(server, context).await?;
        let key = key(server, &headers, context).await?;
        let place = Arc::clone(self.places().entry(key).or_default());
        let mut kept = place.kept.lock().await;
        if let Some(live) = &kept.server {
            let is_open = !live.connection.client.is_closed();
            if is_open && live.connection.is_from(shown) {
                return Ok(UsedServer::of(live, &place));
            }
            kept.server = None;
            if !is_open {
                kept.note_failure("it ended the connection");
            }
        }
        if let Some(wait) = kept.not_before.and_then(|at| at.checked_duration_since(Instant::now())) {
            let message = format!(
                "the MCP server `{}` failed {} times in a row, and is left alone for {} s more; the last time: {}",
                server.name,
                kept.failures,
                wait.as_secs() + 1,
                kept.last_failure
            );
            return Err(Failure::new(Code::CannotStart, message).retry(Retry::After(wait)).into());
        }
        let opened = ServerConnection::open(server, &headers, context).await;
        let connection = match opened {
            Ok(connection) => connection,
            // It is not the server's fault, and is tried again as soon as a human has signed in.
            Err(reason @ NotConnected::SignIn(_)) => return Err(reason),
            Err(NotConnected::Failed(failure)) => {
                kept.note_failure(&failure.error.message);
                return Err(failure.into());
            }
        };
        if !connection.is_from(shown) {
            return Err(executed::drifted(server).into());
        }
        let live = Arc::new(LiveServer {
            connection,
            digests: tokio::sync::Mutex::default(),
            running: AtomicUsize::new(0),
            last_used: Mutex::new(Instant::now()),
        });
        kept.server = Some(Arc::clone(&live));
        self.tracker.spawn(end_when_idle(Arc::downgrade(&place)));
        Ok(UsedServer::of(&live, &place))
    }

    /// Ends all servers, and waits until their programs are gone.
    pub async fn end_all(&self) {
        let places: Vec<_> = self.places().drain().map(|(_, place)| place).collect();
        // One that is just being connected is dropped by the call that connects it.
        let servers = places.iter().filter_map(|place| place.kept.try_lock().ok()?.server.take());
        // All are told to end before the first is waited for.
        let gone: Vec<_> = servers.filter_map(|server| Some(server.connection.program.as_ref()?.gone())).collect();
        for mut gone in gone {
            gone.wait_for(Option::is_some).await.ok();
        }
    }
}

impl KeptServer {
    fn note_failure(&mut self, what: &str) {
        self.failures += 1;
        what.clone_into(&mut self.last_failure);
        let doubled = self.failures.checked_sub(2).map(|times| FIRST_BACKOFF.saturating_mul(1 << times.min(10)));
        self.not_before = doubled.map(|wait| Instant::now() + wait.min(MAX_BACKOFF));
    }
}

/// Ends the server of `place` when it has been idle for long enough, or is gone.
async fn end_when_idle(place: Weak<ServerPlace>) {
    let mut pause = MAX_IDLE;
    loop {
        tokio::time::sleep(pause).await;
        let Some(place) = place.upgrade() else { return };
        let mut kept = place.kept.lock().await;
        let Some(server) = &kept.server else { return };
        let idle = server.idle().unwrap_or_default();
        if idle >= MAX_IDLE || server.connection.client.is_closed() {
            kept.server = None;
            return;
        }
        pause = MAX_IDLE.saturating_sub(idle);
    }
}

/// Tells servers apart: by their settings, and by the secrets that they got.
async fn key(server: &McpServer, headers: &OpenedHeaders, context: &RunnerContext) -> Result<u64, Failure> {
    let mut hasher = DefaultHasher::new();
    serde_json::to_string(server).unwrap_or_default().hash(&mut hasher);
    let mut opened: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    opened.sort_unstable();
    opened.hash(&mut hasher);
    for text in server.env.values() {
        if let Some(secret) = SecretName::in_reference(text) {
            context.secrets.get(&secret).await?.expose().hash(&mut hasher);
        }
    }
    Ok(hasher.finish())
}
