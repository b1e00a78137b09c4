//! Carrying out command lines and calls for clients. Both block, so they run on threads, of which there are a bounded
//! number; those that may wait for results have their own, so that they never hold up the others.

use std::sync::Arc;

use protocol::command_executor::{CommandExecutor, CommandOutput};
use protocol::shell::PrintedOutput;
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use tokio::sync::Semaphore;

use super::ServerSettings;
use super::client::Client;
use super::progress::Progress;

/// How many lines are carried out at once, of each of the two kinds. More wait for their turn.
const MAX_PARALLEL: usize = 64;
/// The threads for all of them, with some for the reads of standard input and files.
pub(super) const MAX_THREADS: usize = 2 * MAX_PARALLEL + 16;

/// The turns of the calls.
#[derive(Debug)]
pub(super) struct Turns {
    short: Arc<Semaphore>,
    long: Arc<Semaphore>,
}

impl Default for Turns {
    fn default() -> Self {
        let turns = || Arc::new(Semaphore::new(MAX_PARALLEL));
        Self { short: turns(), long: turns() }
    }
}

impl Turns {
    /// Runs `work` on a thread when its turn comes.
    async fn take<T: Send + 'static>(
        &self,
        is_long: bool,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ErrorData> {
        let turns = if is_long { &self.long } else { &self.short };
        let turn = Arc::clone(turns).acquire_owned().await.expect("the semaphore is never closed");
        let worked = tokio::task::spawn_blocking(move || {
            let done = work();
            drop(turn);
            done
        });
        worked.await.map_err(|error| ErrorData::internal_error(format!("the call was not carried out: {error}"), None))
    }

    /// Runs the command line of a client. If the client withdraws its call, the answer is dropped; what was delegated
    /// until then goes on.
    pub(super) async fn run_line(
        &self,
        settings: &ServerSettings,
        client: &Client,
        line: String,
        key: String,
        context: &RequestContext<RoleServer>,
    ) -> Result<CommandOutput, ErrorData> {
        let executor = executor(settings, client);
        let is_long = executor.may_take_long(&line);
        let mut progress = Progress::of(context);
        let work = self.take(is_long, move || executor.execute(&line, &key));
        tokio::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                () = context.ct.cancelled() => return Err(withdrawn()),
                () = progress.due() => progress.remind("still waiting").await,
            }
        }
    }

    /// Runs a command line of the server's own for a client; it must not wait for anything.
    pub(super) async fn run_short(
        &self,
        settings: &ServerSettings,
        client: &Client,
        line: String,
    ) -> Result<CommandOutput, ErrorData> {
        let executor = executor(settings, client);
        self.take(false, move || executor.execute(&line, "")).await
    }

    /// Calls `agent-magic-tool` for a client, with `stdin` as standard input; it must not wait for anything.
    pub(super) async fn call(
        &self,
        settings: &ServerSettings,
        client: &Client,
        words: Vec<String>,
        stdin: String,
    ) -> Result<PrintedOutput, ErrorData> {
        let (shell, caller) = (Arc::clone(&settings.shell), client.caller.clone());
        self.take(false, move || shell.call(&words, &stdin, &caller)).await
    }
}

fn executor(settings: &ServerSettings, client: &Client) -> CommandExecutor {
    CommandExecutor::new(Arc::clone(&settings.shell), settings.mailbox.clone(), client.caller.clone())
        .with_foreign_commands(settings.foreign_commands)
}

/// The answer to a call that its client withdrew, which no client reads.
pub(super) fn withdrawn() -> ErrorData {
    ErrorData::internal_error("the client cancelled the call", None)
}
