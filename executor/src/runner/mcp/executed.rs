//! The files that the program of a server executes: what an approval of a call is bound to.
//!
//! A server runs before the call and opens its files by their names. So it is known from which bytes it was started,
//! and one that was started from others than a human was shown is ended, and started anew for the call. What its
//! program loads besides, such as modules, is not looked for.

use std::path::Path;

use protocol::code::Code;

use super::McpServer;
use crate::runner::RunnerContext;
use crate::runner::process::program_call::ProgramCall;
use crate::task::failure::Failure;
use crate::task::fingerprint::Fingerprint;

impl McpServer {
    /// What starts the program of a server that is a command.
    pub(super) fn program_call(&self) -> ProgramCall {
        ProgramCall::server(&self.command, &self.env, Path::new(self.folder.as_deref().unwrap_or("/")))
    }

    /// Fails if the program of the server cannot be found.
    pub(super) fn check_program(&self, context: &RunnerContext) -> Result<(), Failure> {
        if self.url.is_some() { Ok(()) } else { self.program_call().executed(&context.config.programs).map(drop) }
    }

    /// The files that its program executes; none for a server at a URL. `agent` is the Unix user of the agent.
    pub(super) fn executed(&self, context: &RunnerContext, agent: u32) -> Result<Vec<Fingerprint>, Failure> {
        if self.url.is_some() {
            return Ok(Vec::new());
        }
        let files = self.program_call().executed(&context.config.programs)?.into_iter();
        Ok(files.map(|(path, role)| Fingerprint::of(&path, role, agent)).collect())
    }

    /// The failure of a call for which a human was shown another program.
    pub(super) fn drifted(&self) -> Failure {
        Failure::drifted(&format!("the program of the MCP server `{}` changed after the human was asked", self.name))
    }
}

/// From which files a program was started.
#[derive(Debug)]
pub(super) struct StartedFrom(Vec<Fingerprint>);

impl StartedFrom {
    /// Reads the files of `server`, which is about to be started.
    pub(super) async fn read(server: &McpServer, context: &RunnerContext) -> Result<Self, Failure> {
        // Who could change them is said when a human is asked.
        let call = server.program_call().executed(&context.config.programs)?;
        let files = move || call.into_iter().map(|(path, role)| Fingerprint::of(&path, role, 0)).collect();
        // Hashing a large program would block the runtime.
        let read = tokio::task::spawn_blocking(files).await;
        read.map(Self).map_err(|error| Failure::new(Code::Internal, format!("failed to read a program: {error}")))
    }

    /// Whether the files are still those that were read. A file that could not be read says nothing.
    pub(super) fn is_current(&self) -> bool {
        self.0.iter().all(|file| file.sha256.is_empty() || file.is_current())
    }

    /// Whether these are the executed ones among the files that a human was shown.
    pub(super) fn is(&self, shown: &[Fingerprint]) -> bool {
        let executed: Vec<_> = shown.iter().filter(|file| !file.role.is_of_input()).collect();
        executed.len() == self.0.len() && executed.iter().zip(&self.0).all(|(shown, own)| shown.is_same_as(own))
    }
}
