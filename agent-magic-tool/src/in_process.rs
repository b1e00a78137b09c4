//! Runs commands for an agent in the same process and captures their output.
//!
//! Accepts the same commands as the command line, except for those that are for humans. A command
//! that evaluates a model's jq expression runs in a process of its own, since the expression might
//! exhaust the memory.

use protocol::caller::Caller;
use protocol::paths::Paths;
use protocol::shell::{PrintedOutput, ProgramShell, Shell};

use crate::context::{Context, Dispatch, Stdin};
use crate::launch;
use crate::output::Output;

/// A [`Shell`] that runs most calls without starting a process.
#[derive(Debug)]
pub(crate) struct InProcess {
    paths: Paths,
    dispatch: Dispatch,
}

impl InProcess {
    /// A shell for an agent that `context`'s caller starts.
    pub(crate) fn of(context: &Context) -> Self {
        Self { paths: context.paths.clone(), dispatch: context.dispatch }
    }

    /// The same with other folders.
    pub(crate) fn in_mailbox(self, paths: &Paths) -> Self {
        Self { paths: paths.clone(), ..self }
    }
}

impl Shell for InProcess {
    fn call(&self, arguments: &[String], stdin: &str, caller: &Caller) -> PrintedOutput {
        if needs_own_process(arguments) {
            let program = launch::program().unwrap_or_else(|_| "agent-magic-tool".into());
            let program = self
                .paths
                .environment()
                .into_iter()
                .fold(ProgramShell::new(program), |program, (name, value)| program.env(name, value));
            // Its output may be the input of another command, and the caller that captures it limits what is shown.
            let mut arguments = arguments.to_vec();
            if arguments[0] != "jq" && !arguments.iter().any(|argument| argument == "--whole") {
                arguments.insert(1, "--whole".to_owned());
            }
            return program.call(&arguments, stdin, caller);
        }
        let context = Context {
            paths: self.paths.clone(),
            output: Output::buffered(),
            stdin: Stdin::Text(stdin.to_owned()),
            caller: caller.clone(),
            dispatch: self.dispatch,
        };
        let exit = (self.dispatch)(arguments, &context);
        PrintedOutput { status: exit as u8, ..context.output.into_printed() }
    }
}

/// Whether the call evaluates a jq expression, which may take any amount of memory and time.
fn needs_own_process(arguments: &[String]) -> bool {
    match arguments.split_first() {
        Some((command, rest)) => {
            let takes_jq = ["read", "wait", "run"].contains(&command.as_str());
            command == "jq" || (takes_jq && rest.iter().any(|argument| argument.starts_with("--jq")))
        }
        None => false,
    }
}
