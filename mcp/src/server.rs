//! The server: one tool, `command_executor`, for clients that speak the protocol and have no shell.
//!
//! It passes command lines on, and shows result files as resources and as tasks of the protocol. It decides nothing:
//! who may run what is up to the shell behind it, and only a human on the page can approve. Serves all protocol
//! versions from 2024-11-05 to 2026-07-28.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use protocol::caller::Caller;
use protocol::command_executor::ForeignCommands;
use protocol::mailbox::Mailbox;
use protocol::shell::Shell;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

pub use access::{AccessLists, ClientAccess};
pub use http::{HttpBinding, NoLoopback};
pub use keys::{ClientKey, KeyFileError};

mod access;
mod call;
mod content;
mod exposed;
mod handler;
mod http;
mod keys;
mod progress;
mod prompts;
mod results;
mod stdio;
mod subscriptions;
mod tasks;
mod watch;

/// What is served, and on whose behalf.
#[derive(Debug)]
pub struct ServerSettings {
    pub shell: Arc<dyn Shell>,
    pub mailbox: Mailbox,
    /// The caller of every call; each client gets a session of its own, unless this has one and serves a single client.
    pub caller: Caller,
    pub foreign_commands: ForeignCommands,
    /// Names and globs of the subtools that are served as tools of their own, beside the one tool.
    pub exposed: globset::GlobSet,
    pub access: AccessLists,
    /// The name under which a client on standard input is looked up; otherwise it is the one that the client states.
    pub client: Option<String>,
    /// The folders whose files define subtools.
    pub catalog: Vec<PathBuf>,
}

/// Why the server ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("failed to start the server")]
    Start(#[source] io::Error),
    #[error("failed to listen on `{address}`")]
    Listen { address: std::net::SocketAddr, source: io::Error },
    #[error(transparent)]
    NoLoopback(#[from] NoLoopback),
}

/// Serves one client on standard input and output, until its end of standard input or a signal.
pub fn serve_stdio(settings: ServerSettings) -> Result<(), ServeError> {
    run(async |ended| {
        stdio::serve(settings, ended).await;
        Ok(())
    })
}

/// Serves any number of clients over HTTP until a signal. Calls `announce` with the URL as soon as it answers.
pub fn serve_http(
    settings: ServerSettings,
    binding: HttpBinding,
    announce: impl FnOnce(&str),
) -> Result<(), ServeError> {
    run(async |ended| http::serve(settings, binding, announce, ended).await)
}

/// Runs `serve` until it ends. Its token is cancelled by SIGTERM and SIGINT.
fn run(serve: impl AsyncFnOnce(CancellationToken) -> Result<(), ServeError>) -> Result<(), ServeError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(call::MAX_THREADS)
        .build()
        .map_err(ServeError::Start)?;
    let outcome = runtime.block_on(async {
        let of = |kind| signal(kind).map_err(ServeError::Start);
        let (mut terminate, mut interrupt) = (of(SignalKind::terminate())?, of(SignalKind::interrupt())?);
        let ended = CancellationToken::new();
        let serving = serve(ended.clone());
        tokio::pin!(serving);
        tokio::select! {
            outcome = &mut serving => return outcome,
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        ended.cancel();
        serving.await
    });
    // A call that still waits for a result must not keep the process: the task goes on without it.
    runtime.shutdown_background();
    outcome
}
