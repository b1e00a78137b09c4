//! What every command is given.

use std::io::{self, Read as _};

use protocol::code::Exit;
use protocol::paths::Paths;
use protocol::shell::Caller;

use crate::output::Output;

/// Where everything lies, who calls, what there is to read, and the right to print.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) places: Paths,
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
    pub(crate) fn of_process(places: Paths, output: Output, dispatch: Dispatch) -> Self {
        let folder = std::env::current_dir().ok();
        let (session, depth, wakes) = (places.session(), places.depth(), places.loop_wakes());
        let (read_only, reach) = (places.read_only(), places.reach());
        let caller = Caller { session, folder, depth, read_only, alone: false, wakes, reach };
        Self { places, output, stdin: Stdin::Process, caller, dispatch }
    }

    /// Whether the command was called as a process of its own.
    pub(crate) fn is_process(&self) -> bool {
        matches!(self.stdin, Stdin::Process)
    }
}
