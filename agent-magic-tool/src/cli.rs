//! Parses the command line and runs the command that it names.

use std::ffi::OsString;
use std::iter;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory as _, Parser, Subcommand};
use protocol::code::{Code, Exit};
use protocol::command_executor::AGENT_COMMANDS;
use protocol::nearest::did_you_mean;
use protocol::paths::Paths;

use crate::commands::{
    agent, cancel, command_executor, completions, demo, doctor, executor as daemon, hook, inspect, jq, lint, list, man,
    read, resolve, run, secret, setup, tasks, wait,
};
use crate::context::Context;
use crate::error::Error;
use crate::output::Output;

/// The first thing that a language model, or a person, reads.
const HOW_TO: &str = "\
How to use it:
  1. Find a subtool:   agent-magic-tool list tools --query=\"search mail\"
     prints JSON: {\"NAME\": {\"description\": ..., \"input\": {JSON Schema}}}
  2. Run it:           agent-magic-tool run NAME --input='{\"key\": \"value\"}'
     returns at once: {\"id\": ..., \"status\": \"pending\", \"result_file\": ...}
  3. Get the result:   agent-magic-tool wait ID
     blocks until the task has ended and prints its result. Do not poll.
Quick tasks in one step: agent-magic-tool run NAME --input='...' --wait
Input with quotes in it: agent-magic-tool run NAME --input=- <<'EOF'
                         {\"text\": \"it's any JSON\"}
                         EOF";

const EXIT_STATUS: &str = "\
Exit status: 0 done or accepted, 1 the subtool failed, 2 wrong usage or input, 3 not found,
4 waiting for a human's confirmation, 5 refused, 6 still pending, 7 no executor, 70 internal error.
Standard output is one JSON document; notes and errors ({\"error\": {\"code\", \"message\", \"hint\"}}) are on standard error.";

/// One shell command that gives an AI agent any number of tools.
#[derive(Debug, Parser)]
#[command(name = "agent-magic-tool", version, before_help = HOW_TO, after_help = EXIT_STATUS, max_term_width = 100)]
#[command(disable_help_subcommand = true, subcommand_required = false)]
#[command(help_template = "{about}.\n\n{before-help}{usage-heading} {usage}\n\n{all-args}{after-help}")]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Find subtools: names, descriptions and input schemas, best match first
    List(list::Args),
    /// Delegate a task to a subtool; returns at once with the path of its result file
    Run(run::Args),
    /// Block until tasks have ended, and print their results
    Wait(wait::Args),
    /// Print a result, or part of a large one by jq, page, lines or bytes
    Read(read::Args),
    /// List open and ended tasks, newest first
    Tasks(tasks::Args),
    /// Cancel a task
    Cancel(cancel::Args),
    /// Record whether an `unknown` task took effect; the first answer is final
    Resolve(resolve::Args),
    /// Show all about one subtool: how it runs, effects, dependencies, privileges
    Inspect(inspect::Args),
    /// Check discovery JSON: what fails to load, is hard to find or easy to misuse
    Lint(lint::Args),
    /// Check this installation; show paths and sizes; --repair fixes what is safe
    Doctor(doctor::Args),
    /// Manage secrets for subtools; values come from standard input, not arguments
    #[command(subcommand)]
    Secret(secret::SecretCommand),
    /// Manage the process that performs tasks; it starts and stops by itself
    #[command(subcommand)]
    Executor(daemon::ExecutorCommand),
    /// Ask a language model that uses the subtools; without a question, start a chat
    Agent(agent::Args),
    /// Serve your own agent's one tool: JSON lines in, JSON lines out
    #[command(name = "command-executor")]
    OneTool(command_executor::Args),
    /// Connect a third-party agent: install its instructions and the hook that wakes it
    Setup(setup::Args),
    /// Called by a third-party agent; wakes it when results are ready
    Hook(hook::Args),
    /// Used by `command-executor`: evaluates a jq expression over standard input
    #[command(hide = true)]
    Jq(jq::Args),
    /// Show how it all works, on this machine and without any account
    Demo(demo::Args),
    /// Print the completion script for a shell
    Completions(completions::Args),
    /// Print the manual page
    Man(man::Args),
}

pub(crate) fn main() -> ExitCode {
    let output = Output::new();
    let arguments: Vec<_> = std::env::args_os().collect();
    let exit = match parse(&arguments, &output) {
        Ok(command) => match Paths::from_env() {
            Ok(paths) => execute(command, &Context::of_process(paths, output, call)),
            Err(_) if is_hook(&arguments) => Exit::Ok,
            Err(error) => report(&error.into(), &output),
        },
        Err(exit) => exit,
    };
    ExitCode::from(exit as u8)
}

/// Runs the command line of an agent, given without the program's name.
///
/// Refuses commands and arguments that are for humans.
pub(crate) fn call(arguments: &[String], context: &Context) -> Exit {
    let is_for_agents = arguments.first().is_some_and(|name| AGENT_COMMANDS.contains(&name.as_str()));
    let arguments: Vec<_> =
        iter::once("agent-magic-tool").chain(arguments.iter().map(String::as_str)).map(Into::into).collect();
    match parse(&arguments, &context.output) {
        Ok(command) if is_for_agents && !command.has_human_only_arguments() => execute(command, context),
        Ok(_) => {
            let error = Error::new(Code::HumansOnly, "this command is not for agents")
                .hint("if it is needed, ask the user to run it in a terminal");
            report(&error, &context.output)
        }
        Err(exit) => exit,
    }
}

/// Parses `arguments`; if they name no command, prints help or a usage error and returns the exit status.
fn parse(arguments: &[OsString], output: &Output) -> Result<Command, Exit> {
    match Cli::try_parse_from(arguments) {
        Ok(Cli { command: Some(command) }) => Ok(command),
        Ok(Cli { command: None }) => Err(printed(output.text(&Cli::command().render_help().to_string()), output)),
        Err(error) => Err(match error.kind() {
            ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => printed(output.text(&error.to_string()), output),
            // The client would take any output, or a failing exit status, for a wake-up.
            _ if is_hook(arguments) => Exit::Ok,
            _ => report(&usage_error(&error, arguments), output),
        }),
    }
}

impl Command {
    /// Whether a command that is in [`AGENT_COMMANDS`] has arguments that only humans may pass.
    fn has_human_only_arguments(&self) -> bool {
        match self {
            Self::Tasks(args) => args.forgets(),
            Self::Lint(args) => args.names_files(),
            Self::Doctor(args) => args.changes_something(),
            _ => false,
        }
    }
}

fn execute(command: Command, context: &Context) -> Exit {
    let result = match command {
        Command::List(args) => list::run(&args, context),
        Command::Run(args) => run::run(args, context),
        Command::Wait(args) => wait::run(&args, context),
        Command::Read(args) => read::run(&args, context),
        Command::Tasks(args) => tasks::run(&args, context),
        Command::Cancel(args) => cancel::run(&args, context),
        Command::Resolve(args) => resolve::run(args, context),
        Command::Inspect(args) => inspect::run(&args, context),
        Command::Lint(args) => lint::run(&args, context),
        Command::Doctor(args) => doctor::run(&args, context),
        Command::Secret(command) => secret::run(&command, context),
        Command::Executor(command) => daemon::run(&command, context),
        Command::Setup(args) => setup::run(&args, context),
        Command::Hook(args) => Ok(hook::run(&args, context)),
        Command::Agent(args) => agent::run(&args, context),
        Command::OneTool(args) => command_executor::run(&args, context),
        Command::Jq(args) => jq::run(&args, context),
        Command::Demo(args) => demo::run(&args, context),
        Command::Completions(args) => completions::run(&args, Cli::command(), context),
        Command::Man(args) => man::run(&args, Cli::command(), context),
    };
    result.unwrap_or_else(|error| report(&error, &context.output))
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

/// Converts clap's error to ours.
fn usage_error(error: &clap::Error, arguments: &[OsString]) -> Error {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(texts)) => texts.first().cloned(),
        _ => None,
    };
    let text = error.to_string();
    let message = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
    // clap lists missing arguments on the lines after the first.
    let missing = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::Strings(names)) if error.kind() == ErrorKind::MissingRequiredArgument => {
            format!(" {}", names.join(" "))
        }
        _ => String::new(),
    };
    let suggested = context(ContextKind::SuggestedSubcommand).or_else(|| context(ContextKind::SuggestedArg));
    let broken_quotes = error.kind() == ErrorKind::UnknownArgument && has_broken_json(arguments);
    let hint = if broken_quotes {
        run::USE_STDIN.to_owned()
    } else {
        did_you_mean(suggested).unwrap_or_else(|| {
            let usage = text.lines().find_map(|line| line.trim().strip_prefix("Usage: ")).map(str::to_owned);
            usage.unwrap_or_else(|| "see: agent-magic-tool --help".to_owned())
        })
    };
    Error::usage(format!("{message}{missing}")).hint(hint)
}

/// Whether a client calls its hook, which must succeed even for wrong arguments.
fn is_hook(arguments: &[OsString]) -> bool {
    arguments.get(1).is_some_and(|command| command == "hook")
}

/// Whether the arguments look like JSON that a shell has split.
fn has_broken_json(arguments: &[OsString]) -> bool {
    arguments
        .iter()
        .filter_map(|argument| argument.to_str())
        .any(|argument| argument.contains('{') && !argument.ends_with('}'))
}
