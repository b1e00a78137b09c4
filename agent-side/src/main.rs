//! The small program: the commands that an agent calls at every turn, and nothing of the executor. Every other command it
//! hands to the full program.

use std::ffi::OsString;
use std::iter;
use std::process::ExitCode;
use std::time::Duration;

use agent_side::backoff::Backoff;
use agent_side::cli::{self, AgentCommand, Program};
use agent_side::commands::list;
use agent_side::context::Context;
use agent_side::error::Error;
use agent_side::full_program;
use agent_side::in_process::call_program;
use agent_side::launch;
use agent_side::listing_source::{ListFailure, PublishedListing};
use agent_side::output::Output;
use agent_side::usage::usage_error;
use clap::Parser;
use clap::error::ErrorKind;
use listing::Listing;
use protocol::code::{Code, Exit};
use protocol::command_names::{AGENT_COMMANDS, OTHER_COMMANDS};
use protocol::mailbox::Mailbox;
use protocol::mailbox::for_callers::CallerSettings;
use protocol::paths::Paths;
use protocol::tool_scope::ToolScope;

/// The commands that are parsed here, beside those of agents.
const OWN_COMMANDS: [&str; 4] = ["command-executor", "hook", "jq", "jq-worker"];
/// The commands of agents that only the full program has.
const FULL_COMMANDS: [&str; 3] = ["inspect", "lint", "doctor"];
/// How long to wait for a listing that the executor is making.
const MAX_WAIT_FOR_LISTING: Duration = Duration::from_mins(1);
const MAX_PAUSE: Duration = Duration::from_millis(50);

/// One shell command that gives an AI agent any number of tools.
#[derive(Debug, Parser)]
#[command(name = "agent-magic-tool", bin_name = "agent-magic-tool", version, before_help = cli::HOW_TO, after_help = cli::EXIT_STATUS, max_term_width = 100)]
#[command(disable_help_subcommand = true, subcommand_required = false)]
struct Cli {
    /// Print documents of any size, for pipes and files
    #[arg(long, global = true, hide = true)]
    whole: bool,
    #[command(subcommand)]
    command: Option<AgentCommand>,
}

fn main() -> ExitCode {
    let mut arguments: Vec<_> = std::env::args_os().collect();
    let output = Output::new();
    if let Err(error) = full_program::take_version(&mut arguments) {
        return ExitCode::from(report(&error, &output) as u8);
    }
    ExitCode::from(run(&arguments, output) as u8)
}

fn run(arguments: &[OsString], output: Output) -> Exit {
    if cli::asks_for_version(arguments) {
        return printed(output.text(cli::VERSION), &output);
    }
    if arguments.len() == 1 {
        return printed(output.text(&cli::introduction()), &output);
    }
    if !is_own(arguments) {
        return report(&full_program::become_it(&arguments[1..]), &output);
    }
    let words = cli::without_help_command(arguments);
    let command = match parse(&words, &output) {
        Ok(command) => command,
        Err(none) => {
            let said = none.said(&words, || Err(full_program::become_it(&arguments[1..])));
            return said.unwrap_or_else(|error| report(&error, &output));
        }
    };
    match cli::context_of_process(arguments, output, call) {
        Ok(Some(context)) => {
            let program = SmallProgram { elsewhere: || Err(full_program::become_it(&arguments[1..])) };
            command.execute(&context, &program).unwrap_or_else(|error| report(&error, &context.output))
        }
        Ok(None) => Exit::Ok,
        Err(error) => report(&error, &Output::new()),
    }
}

/// Whether the command is one of this program; others, options and mistakes are those of the full one, if it is here.
fn is_own(arguments: &[OsString]) -> bool {
    let words = cli::without_help_command(arguments);
    let Some(name) = words.get(1).and_then(|word| word.to_str()) else { return false };
    let is_of_full = FULL_COMMANDS.contains(&name) || OTHER_COMMANDS.contains(&name) && !OWN_COMMANDS.contains(&name);
    let is_known = OWN_COMMANDS.contains(&name) || AGENT_COMMANDS.contains(&name);
    !is_of_full && (is_known || full_program::path().is_none())
}

/// Runs the command line of an agent, given without the program's name, in this process if it can.
fn call(arguments: &[String], context: &Context) -> Exit {
    let words: Vec<OsString> =
        iter::once("agent-magic-tool").chain(arguments.iter().map(String::as_str)).map(Into::into).collect();
    let elsewhere = || match full_program::path() {
        Some(program) => call_program(program, arguments, context),
        None => Err(full_program::become_it(&[])),
    };
    let first = arguments.first().map(String::as_str);
    if let Some(error) = cli::refuse_installation(first, context) {
        return report(&error, &context.output);
    }
    let is_for_agents = first.is_some_and(|name| AGENT_COMMANDS.contains(&name));
    let result = if is_own(&words) {
        match parse(&cli::without_help_command(&words), &context.output) {
            Ok(command) if is_for_agents && !command.has_human_only_arguments() => {
                command.execute(context, &SmallProgram { elsewhere })
            }
            Ok(_) => Err(Error::new(Code::HumansOnly, "this command is not for agents")
                .hint("if it is needed, ask the user to run it in a terminal")),
            Err(none) => none.said(&words, elsewhere),
        }
    } else {
        elsewhere()
    };
    result.unwrap_or_else(|error| report(&error, &context.output))
}

/// Why the arguments are no command.
enum NoCommand {
    /// Help was asked for, and printed.
    Printed(Exit),
    /// They are wrong.
    Wrong(clap::Error),
}

impl NoCommand {
    /// Says what is wrong. The full program knows more about it, if it is here: it knows all subtools.
    fn said(self, arguments: &[OsString], elsewhere: impl FnOnce() -> Result<Exit, Error>) -> Result<Exit, Error> {
        match self {
            Self::Printed(exit) => Ok(exit),
            // The client would take any output, or a failing exit status, for a wake-up.
            Self::Wrong(_) if cli::is_hook(arguments) => Ok(Exit::Ok),
            Self::Wrong(_) if full_program::path().is_some() => elsewhere(),
            Self::Wrong(error) => Err(usage_error(&error, arguments, &fields_of)),
        }
    }
}

/// Parses `arguments`; prints help if they ask for it.
fn parse(arguments: &[OsString], output: &Output) -> Result<AgentCommand, NoCommand> {
    if let Some(command) = AgentCommand::parse_alone(arguments) {
        return Ok(command);
    }
    match Cli::try_parse_from(arguments) {
        Ok(Cli { command: Some(command), whole }) => {
            if whole {
                output.print_whole();
            }
            Ok(command)
        }
        Ok(Cli { command: None, .. }) => Err(NoCommand::Printed(printed(output.text(&cli::introduction()), output))),
        Err(error) => Err(match error.kind() {
            ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                NoCommand::Printed(printed(output.text(&error.to_string()), output))
            }
            _ => NoCommand::Wrong(error),
        }),
    }
}

/// The names of a subtool's input fields, as they are published.
fn fields_of(subtool: &str) -> Option<Vec<String>> {
    let paths = Paths::from_env().ok()?;
    // Who has a part of all subtools is told nothing of the others, and what the part is, only the executor knows.
    paths.tool_scope().ok().filter(ToolScope::is_everything)?;
    let mailbox = Mailbox::open(&paths.mailbox).ok()?;
    let listing = Listing::open(&mailbox.listing()).ok()?;
    Some(listing.entry(listing.find(subtool).ok()??).ok()?.fields())
}

/// This program; `elsewhere` has the full one run the command line.
struct SmallProgram<E: Fn() -> Result<Exit, Error>> {
    elsewhere: E,
}

impl<E: Fn() -> Result<Exit, Error>> Program for SmallProgram<E> {
    /// Lists what the executor published. If it has published nothing, or that of earlier definitions, the full program lists
    /// instead; without one the executor is waited for.
    fn list(&self, args: &list::Args, context: &Context) -> Result<Exit, Error> {
        let mut backoff = Backoff::new(MAX_PAUSE);
        // Looked for only when it is needed.
        let has_full_program = || full_program::path().is_some();
        loop {
            let Some(source) = PublishedListing::of(context) else {
                return if has_full_program() { (self.elsewhere)() } else { Err(no_executor()) };
            };
            match list::run(args, &source, context) {
                Ok(exit) => return Ok(exit),
                Err(ListFailure::Failed(error)) => return Err(error),
                Err(ListFailure::Elsewhere | ListFailure::Unusable(_)) if has_full_program() => {
                    return (self.elsewhere)();
                }
                Err(_) if backoff.waited() < MAX_WAIT_FOR_LISTING => backoff.pause(None),
                Err(_) => return Err(no_executor()),
            }
        }
    }

    fn settings(&self, paths: &Paths, mailbox: &Mailbox) -> Result<CallerSettings, Error> {
        Ok(launch::settings(paths, mailbox))
    }
}

fn no_executor() -> Error {
    Error::new(Code::NoExecutor, "no executor has published what there is, and the full program is not here")
        .hint("ask the user to start it: agent-magic-tool executor start")
}

fn printed(result: Result<(), Error>, output: &Output) -> Exit {
    match result {
        Ok(()) => Exit::Ok,
        Err(error) => report(&error, output),
    }
}

/// Prints `error` and returns its exit status.
fn report(error: &Error, output: &Output) -> Exit {
    output.error(error);
    error.exit()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_commands_that_are_parsed_here_are_those_of_the_program() {
        let parsed: Vec<_> = Cli::command().get_subcommands().map(|command| command.get_name().to_owned()).collect();
        let of_agents = AGENT_COMMANDS.into_iter().filter(|name| !FULL_COMMANDS.contains(name));
        let expected: Vec<_> = of_agents.chain(OWN_COMMANDS).collect();
        assert_eq!(parsed, expected);
    }
}
