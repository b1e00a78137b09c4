//! Parses the command line and runs the command that it names.

use std::borrow::Cow;
use std::ffi::OsString;
use std::iter;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser, Subcommand};
use protocol::code::{Code, Exit};
use protocol::command_names::{AGENT_COMMANDS, INSTALLATION_COMMANDS};
use protocol::paths::{NoHomeFolder, Paths};
use protocol::tool_scope::ToolScope;

use crate::commands::{
    agent, approver, cancel, command_executor, completions, demo, doctor, executor as daemon, hook, import, inspect,
    jq, jq_worker, lint, list, logs, man, mcp, new, pack, read, resolve, run, secret, serve, setup, tasks, test,
    verify, wait,
};
use crate::context::Context;
use crate::error::Error;
use crate::grouped_help;
use crate::output::Output;
use crate::usage::usage_error;

/// The first thing that a language model, or a person, reads.
const HOW_TO: &str = "\
How to use it:
  1. Find a tool:    agent-magic-tool list tools --query=\"search mail\"
     two or three words, in English; prints {\"NAME\": {\"description\", \"input\": {JSON Schema}}}, best first
  2. Run it:         agent-magic-tool run NAME key=value list:='[\"JSON\"]'
     returns at once: {\"id\", \"status\": \"pending\", \"result_file\"}; the work goes on without you
  3. Get the result: agent-magic-tool wait ID
     prints it as soon as it is there; never poll, never run it again
Steps 2 and 3 at once, for what is quick: agent-magic-tool run NAME key=value --wait
A value with quotes or line breaks in it: agent-magic-tool run NAME --input=- <<'EOF'
                                          {\"text\": \"it's any JSON\"}
                                          EOF";

/// What the call without arguments adds: the commands that agents may use.
const FOR_AGENTS: &str = "\
Commands:
  list tools [NAME] [--query WORDS]     find tools; with NAME, the schema of that one
  run NAME [key=value ...]              delegate a task; --wait prints its result, --dry-run sends nothing
  wait ID ...                           wait for results, print them
  read ID [--jq EXPR] [--lines A-B]     a result, or a part of a large one
  tasks, cancel ID                      what is under way; stop one
Options of a command: agent-magic-tool help COMMAND. Every command, also those for people: agent-magic-tool --help
";

const EXIT_STATUS: &str = "\
Exit status: 0 done or accepted, 1 the subtool failed, 2 wrong usage or input, 3 not found,
4 waiting for the user, 5 refused, 6 still pending, 7 no executor, 70 internal error.
Standard output is one JSON document; notes and errors ({\"error\": {\"code\", \"message\", \"hint\"}}) are on standard error.
A document above 50,000 bytes is cut and says so; --whole prints all of it, for pipes and files.";

/// What `--version` prints.
const VERSION: &str = concat!("agent-magic-tool ", env!("CARGO_PKG_VERSION"), "\n");

/// One shell command that gives an AI agent any number of tools.
#[derive(Debug, Parser)]
#[command(name = "agent-magic-tool", version, before_help = HOW_TO, after_help = EXIT_STATUS, max_term_width = 100)]
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
    /// Serve your own agent's one tool: JSON lines in, JSON lines out
    #[command(name = "command-executor")]
    OneTool(command_executor::Args),
    /// Serve the one tool over the Model Context Protocol, to clients without a shell
    Mcp(mcp::Args),
    /// Serve the agent's sessions to many clients: HTTP, OpenAI's and Ollama's protocols, Slack, other agents
    Serve(serve::Args),
    /// Connect a third-party agent: install its instructions and the hook that wakes it
    Setup(setup::Args),
    /// Called by a third-party agent; wakes it when results are ready
    Hook(hook::Args),
    /// Used by `command-executor`: evaluates a jq expression over standard input
    #[command(hide = true)]
    Jq(jq::Args),
    /// Used by the executor and by `read`: evaluates jq expressions
    #[command(hide = true)]
    JqWorker,
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
    let exit = match parse(&arguments, &output, Paths::from_env) {
        Ok(command) => match context_of_process(&arguments, output) {
            Ok(Some(context)) => execute(command, &arguments, &context),
            Ok(None) => Exit::Ok,
            Err(error) => report(&error, &arguments, &Output::new()),
        },
        Err(exit) => exit,
    };
    ExitCode::from(exit as u8)
}

/// `None` for a hook without a home folder, which has nothing to do.
fn context_of_process(arguments: &[OsString], output: Output) -> Result<Option<Context>, Error> {
    let paths = match Paths::from_env() {
        Ok(paths) => paths,
        Err(_) if is_hook(arguments) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let scope = match paths.tool_scope() {
        Ok(scope) => scope,
        // A hook uses no subtool.
        Err(_) if is_hook(arguments) => ToolScope::default(),
        Err(error) => return Err(error.into()),
    };
    Ok(Some(Context::of_process(paths, scope, output, call)))
}

/// Runs the command line of an agent, given without the program's name.
///
/// Refuses commands and arguments that are for humans.
pub(crate) fn call(arguments: &[String], context: &Context) -> Exit {
    let first = arguments.first().map(String::as_str);
    let is_for_agents = first.is_some_and(|name| AGENT_COMMANDS.contains(&name));
    let arguments: Vec<OsString> =
        iter::once("agent-magic-tool").chain(arguments.iter().map(String::as_str)).map(Into::into).collect();
    let shows_installation = first.is_some_and(|name| INSTALLATION_COMMANDS.contains(&name));
    // `inspect` keeps to the tool scope by itself.
    let is_scoped = !context.caller.tool_scope.is_everything() && first != Some("inspect");
    let has_only_a_part = context.caller.client().is_some() || is_scoped;
    if let Some(name) = first.filter(|_| shows_installation && has_only_a_part) {
        let message = format!("`{name}` shows the whole installation, and you may use a part of it");
        let error = Error::new(Code::HumansOnly, message)
            .hint("the fields of a subtool: agent-magic-tool list tools NAME; leave the rest to those who run it");
        return report(&error, &arguments, &context.output);
    }
    match parse(&arguments, &context.output, || Ok(context.paths.clone())) {
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
    paths: impl FnOnce() -> Result<Paths, NoHomeFolder>,
) -> Result<Command, Exit> {
    if let [_, option] = arguments
        && (option == "--version" || option == "-V")
    {
        return Err(printed(output.text(VERSION), arguments, output));
    }
    if let Some(command) = parse_alone(arguments) {
        return Ok(command);
    }
    let arguments = &*without_help_command(arguments);
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
        Ok(Cli { command: None, .. }) => {
            let about = Cli::command().get_about().map(ToString::to_string).unwrap_or_default();
            let text = format!("{about}.\n\n{HOW_TO}\n\n{FOR_AGENTS}\n{EXIT_STATUS}\n");
            Err(printed(output.text(&text), arguments, output))
        }
        Err(error) => Err(match error.kind() {
            ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                printed(output.text(&error.to_string()), arguments, output)
            }
            // The client would take any output, or a failing exit status, for a wake-up.
            _ if is_hook(arguments) => Exit::Ok,
            _ => report(&usage_error(&error, arguments, paths), arguments, output),
        }),
    }
}

/// Parses a right command line of the commands that agents call most, with the parser of that command only: to make the
/// parsers of all commands takes longer than the rest of a `run`. `None` for everything else, such as mistakes.
fn parse_alone(arguments: &[OsString]) -> Option<Command> {
    fn parsed<A: clap::Args>(arguments: &[OsString]) -> Option<A> {
        let parser = A::augment_args(clap::Command::new("agent-magic-tool").no_binary_name(true));
        A::from_arg_matches_mut(&mut parser.try_get_matches_from(arguments).ok()?).ok()
    }
    let [_, name, arguments @ ..] = arguments else { return None };
    match name.to_str()? {
        "list" => parsed(arguments).map(Command::List),
        "run" => parsed(arguments).map(Command::Run),
        "wait" => parsed(arguments).map(Command::Wait),
        "read" => parsed(arguments).map(Command::Read),
        "tasks" => parsed(arguments).map(Command::Tasks),
        "cancel" => parsed(arguments).map(Command::Cancel),
        "hook" => parsed(arguments).map(Command::Hook),
        _ => None,
    }
}

/// Turns `help COMMAND` into `COMMAND --help`.
fn without_help_command(arguments: &[OsString]) -> Cow<'_, [OsString]> {
    match arguments {
        [program, help, command @ ..] if help == "help" => {
            let words = iter::once(program).chain(command.iter().filter(|word| *word != "--help")).cloned();
            Cow::Owned(words.chain(["--help".into()]).collect())
        }
        _ => Cow::Borrowed(arguments),
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

fn execute(command: Command, arguments: &[OsString], context: &Context) -> Exit {
    let result = match command {
        Command::List(args) => list::run(&args, context),
        Command::Run(args) => run::run(args, context),
        Command::Wait(args) => wait::run(&args, context),
        Command::Read(args) => read::run(&args, context),
        Command::Tasks(args) => tasks::run(&args, context),
        Command::Cancel(args) => cancel::run(&args, context),
        Command::Resolve(args) => resolve::run(args, context),
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
        Command::Hook(args) => Ok(hook::run(&args, context)),
        Command::Agent(args) => agent::run(&args, context),
        Command::OneTool(args) => command_executor::run(&args, context),
        Command::Mcp(args) => mcp::run(&args, context),
        Command::Serve(args) => serve::run(&args, context),
        Command::Jq(args) => jq::run(&args, context),
        Command::JqWorker => jq_worker::run(),
        Command::Demo(args) => demo::run(&args, context),
        Command::Completions(args) => completions::run(&args, Cli::command(), context),
        Command::Man(args) => man::run(&args, Cli::command(), context),
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

/// Whether a client calls its hook, which must succeed even for wrong arguments.
fn is_hook(arguments: &[OsString]) -> bool {
    arguments.get(1).is_some_and(|command| command == "hook")
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
            assert_eq!(format!("{:?}", parse_alone(&words)), format!("{whole:?}"), "{line}");
        }
        for line in
            ["run", "run NAME --help", "run NAME --no-such-option", "list --limit=x", "help run", "executor status"]
        {
            let words: Vec<OsString> = iter::once("agent-magic-tool").chain(line.split(' ')).map(Into::into).collect();
            assert!(parse_alone(&words).is_none(), "{line}: the whole program reports mistakes and prints help");
        }
        let version = Cli::try_parse_from(["agent-magic-tool", "--version"]).expect_err("it is printed").to_string();
        assert_eq!(version, VERSION);
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
