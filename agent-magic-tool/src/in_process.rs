//! The command line for an agent in the same process: words in, what would have been printed out.
//!
//! The same words and the same commands as for everybody; only what is for humans, and what would
//! call itself, is refused.

use executor::agent::shell::{Caller, Printed, Shell};
use executor::places::Places;

use crate::cli;
use crate::context::{Context, Stdin};
use crate::output::Output;

/// Carries out calls without starting a process.
#[derive(Debug)]
pub(crate) struct InProcess {
    places: Places,
}

impl InProcess {
    pub(crate) fn new(places: Places) -> Self {
        Self { places }
    }
}

impl Shell for InProcess {
    fn call(&self, words: &[String], stdin: &str, caller: &Caller) -> Printed {
        let context = Context {
            places: self.places.clone(),
            output: Output::kept(),
            stdin: Stdin::Text(stdin.to_owned()),
            caller: caller.clone(),
        };
        let exit = cli::call(words, &context);
        Printed { status: exit as u8, ..context.output.into_printed() }
    }
}
