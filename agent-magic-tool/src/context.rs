//! What every command is given.

use std::io::{self, Read as _};

use protocol::caller::Caller;
use protocol::code::Exit;
use protocol::paths::Paths;

use crate::output::Output;

/// Where everything lies, who calls, what there is to read, and the right to print.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) paths: Paths,
    pub(crate) output: Output,
    pub(crate) stdin: Stdin,
    pub(crate) caller: Caller,
    pub(crate) dispatch: Dispatch,
}

/// Carries out the words of a command line; commands that call others get it from here, since they know no
/// other command.
pub(crate) type Dispatch = fn(&[String], &Context) -> Exit;

/// What a command reads as its standard input.
#[derive(Debug)]
pub(crate) enum Stdin {
    /// The process's own.
    Process,
    /// A text that the caller gave.
    Text(String),
}

impl Stdin {
    pub(crate) fn read_at_most(&self, bytes: u64) -> io::Result<Vec<u8>> {
        let mut read = Vec::new();
        match self {
            Self::Process => io::stdin().lock().take(bytes).read_to_end(&mut read)?,
            Self::Text(text) => text.as_bytes().take(bytes).read_to_end(&mut read)?,
        };
        Ok(read)
    }
}

impl Context {
    /// Of a command that somebody called as a process.
    pub(crate) fn of_process(paths: Paths, output: Output, dispatch: Dispatch) -> Self {
        let caller = Caller {
            uid: nix::unistd::geteuid().as_raw(),
            session: paths.session(),
            folder: std::env::current_dir().ok(),
            depth: paths.depth(),
            wakes: paths.loop_wakes(),
            read_only: paths.read_only(),
            unattended: false,
            tool_scope: paths.tool_scope(),
        };
        Self { paths, output, stdin: Stdin::Process, caller, dispatch }
    }

    /// Whether the command was called as a process of its own.
    pub(crate) fn is_process(&self) -> bool {
        matches!(self.stdin, Stdin::Process)
    }
}
