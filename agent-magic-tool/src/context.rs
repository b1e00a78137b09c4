//! What every command is given.

use executor::places::Places;

use crate::output::Output;

/// Where everything lies, and the right to print.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) places: Places,
    pub(crate) output: Output,
}
