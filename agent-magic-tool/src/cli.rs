//! The words of the command line, and the way from them to a command.

use std::ffi::OsString;
use std::iter;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory as _, Parser, Subcommand};
use protocol::code::{Code, Exit};
use protocol::nearest::did_you_mean;
use protocol::paths::Paths;

use crate::commands::{
    agent, cancel, command_executor, completions, demo, doctor, executor as daemon, hook, inspect, jq, lint, list, man,
    read, resolve, run, secret, setup, tasks, wait,
};
use crate::context::Context;
use crate::error::Error;
use crate::output::Output;

/// What a language model reads first, and a person too.
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
4 waiting for a human's yes, 5 refused, 6 still pending, 7 no executor, 70 our bug.
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
    /// Find subtools: their names, descriptions and input schemas, best first
    List(list::Args),
    /// Delegate a task to a subtool; returns at once with the path of its result file
    Run(run::Args),
    /// Block until tasks have ended, and print their results
    Wait(wait::Args),
    /// Print a result, or a part of a large one: by jq, page, lines or bytes
    Read(read::Args),
    /// What is under way and what has ended, newest first
    Tasks(tasks::Args),
    /// Stop a task
    Cancel(cancel::Args),
    /// Say what had happened to a task that ended as `unknown`; what was said first stands
    Resolve(resolve::Args),
    /// Everything about one subtool: how it is performed, effects, dependencies, privileges
    Inspect(inspect::Args),
    /// Check discovery JSON: what was left out, and what is hard to find or easy to misuse
    Lint(lint::Args),
    /// Check this installation, say where everything lies and how much; mend what is safe with --repair
    Doctor(doctor::Args),
    /// The secrets that subtools use; values are read from standard input, never from arguments
    #[command(subcommand)]
    Secret(secret::SecretCommand),
    /// The process that performs tasks; it starts and stops by itself
    #[command(subcommand)]
    Executor(daemon::ExecutorCommand),
    /// Ask a language model that uses the subtools; without a question, talk with it
    Agent(agent::Args),
    /// The one tool of an agent of your own: JSON lines in, JSON lines out
    #[command(name = "command-executor")]
    OneTool(command_executor::Args),
    /// Connect an agent of another maker: its instruction, and the hook that wakes it
    Setup(setup::Args),
    /// Called by such an agent: wakes it when results are ready
    Hook(hook::Args),
    /// For the one tool itself: evaluates an expression over standard input
    #[command(hide = true)]
    Jq(jq::Args),
    /// Show the whole story on this machine, without any account
    Demo(demo::Args),
    /// Print a shell's completion script
    Completions(completions::Args),
    /// Print the manual page
    Man(man::Args),
}

pub(crate) fn main() -> ExitCode {
    let output = Output::new();
    let words: Vec<_> = std::env::args_os().collect();
    let exit = match parse(&words, &output) {
        Ok(command) => match Paths::from_env() {
            Ok(paths) => act(command, &Context::of_process(paths, output, call)),
            Err(_) if is_hook(&words) => Exit::Ok,
            Err(error) => failed(&error.into(), &output),
        },
        Err(exit) => exit,
    };
    ExitCode::from(exit as u8)
}

/// Does for an agent what `words` say, which are without the program's name.
pub(crate) fn call(words: &[String], context: &Context) -> Exit {
    let words: Vec<_> =
        iter::once("agent-magic-tool").chain(words.iter().map(String::as_str)).map(Into::into).collect();
    match parse(&words, &context.output) {
        Ok(command) if command.is_for_agents() => act(command, context),
        Ok(_) => {
            let error = Error::new(Code::HumansOnly, "this command is not for agents")
                .hint("tell the user to run it in a terminal, if it is needed");
            failed(&error, &context.output)
        }
        Err(exit) => exit,
    }
}

/// The command that `words` name; without one they are answered, with help or with what is wrong.
fn parse(words: &[OsString], output: &Output) -> Result<Command, Exit> {
    match Cli::try_parse_from(words) {
        Ok(Cli { command: Some(command) }) => Ok(command),
        Ok(Cli { command: None }) => Err(told(output.text(&Cli::command().render_help().to_string()), output)),
        Err(error) => Err(match error.kind() {
            ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => told(output.text(&error.to_string()), output),
            // Whoever called would take a word, and this exit status, for a wake.
            _ if is_hook(words) => Exit::Ok,
            _ => failed(&usage(&error, words), output),
        }),
    }
}

impl Command {
    /// Whether an agent may call it: nothing that is for humans, that changes the installation, or
    /// that would call itself.
    fn is_for_agents(&self) -> bool {
        match self {
            Self::List(_)
            | Self::Run(_)
            | Self::Wait(_)
            | Self::Read(_)
            | Self::Cancel(_)
            | Self::Resolve(_)
            | Self::Inspect(_) => true,
            Self::Tasks(args) => !args.forgets(),
            Self::Lint(args) => !args.names_files(),
            Self::Doctor(args) => !args.changes_something(),
            Self::Secret(_)
            | Self::Executor(_)
            | Self::Setup(_)
            | Self::Hook(_)
            | Self::Agent(_)
            | Self::OneTool(_)
            | Self::Jq(_)
            | Self::Demo(_)
            | Self::Completions(_)
            | Self::Man(_) => false,
        }
    }
}

fn act(command: Command, context: &Context) -> Exit {
    let done = match command {
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
    done.unwrap_or_else(|error| failed(&error, &context.output))
}

fn told(printed: Result<(), Error>, output: &Output) -> Exit {
    match printed {
        Ok(()) => Exit::Ok,
        Err(error) => failed(&error, output),
    }
}

fn failed(error: &Error, output: &Output) -> Exit {
    output.error(error);
    error.exit()
}

/// clap's words in our form.
fn usage(error: &clap::Error, words: &[OsString]) -> Error {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(texts)) => texts.first().cloned(),
        _ => None,
    };
    let text = error.to_string();
    let message = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
    // What is missing stands on the lines that follow.
    let missing = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::Strings(names)) if error.kind() == ErrorKind::MissingRequiredArgument => {
            format!(" {}", names.join(" "))
        }
        _ => String::new(),
    };
    let suggested = context(ContextKind::SuggestedSubcommand).or_else(|| context(ContextKind::SuggestedArg));
    let broken_quotes = error.kind() == ErrorKind::UnknownArgument && has_broken_json(words);
    let hint = if broken_quotes {
        run::PIPE_IT.to_owned()
    } else {
        did_you_mean(suggested).unwrap_or_else(|| {
            let usage = text.lines().find_map(|line| line.trim().strip_prefix("Usage: ")).map(str::to_owned);
            usage.unwrap_or_else(|| "see: agent-magic-tool --help".to_owned())
        })
    };
    Error::usage(format!("{message}{missing}")).hint(hint)
}

/// Whether a client calls its hook: it must go on whatever is wrong.
fn is_hook(words: &[OsString]) -> bool {
    words.get(1).is_some_and(|command| command == "hook")
}

/// Whether the arguments look like JSON that a shell cut into pieces.
fn has_broken_json(words: &[OsString]) -> bool {
    words.iter().filter_map(|word| word.to_str()).any(|word| word.contains('{') && !word.ends_with('}'))
}
