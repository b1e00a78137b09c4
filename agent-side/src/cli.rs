//! The command lines that an agent calls, parsed and run alike in both programs.

use std::borrow::Cow;
use std::ffi::OsString;
use std::iter;

use clap::Subcommand;
use protocol::code::{Code, Exit};
use protocol::command_names::INSTALLATION_COMMANDS;
use protocol::mailbox::Mailbox;
use protocol::mailbox::for_callers::CallerSettings;
use protocol::paths::Paths;
use protocol::tool_scope::ToolScope;

use crate::commands::{cancel, command_executor, hook, jq, jq_worker, list, read, resolve, run, script, tasks, wait};
use crate::context::{Context, Dispatch};
use crate::error::Error;
use crate::output::Output;

/// The first thing that a language model, or a person, reads.
pub const HOW_TO: &str = "\
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
  script <<'EOF'                        four calls or more, pages, sums: one program, one result; first: help script
Options of a command: agent-magic-tool help COMMAND. Every command, also those for people: agent-magic-tool --help
";

pub const EXIT_STATUS: &str = "\
Exit status: 0 done or accepted, 1 the subtool failed, 2 wrong usage or input, 3 not found,
4 waiting for the user, 5 refused, 6 still pending, 7 no executor, 70 internal error.
Standard output is one JSON document; notes and errors ({\"error\": {\"code\", \"message\", \"hint\"}}) are on standard error.
A document above 50,000 bytes is cut and says so; --whole prints all of it, for pipes and files.";

/// What the program is, in a line.
pub const ABOUT: &str = "One shell command that gives an AI agent any number of tools";

/// What `--version` prints.
pub const VERSION: &str = concat!("agent-magic-tool ", env!("CARGO_PKG_VERSION"), "\n");

/// What the two programs do each in their own way.
pub trait Program {
    fn list(&self, args: &list::Args, context: &Context) -> Result<Exit, Error>;

    /// The settings that callers go by.
    fn settings(&self, paths: &Paths, mailbox: &Mailbox) -> Result<CallerSettings, Error>;
}

/// The commands that agents call, and those that their clients and we ourselves call for them.
#[derive(Debug, Subcommand)]
pub enum AgentCommand {
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
    /// Run a program that calls subtools: one result for any number of calls
    Script(script::Args),
    /// Record whether an `unknown` task took effect; the first answer is final
    Resolve(resolve::Args),
    /// Serve your own agent's one tool: JSON lines in, JSON lines out
    #[command(name = "command-executor")]
    OneTool(command_executor::Args),
    /// Called by a third-party agent; wakes it when results are ready
    Hook(hook::Args),
    /// Used by `command-executor`: evaluates a jq expression over standard input
    #[command(hide = true)]
    Jq(jq::Args),
    /// Used by the executor and by `read`: evaluates jq expressions
    #[command(hide = true)]
    JqWorker,
}

impl AgentCommand {
    /// Parses a right command line of the commands that agents call most, with the parser of that command only: to make
    /// the parsers of all commands takes longer than the rest of a `run`. `None` for everything else, such as mistakes.
    pub fn parse_alone(arguments: &[OsString]) -> Option<Self> {
        fn parsed<A: clap::Args>(arguments: &[OsString]) -> Option<A> {
            let parser = A::augment_args(clap::Command::new("agent-magic-tool").no_binary_name(true));
            A::from_arg_matches_mut(&mut parser.try_get_matches_from(arguments).ok()?).ok()
        }
        let [_, name, arguments @ ..] = arguments else { return None };
        match name.to_str()? {
            "list" => parsed(arguments).map(Self::List),
            "run" => parsed(arguments).map(Self::Run),
            "wait" => parsed(arguments).map(Self::Wait),
            "read" => parsed(arguments).map(Self::Read),
            "tasks" => parsed(arguments).map(Self::Tasks),
            "cancel" => parsed(arguments).map(Self::Cancel),
            "script" => parsed(arguments).map(Self::Script),
            "hook" => parsed(arguments).map(Self::Hook),
            _ => None,
        }
    }

    /// Whether it has arguments that only humans may pass.
    pub fn has_human_only_arguments(&self) -> bool {
        matches!(self, Self::Tasks(args) if args.forgets())
    }

    /// Runs the command as `program` does.
    pub fn execute(self, context: &Context, program: &impl Program) -> Result<Exit, Error> {
        match self {
            Self::List(args) => program.list(&args, context),
            Self::Run(args) => run::run(args, context),
            Self::Wait(args) => wait::run(&args, context),
            Self::Read(args) => read::run(&args, context),
            Self::Tasks(args) => tasks::run(&args, context),
            Self::Cancel(args) => cancel::run(&args, context),
            Self::Script(args) => script::run(args, context),
            Self::Resolve(args) => resolve::run(args, context),
            Self::OneTool(args) => {
                command_executor::run(&args, context, |mailbox| program.settings(&context.paths, mailbox))
            }
            Self::Hook(args) => Ok(hook::run(&args, context, |paths, mailbox| program.settings(paths, mailbox))),
            Self::Jq(args) => jq::run(&args, context),
            Self::JqWorker => jq_worker::run(),
        }
    }
}

/// Why a caller who may use a part of the installation may not run this command, which shows all of it.
pub fn refuse_installation(command: Option<&str>, context: &Context) -> Option<Error> {
    // `inspect` keeps to the names of a tool scope by itself; a profile knows no names that it does not have.
    let scope = &context.caller.tool_scope;
    let is_scoped = !scope.is_everything() && (command != Some("inspect") || scope.profiles().next().is_some());
    let has_only_a_part = context.caller.client().is_some() || is_scoped;
    let command = command.filter(|name| has_only_a_part && INSTALLATION_COMMANDS.contains(name))?;
    let message = format!("`{command}` is about the whole installation, and you may use a part of it");
    Some(
        Error::new(Code::HumansOnly, message)
            .hint("the fields of a subtool: agent-magic-tool list tools NAME; leave the rest to those who run it"),
    )
}

/// Whether the arguments only ask for the version.
pub fn asks_for_version(arguments: &[OsString]) -> bool {
    matches!(arguments, [_, option] if option == "--version" || option == "-V")
}

/// What the call without arguments prints.
pub fn introduction() -> String {
    format!("{ABOUT}.\n\n{HOW_TO}\n\n{FOR_AGENTS}\n{EXIT_STATUS}\n")
}

/// Turns `help COMMAND` into `COMMAND --help`.
pub fn without_help_command(arguments: &[OsString]) -> Cow<'_, [OsString]> {
    match arguments {
        [program, help, command @ ..] if help == "help" => {
            let words = iter::once(program).chain(command.iter().filter(|word| *word != "--help")).cloned();
            Cow::Owned(words.chain(["--help".into()]).collect())
        }
        _ => Cow::Borrowed(arguments),
    }
}

/// Whether a client calls its hook, which must succeed even for wrong arguments.
pub fn is_hook(arguments: &[OsString]) -> bool {
    arguments.get(1).is_some_and(|command| command == "hook")
}

/// The context of a command that runs as a process of its own; `None` for a hook without a home folder, which has nothing
/// to do.
pub fn context_of_process(
    arguments: &[OsString],
    output: Output,
    dispatch: Dispatch,
) -> Result<Option<Context>, Error> {
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
    Ok(Some(Context::of_process(paths, scope, output, dispatch)))
}
