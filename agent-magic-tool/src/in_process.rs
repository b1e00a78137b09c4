//! The command line for an agent in the same process: words in, what would have been printed out.
//!
//! The same words and the same commands as for everybody; only what is for humans, and what would
//! call itself, is refused. What a model's expression might take all memory for has a process of its own.

use protocol::caller::Caller;
use protocol::paths::Paths;
use protocol::shell::{PrintedOutput, ProgramShell, Shell};

use crate::context::{Context, Dispatch, Stdin};
use crate::launch;
use crate::output::Output;

/// Carries out calls without starting a process.
#[derive(Debug)]
pub(crate) struct InProcess {
    paths: Paths,
    dispatch: Dispatch,
}

impl InProcess {
    /// For an agent that `context`'s caller starts.
    pub(crate) fn of(context: &Context) -> Self {
        Self { paths: context.paths.clone(), dispatch: context.dispatch }
    }
}

impl Shell for InProcess {
    fn call(&self, words: &[String], stdin: &str, caller: &Caller) -> PrintedOutput {
        if takes_what_it_likes(words) {
            let program = launch::program().unwrap_or_else(|_| "agent-magic-tool".into());
            let program = self
                .paths
                .environment()
                .into_iter()
                .fold(ProgramShell::new(program), |program, (name, value)| program.env(name, value));
            return program.call(words, stdin, caller);
        }
        let context = Context {
            paths: self.paths.clone(),
            output: Output::kept(),
            stdin: Stdin::Text(stdin.to_owned()),
            caller: caller.clone(),
            dispatch: self.dispatch,
        };
        let exit = (self.dispatch)(words, &context);
        PrintedOutput { status: exit as u8, ..context.output.into_printed() }
    }
}

/// Whether it evaluates an expression, of which nobody knows what it takes.
fn takes_what_it_likes(words: &[String]) -> bool {
    match words.split_first() {
        Some((command, rest)) => {
            command == "jq" || (command == "read" && rest.iter().any(|word| word.starts_with("--jq")))
        }
        None => false,
    }
}
