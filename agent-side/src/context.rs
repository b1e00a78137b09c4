//! The context that every command gets.

use std::io::{self, Read as _};

use protocol::caller::Caller;
use protocol::code::Exit;
use protocol::paths::Paths;
use protocol::tool_scope::ToolScope;

use crate::output::Output;

/// The paths, the caller, and the input and output of one command.
#[derive(Debug)]
pub struct Context {
    pub paths: Paths,
    pub output: Output,
    pub stdin: Stdin,
    pub caller: Caller,
    pub dispatch: Dispatch,
}

/// Runs another command line. Commands get this function from their context, so that they do not depend on
/// each other.
pub type Dispatch = fn(&[String], &Context) -> Exit;

/// The standard input of a command.
#[derive(Debug)]
pub enum Stdin {
    /// The standard input of the process.
    Process,
    /// A text from the caller in the same process.
    Text(String),
}

impl Stdin {
    /// Whether the caller is in the same process: a model that has no shell, and so no files either.
    pub fn is_of_model(&self) -> bool {
        matches!(self, Self::Text(_))
    }

    /// Reads to the end, but at most `bytes` bytes.
    pub fn read_at_most(&self, bytes: u64) -> io::Result<Vec<u8>> {
        let mut read = Vec::new();
        match self {
            Self::Process => io::stdin().lock().take(bytes).read_to_end(&mut read)?,
            Self::Text(text) => text.as_bytes().take(bytes).read_to_end(&mut read)?,
        };
        Ok(read)
    }
}

impl Context {
    /// The context of a command that runs as a process of its own.
    pub fn of_process(paths: Paths, tool_scope: ToolScope, output: Output, dispatch: Dispatch) -> Self {
        let caller = Caller {
            uid: nix::unistd::geteuid().as_raw(),
            session: paths.session(),
            folder: std::env::current_dir().ok(),
            depth: paths.depth(),
            wakes: paths.loop_wakes(),
            read_only: paths.read_only(),
            unattended: false,
            trust: paths.trust(),
            call_budget: paths.call_budget(),
            tool_scope,
        };
        Self { paths, output, stdin: Stdin::Process, caller, dispatch }
    }

    /// Whether the command runs as a process of its own.
    pub fn is_process(&self) -> bool {
        matches!(self.stdin, Stdin::Process)
    }
}
