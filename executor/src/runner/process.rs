//! The process runner: one program, started without a shell.
//!
//! The program runs in a process group of its own, with a clean environment and its three streams;
//! the whole group has been killed when [`Runner::perform`] returns. Every descriptor that the executor
//! opens closes by itself when a program starts; those that it was itself started with are for whoever
//! starts it to close. It decides nothing about confinement: what a program may touch is the operating system's and the definition's
//! matter. `argument.rs` fills `argv`, `group.rs` lives and dies with the program, `outcome.rs`
//! reads what it left.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::{
    CancellationToken, Code, Config, DefinitionMistake, Deserialize, Failure, Invocation, JsonSchema, Runner,
    RunnerContext, RunnerOutput, Serialize, Value,
};
use crate::base::template;
use crate::config::secret::{InvalidReference, SecretName, Secrets};
use argument::{Argument, ArgumentOptions};
use group::Ended;
use program_call::ProgramCall;

mod argument;
pub(super) mod group;
mod outcome;
mod program_call;

/// What is kept of each of stdout and stderr where the definition names no other limit.
const MAX_BYTES: u64 = 1 << 20;

/// A program and how it is started.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Process {
    /// The program (a constant: an absolute path, or a name that is looked for in `PATH`), then its arguments.
    #[schemars(length(min = 1), example = ["git", "log", "--", "{{ path }}"])]
    pub argv: Vec<Argument>,
    /// What it reads from standard input: a template; anything but text is written as JSON. Absent: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<Value>,
    /// Its environment, beside `PATH`, `HOME`, `LANG`, `TMPDIR` and `USER`: templates, or `secret:NAME`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The working directory, a template; relative to the caller's folder, which it is when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// What the first argument may be. Absent: anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub allow: Option<Vec<String>>,
    /// Whether a value of the input may begin with `-`, and so be an option to the program. Absent: false.
    #[serde(default)]
    pub allow_options: bool,
    /// What standard output becomes. Absent: `text`.
    #[serde(default)]
    pub output: ProcessOutput,
    /// The most that it may print to stdout, and to stderr, before it is killed. Absent: 1 MiB.
    #[serde(default = "max_bytes")]
    #[schemars(range(min = 1))]
    pub max_bytes: u64,
    /// The exit statuses that mean success. Absent: 0 alone.
    #[serde(default = "ok_statuses")]
    #[schemars(length(min = 1))]
    pub ok_statuses: Vec<u8>,
}

/// What standard output becomes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProcessOutput {
    /// One text, without the line ends at its end.
    #[default]
    Text,
    /// The JSON document that it is.
    Json,
    /// An array with a text for each line.
    Lines,
}

fn max_bytes() -> u64 {
    MAX_BYTES
}

fn ok_statuses() -> Vec<u8> {
    vec![0]
}

impl Runner for Process {
    fn check(&self) -> Result<(), DefinitionMistake> {
        self.check_argv()?;
        if let Some(stdin) = &self.stdin {
            template::check_value(stdin).map_err(|error| DefinitionMistake::new("stdin", &error))?;
        }
        for (name, value) in &self.env {
            check_variable(name, value)?;
        }
        if let Some(folder) = &self.folder {
            template::check(folder).map_err(|error| DefinitionMistake::new("folder", &error))?;
        }
        if self.max_bytes == 0 {
            return Err(DefinitionMistake::new("max_bytes", &"the least is 1"));
        }
        if self.ok_statuses.is_empty() {
            return Err(DefinitionMistake::new("ok_statuses", &"name at least one exit status"));
        }
        Ok(())
    }

    fn plan(&self, invocation: &Invocation, _: &Config) -> Result<Value, Failure> {
        Ok(ProgramCall::of(self, invocation)?.plan())
    }

    async fn perform(
        &self,
        invocation: &Invocation,
        context: &RunnerContext,
        cancel: &CancellationToken,
    ) -> Result<RunnerOutput, Failure> {
        let program_call = ProgramCall::of(self, invocation)?;
        if cancel.is_cancelled() {
            return Err(Failure::new(Code::Cancelled, format!("`{}` was not started", program_call.name())));
        }
        let prepared = program_call.prepare(&context.secrets).await?;
        let program = prepared.program.clone();
        let ended = group::run(prepared.command, prepared.stdin, self.max_bytes, cancel)
            .await
            .map_err(|error| program_call.cannot_start(&error))?;
        outcome::OutputReader { process: self, program: &program, known: &context.secrets, given: &prepared.secrets }
            .outcome(&ended)
    }
}

/// Runs a program that a human configured, with `stdin`, and with nothing of our environment but what
/// every program is given. An error says how it failed.
pub(crate) async fn run_configured(
    argv: &[String],
    stdin: &str,
    secrets: &Secrets,
    cancel: &CancellationToken,
) -> Result<(), String> {
    let program_call = ProgramCall::configured(argv, stdin);
    let mut prepared = program_call.prepare(secrets).await.map_err(|failure| failure.error.message)?;
    prepared.command.stdout(Stdio::null()).stderr(Stdio::null());
    let ended = group::run(prepared.command, prepared.stdin, MAX_BYTES, cancel).await;
    match ended.map_err(|error| program_call.cannot_start(&error).error.message)? {
        Ended { stopped: Some(_), .. } => Err(format!("`{}` was stopped", program_call.name())),
        Ended { status: Some(status), .. } if status.success() => Ok(()),
        Ended { status: Some(status), .. } => Err(format!("`{}` ended with {status}", program_call.name())),
        Ended { status: None, .. } => Err(format!("nobody knows how `{}` ended", program_call.name())),
    }
}

/// What another program executes, as far as can be told: what is only read may change as it likes.
fn is_script(path: &Path) -> bool {
    const LANGUAGES: [&str; 12] = ["bash", "js", "lua", "mjs", "php", "pl", "ps1", "py", "rb", "sh", "ts", "zsh"];
    let Ok(found) = fs::metadata(path) else { return false };
    let is_named = path.extension().is_some_and(|extension| LANGUAGES.iter().any(|language| extension == *language));
    found.is_file() && (is_named || found.permissions().mode() & 0o111 != 0)
}

impl Process {
    /// The program, and the scripts among its constant arguments.
    pub fn files(&self, invocation: &Invocation) -> Vec<PathBuf> {
        let Ok(program_call) = ProgramCall::of(self, invocation) else { return Vec::new() };
        let constants = self.argv.iter().skip(1).filter_map(|argument| match argument {
            Argument::Template(text) if template::is_constant(text) => Some(text),
            Argument::Template(_) | Argument::When(_) => None,
        });
        let scripts = constants.map(|text| program_call.folder().join(text)).filter(|path| is_script(path));
        program_call.program().into_iter().chain(scripts).collect()
    }

    /// The program, as its definition names it.
    pub fn program(&self) -> &str {
        match self.argv.first() {
            Some(Argument::Template(program)) => program,
            Some(Argument::When(_)) | None => "",
        }
    }

    fn options(&self) -> ArgumentOptions {
        if self.allow_options { ArgumentOptions::Allowed } else { ArgumentOptions::Refused }
    }

    fn check_argv(&self) -> Result<(), DefinitionMistake> {
        match self.argv.first() {
            None => return Err(DefinitionMistake::new("argv", &"it is empty; the first element is the program")),
            Some(Argument::Template(program)) if template::is_constant(program) => {
                let relative = program.contains('/') && !program.starts_with('/');
                if program.is_empty() || relative {
                    return Err(DefinitionMistake::new(
                        "argv[0]",
                        &"the program is an absolute path, or a name without `/`",
                    ));
                }
            }
            Some(_) => return Err(DefinitionMistake::new("argv[0]", &"the program is a constant, not a template")),
        }
        for (index, argument) in self.argv.iter().enumerate() {
            argument.check().map_err(|error| DefinitionMistake::new(format!("argv[{index}]"), &error))?;
        }
        let Some(allow) = &self.allow else { return Ok(()) };
        if allow.is_empty() {
            return Err(DefinitionMistake::new("allow", &"it allows nothing; leave it out to allow anything"));
        }
        match self.argv.get(1) {
            None => Err(DefinitionMistake::new("allow", &"there is no first argument to allow")),
            Some(Argument::Template(first)) if template::is_constant(first) && !allow.contains(first) => {
                Err(DefinitionMistake::new("argv[1]", &format!("`allow` does not name `{first}`")))
            }
            Some(_) => Ok(()),
        }
    }
}

fn check_variable(name: &str, value: &str) -> Result<(), DefinitionMistake> {
    if name.is_empty() || name.contains(['=', '\0']) {
        // What stands behind the `=` may be a secret.
        return Err(DefinitionMistake::new("env", &"the name of an environment variable is not empty and has no `=`"));
    }
    let place = format!("env.{name}");
    if SecretName::is_malformed_reference(value) {
        return Err(DefinitionMistake::new(place, &InvalidReference));
    }
    template::check(value).map_err(|error| DefinitionMistake::new(place, &error))
}
