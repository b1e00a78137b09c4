//! The JavaScript engine: runs a script and reports to its [`Run`](crate::run::Run) what the script does.
//!
//! Everything that knows `QuickJS` is in `engine/`. An engine has three functions: `start` compiles the script and runs it
//! up to its first `await`, `settle` ends a call, and `advance` runs what can run. It reports in a fixed order, and never
//! looks at a clock or at anything else that a second run would find changed.

mod failure;
mod origin;
mod quickjs;

use crate::messages::Completion;

pub(crate) use quickjs::QuickJs as Engine;

/// The stack that scripts may use.
pub(crate) const MAX_STACK_BYTES: usize = 4 << 20;

/// Where a script is once everything has run that can run.
#[derive(Debug)]
pub(crate) enum Progress {
    /// It waits for a call, or for those that it left open when it returned.
    Waiting { is_returned: bool },
    /// It returned, and its calls ended.
    Ended(Completion),
}
