//! Parses the command line and runs the command that it names.

use std::ffi::OsString;
use std::iter;
use std::process::ExitCode;

use agent_side::cli::{self, AgentCommand};
use agent_side::context::Context;
use agent_side::error::Error;
use agent_side::full_program;
use agent_side::output::Output;
use agent_side::usage::usage_error;
use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser, Subcommand};
use protocol::code::{Code, Exit};
use protocol::command_names::AGENT_COMMANDS;
use protocol::paths::Paths;
use protocol::tool_scope::ToolScope;

use crate::commands::{
    agent, approver, completions, demo, doctor, executor as daemon, import, inspect, lint, logs, man, mcp, new, pack,
    script_worker, secret, serve, setup, test, verify,
};
use crate::own_listing::FullProgram;
use crate::{grouped_help, own_listing};

/// One shell command that gives an AI agent any number of tools.
#[derive(Debug, Parser)]
#[command(name = "agent-magic-tool", bin_name = "agent-magic-tool", version, before_help = cli::HOW_TO, after_help = cli::EXIT_STATUS, max_term_width = 100)]
#[command(disable_help_subcommand = true, subcommand_required = false)]
#[command(help_template = "{about}.\n\n{before-help}{usage-heading} {usage}\n\n{all-args}{after-help}")]
pub(crate) struct Cli {
    /// Print documents of any size, for pipes and files
    #[arg(long, global = true, hide = true)]
    whole: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    OfAgents(AgentCommand),
    /// Show all about one subtool: how it runs, effects, dependencies, privileges
    Inspect(inspect::Args),
    /// Write the first version of a subtool, from a template or a pasted `curl` line
    New(new::Args),
    /// Write subtools for an API, a program or an MCP server, from what it says of itself; --refresh follows changes
    Import(Box<import::Args>),
    /// Run the examples of a subtool against the real thing; --dry-run shows what they would send
    Test(test::Args),
    /// Print the executor's log in readable form; --follow goes on
    Logs(logs::Args),
    /// Check discovery JSON: what fails to load, is hard to find or easy to misuse
    Lint(lint::Args),
    /// Check this installation; show paths and sizes; --repair fixes what is safe
    Doctor(doctor::Args),
    /// Manage secrets for subtools; values come from standard input, not arguments
    #[command(subcommand)]
    Secret(secret::SecretCommand),
    /// Manage packs of subtools: which there are, what they lack, and which are enabled
    #[command(subcommand)]
    Pack(pack::PackCommand),
    /// Manage the process that performs tasks; it starts and stops by itself
    #[command(subcommand)]
    Executor(daemon::ExecutorCommand),
    /// Manage the keys with which you approve: passkeys and security keys
    #[command(subcommand)]
    Approver(approver::ApproverCommand),
    /// Check from the record alone that a task was approved with a touch of a key
    Verify(verify::Args),
    /// Ask a language model that uses the subtools; without a question, start a chat
    Agent(agent::Args),
    /// Serve the one tool over the Model Context Protocol, to clients without a shell
    Mcp(mcp::Args),
    /// Serve the agent's sessions to many clients: HTTP, OpenAI's and Ollama's protocols, Slack, other agents
    Serve(serve::Args),
    /// Connect a third-party agent: install its instructions and the hook that wakes it
    Setup(setup::Args),
    /// Show how it all works, on this machine and without any account
    Demo(demo::Args),
    /// Print the completion script for a shell
    Completions(completions::Args),
    /// Print the manual page
    Man(man::Args),
    /// Used by the executor: runs a script
    #[command(hide = true)]
    ScriptWorker,
}

pub(crate) fn main() -> ExitCode {
    let output = Output::new();
    let mut arguments: Vec<_> = std::env::args_os().collect();
    full_program::is_this();
    if let Err(error) = full_program::take_version(&mut arguments) {
        return ExitCode::from(report(&error, &arguments, &output) as u8);
    }
    let exit = match parse(&arguments, &output, caller_of_process) {
        Ok(command) => match cli::context_of_process(&arguments, output, call) {
            Ok(Some(context)) => {
                let first = arguments.get(1).and_then(|word| word.to_str());
                match cli::refuse_installation(first, &context) {
                    Some(error) => report(&error, &arguments, &context.output),
                    None => execute(command, &arguments, &context),
                }
            }
            Ok(None) => Exit::Ok,
            Err(error) => report(&error, &arguments, &Output::new()),
        },
        Err(exit) => exit,
    };
    ExitCode::from(exit as u8)
}

/// The folders and the tool scope of the caller of this process; `None` if they cannot be told.
fn caller_of_process() -> Option<(Paths, ToolScope)> {
    let paths = Paths::from_env().ok()?;
    let scope = paths.tool_scope().ok()?;
    Some((paths, scope))
}

/// Runs the command line of an agent, given without the program's name.
///
/// Refuses commands and arguments that are for humans.
pub(crate) fn call(arguments: &[String], context: &Context) -> Exit {
    let first = arguments.first().map(String::as_str);
    let is_for_agents = first.is_some_and(|name| AGENT_COMMANDS.contains(&name));
    let arguments: Vec<OsString> =
        iter::once("agent-magic-tool").chain(arguments.iter().map(String::as_str)).map(Into::into).collect();
    if let Some(error) = cli::refuse_installation(first, context) {
        return report(&error, &arguments, &context.output);
    }
    match parse(&arguments, &context.output, || Some((context.paths.clone(), context.caller.tool_scope.clone()))) {
        Ok(command) if is_for_agents && !command.has_human_only_arguments() => execute(command, &arguments, context),
        Ok(_) => {
            let error = Error::new(Code::HumansOnly, "this command is not for agents")
                .hint("if it is needed, ask the user to run it in a terminal");
            report(&error, &arguments, &context.output)
        }
        Err(exit) => exit,
    }
}

/// Parses `arguments`; if they name no command, prints help or a usage error and returns the exit status.
fn parse(
    arguments: &[OsString],
    output: &Output,
    caller: impl Fn() -> Option<(Paths, ToolScope)>,
) -> Result<Command, Exit> {
    if cli::asks_for_version(arguments) {
        return Err(printed(output.text(cli::VERSION), arguments, output));
    }
    if let Some(command) = AgentCommand::parse_alone(arguments) {
        return Ok(Command::OfAgents(command));
    }
    let arguments = &*cli::without_help_command(arguments);
    if let [_, option] = arguments
        && (option == "--help" || option == "-h")
    {
        return Err(printed(output.text(&grouped_help::help(Cli::command())), arguments, output));
    }
    match Cli::try_parse_from(arguments) {
        Ok(Cli { command: Some(command), whole }) => {
            if whole {
                output.print_whole();
            }
            Ok(command)
        }
        Ok(Cli { command: None, .. }) => Err(printed(output.text(&cli::introduction()), arguments, output)),
        Err(error) => Err(match error.kind() {
            ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                printed(output.text(&error.to_string()), arguments, output)
            }
            // The client would take any output, or a failing exit status, for a wake-up.
            _ if cli::is_hook(arguments) => Exit::Ok,
            _ => report(
                &usage_error(&error, arguments, &|subtool| {
                    let (paths, scope) = caller()?;
                    own_listing::fields_of(subtool, &paths, &scope)
                }),
                arguments,
                output,
            ),
        }),
    }
}

impl Command {
    /// Whether a command that is in [`AGENT_COMMANDS`] has arguments that only humans may pass.
    fn has_human_only_arguments(&self) -> bool {
        match self {
            Self::OfAgents(command) => command.has_human_only_arguments(),
            Self::Lint(args) => args.names_files(),
            Self::Doctor(args) => args.changes_something(),
            _ => false,
        }
    }
}

fn execute(command: Command, arguments: &[OsString], context: &Context) -> Exit {
    let result = match command {
        Command::OfAgents(command) => command.execute(context, &FullProgram),
        Command::Inspect(args) => inspect::run(&args, context),
        Command::New(args) => new::run(&args, context),
        Command::Import(args) => import::run(&args, context),
        Command::Test(args) => test::run(&args, context),
        Command::Logs(args) => logs::run(&args, context),
        Command::Lint(args) => lint::run(&args, context),
        Command::Doctor(args) => doctor::run(&args, context),
        Command::Secret(command) => secret::run(&command, context),
        Command::Pack(command) => pack::run(&command, context),
        Command::Executor(command) => daemon::run(&command, context),
        Command::Approver(command) => approver::run(&command, context),
        Command::Verify(args) => verify::run(&args, context),
        Command::Setup(args) => setup::run(&args, context),
        Command::Agent(args) => agent::run(&args, context),
        Command::Mcp(args) => mcp::run(&args, context),
        Command::Serve(args) => serve::run(&args, context),
        Command::Demo(args) => demo::run(&args, context),
        Command::Completions(args) => completions::run(&args, Cli::command(), context),
        Command::Man(args) => man::run(&args, Cli::command(), context),
        Command::ScriptWorker => script_worker::run(),
    };
    result.unwrap_or_else(|error| report(&error, arguments, &context.output))
}

fn printed(result: Result<(), Error>, arguments: &[OsString], output: &Output) -> Exit {
    match result {
        Ok(()) => Exit::Ok,
        Err(error) => report(&error, arguments, output),
    }
}

/// Prints `error`, with which the command line `arguments` failed, and returns its exit status.
fn report(error: &Error, arguments: &[OsString], output: &Output) -> Exit {
    output.error(error);
    if agent::wants_document(arguments)
        && let Err(unprinted) = output.whole_json(&agent::not_started(error))
    {
        output.error(&unprinted);
    }
    error.exit()
}

#[cfg(test)]
mod tests {
    use protocol::command_names::OTHER_COMMANDS;

    use super::*;

    #[test]
    fn a_command_that_is_parsed_alone_is_parsed_as_by_the_whole_program() {
        let lines = [
            "list",
            "list tools --query=mail --limit 3 --full --format names",
            "run NAME key=value list:=[1] --wait --jq . --in 5m",
            "run NAME --input - --dry-run --idempotency-key k --reason r --if-no-approver=fail",
            "wait 01a2047fc909731585bb77ededae5d91 --any --timeout=30s",
            "read 01a2047fc909731585bb77ededae5d91 --lines 1-3",
            "tasks",
            "cancel 01a2047fc909731585bb77ededae5d91",
            "hook codex",
        ];
        for line in lines {
            let words: Vec<OsString> = iter::once("agent-magic-tool").chain(line.split(' ')).map(Into::into).collect();
            let whole = Cli::try_parse_from(&words).expect(line).command;
            assert_eq!(
                format!("{:?}", AgentCommand::parse_alone(&words).map(Command::OfAgents)),
                format!("{whole:?}"),
                "{line}"
            );
        }
        for line in
            ["run", "run NAME --help", "run NAME --no-such-option", "list --limit=x", "help run", "executor status"]
        {
            let words: Vec<OsString> = iter::once("agent-magic-tool").chain(line.split(' ')).map(Into::into).collect();
            assert!(
                AgentCommand::parse_alone(&words).is_none(),
                "{line}: the whole program reports mistakes and prints help"
            );
        }
        let version = Cli::try_parse_from(["agent-magic-tool", "--version"]).expect_err("it is printed").to_string();
        assert_eq!(version, cli::VERSION);
    }

    #[test]
    fn every_command_is_for_agents_or_for_others() {
        for command in Cli::command().get_subcommands() {
            let name = command.get_name();
            assert!(
                AGENT_COMMANDS.contains(&name) != OTHER_COMMANDS.contains(&name),
                "`{name}` is in both lists or in none"
            );
        }
    }
}
