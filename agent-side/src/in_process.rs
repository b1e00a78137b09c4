//! Runs commands for an agent in the same process and captures their output.
//!
//! Accepts the same commands as the command line, except for those that are for humans. A command
//! that evaluates a model's jq expression runs in a process of its own, since the expression might
//! exhaust the memory.

use std::path::PathBuf;

use protocol::caller::Caller;
use protocol::code::Exit;
use protocol::paths::Paths;
use protocol::shell::{PrintedOutput, ProgramShell, Shell};

use crate::context::{Context, Dispatch, Stdin};
use crate::error::Error;
use crate::launch;
use crate::output::Output;

/// A [`Shell`] that runs most calls without starting a process.
#[derive(Debug)]
pub struct InProcess {
    paths: Paths,
    dispatch: Dispatch,
}

impl InProcess {
    /// A shell for an agent that `context`'s caller starts.
    pub fn of(context: &Context) -> Self {
        Self { paths: context.paths.clone(), dispatch: context.dispatch }
    }

    /// The same with other folders.
    #[must_use]
    pub fn in_mailbox(self, paths: &Paths) -> Self {
        Self { paths: paths.clone(), ..self }
    }
}

impl Shell for InProcess {
    fn call(&self, arguments: &[String], stdin: &str, caller: &Caller) -> PrintedOutput {
        if needs_own_process(arguments) {
            let program = launch::program().unwrap_or_else(|_| "agent-magic-tool".into());
            return printed_by(program, &self.paths, arguments, stdin, caller);
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

/// Runs a command line as a process of `program`, and prints what that prints.
pub fn call_program(program: PathBuf, arguments: &[String], context: &Context) -> Result<Exit, Error> {
    let stdin = match &context.stdin {
        Stdin::Text(text) => text.as_str(),
        Stdin::Process => "",
    };
    let printed = printed_by(program, &context.paths, arguments, stdin, &context.caller);
    context.output.repeat(&printed)?;
    Ok(Exit::of(printed.status))
}

/// What a process of `program` prints. It may be the input of another command, and the caller that captures it limits what
/// is shown.
fn printed_by(program: PathBuf, paths: &Paths, arguments: &[String], stdin: &str, caller: &Caller) -> PrintedOutput {
    let program = ProgramShell::new(program);
    let program = paths.environment().into_iter().fold(program, |program, (name, value)| program.env(name, value));
    let mut arguments = arguments.to_vec();
    if arguments[0] != "jq" && !arguments.iter().any(|argument| argument == "--whole") {
        arguments.insert(1, "--whole".to_owned());
    }
    program.call(&arguments, stdin, caller)
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
