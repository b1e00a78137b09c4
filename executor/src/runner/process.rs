//! The `process` runner: one program, started without a shell.
//!
//! The program runs in its own process group, with a clean environment and only the three standard streams. The
//! whole group is dead when [`Runner::perform`] returns. Descriptors that the executor opens are close-on-exec;
//! descriptors that the executor inherited are the responsibility of its parent. The runner does not confine the
//! program: the operating system and the definition decide what it may access. `argument.rs` fills `argv`,
//! `program_call.rs` prepares the start, `startup.rs` finds the files that it executes, `named_files.rs` those
//! that its arguments name, `held.rs` executes those that a human was shown, `group.rs` runs the process group, `outcome.rs` interprets the exit.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use encoding_rs::Encoding;
use ground::base::own_folders::OwnFolders;
use ground::base::template;
use ground::config::programs::{self, ProgramSettings};
use ground::task::fingerprint::{FileRole, Fingerprint, check_shown};
use nix::unistd::{AccessFlags, access};
use tempfile::TempDir;

use super::spool::Spool;
use super::{
    CancellationToken, Code, Config, DefinitionMistake, DefinitionMistakes, Deserialize, Failure, Invocation,
    JsonSchema, Runner, RunnerContext, RunnerOutput, Serialize, TextKind, Value, checked_places,
};
use crate::runner::input_file::{self, OpenedInput};
use argument::{Argument, ArgumentOptions, OutputFile};
use group::ProgramExit;
use named_files::{arguments_in, code_folders, scripts_named};
use program_call::{ApprovedFiles, ProgramCall};

mod argument;
pub(super) mod group;
pub(super) mod held;
pub(super) mod loading;
pub(in crate::runner) mod named_files;
mod outcome;
pub(super) mod program_call;
pub(super) mod python_module;
mod shell_text;
mod startup;

/// The default for `max_bytes`.
const MAX_BYTES: u64 = 1 << 20;

/// A program and how it is started.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Process {
    /// The program (a constant: an absolute path, or a name to look up in `PATH`), then its arguments.
    #[schemars(length(min = 1), example = ["git", "log", "--", "{{ path }}"])]
    pub argv: Vec<Argument>,
    /// Its standard input: a template; a value that is not text is written as JSON. Absent: no input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<Value>,
    /// Environment variables in addition to `PATH`, `HOME`, `LANG`, `TMPDIR` and `USER`: templates, or
    /// `secret:NAME`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Other files and folders that an approval is bound to, such as what a script includes: absolute, or relative to
    /// the folder in which the program runs. They are compared directly before it starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub covers: Vec<String>,
    /// The working directory: a template, relative to the caller's folder. Absent: the caller's folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// The allowed values of the first argument. Absent: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub allow: Option<Vec<String>>,
    /// Whether a value of the input may begin with `-` and so become an option of the program. Absent: false.
    #[serde(default)]
    pub allow_options: bool,
    /// How to read standard output. Absent: `text`.
    #[serde(default)]
    pub output: ProcessOutput,
    /// The content type of a file that it prints or writes. Absent: the type of its name's extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = "image/png")]
    pub content_type: Option<String>,
    /// The encoding of the text it prints. Absent: UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = "windows-1252")]
    pub encoding: Option<String>,
    /// The most bytes it may print to each of stdout and stderr before it is killed. Absent: 1 MiB.
    #[serde(default = "max_bytes")]
    #[schemars(range(min = 1))]
    pub max_bytes: u64,
    /// The exit statuses that mean success. Absent: only 0.
    #[serde(default = "ok_statuses")]
    #[schemars(length(min = 1))]
    pub ok_statuses: Vec<u8>,
}

/// How to read standard output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProcessOutput {
    /// As one text, without trailing line breaks.
    #[default]
    Text,
    /// As a JSON document.
    Json,
    /// As an array of lines.
    Lines,
    /// Byte by byte as a file, as for an image or an archive.
    File,
}

fn max_bytes() -> u64 {
    MAX_BYTES
}

fn ok_statuses() -> Vec<u8> {
    vec![0]
}

impl Runner for Process {
    fn check(&self) -> Vec<DefinitionMistake> {
        let mut found = DefinitionMistakes::default();
        found.note(self.check_argv());
        found.note(shell_text::check(&self.argv));
        self.env.keys().for_each(|name| found.note(check_variable(name)));
        found.note(self.check_output_file());
        if self.encoding.as_ref().is_some_and(|label| Encoding::for_label(label.as_bytes()).is_none()) {
            found.note(Err(DefinitionMistake::new("encoding", &"no encoding of that name; one is `windows-1252`")));
        }
        if self.covers.iter().any(|file| file.is_empty() || file.contains('\0')) {
            found.note(Err(DefinitionMistake::new("covers", &"name files; one of the names is empty")));
        }
        if self.max_bytes == 0 {
            found.note(Err(DefinitionMistake::new("max_bytes", &"it must be at least 1")));
        }
        if self.ok_statuses.is_empty() {
            found.note(Err(DefinitionMistake::new("ok_statuses", &"name at least one exit status")));
        }
        found.into_vec()
    }

    fn text_kind(&self, place: &str) -> TextKind {
        match place.split(['.', '[']).next().unwrap_or_default() {
            "allow" | "covers" | "output" | "content_type" | "encoding" => TextKind::Constant,
            "argv" if place.ends_with("].output_file") || place.ends_with("].prefix") => TextKind::Constant,
            "env" => TextKind::TemplateOrSecret,
            "argv" if place.ends_with("].if") => TextKind::Condition,
            // That the program is a constant is checked with its own message.
            _ => TextKind::Template,
        }
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
            let message = format!("cancelled before `{}` was started", program_call.name());
            return Err(Failure::new(Code::Cancelled, message));
        }
        if self.folder.is_some() {
            check_open(program_call.folder(), &context.own_folders)?;
        }
        let output_folder = match program_call.output_file() {
            Some(_) => Some(output_folder(&context.spool)?),
            None => None,
        };
        let output_path = output_folder.as_ref().map_or(Path::new(""), TempDir::path);
        let prepared = {
            let agent = invocation.caller.uid;
            let mut approved = invocation.approved.clone();
            if let Some(approved) = &mut approved {
                // What an earlier attempt left behind is its own doing.
                approved.retain(|file| !file.role.is_of_argument() || invocation.attempt <= 1);
                self.check_same_files(invocation, approved, &context.config)?;
            }
            let inputs = inputs_of(&program_call, invocation, context).await?;
            let approved = approved.map(|files| ApprovedFiles { files, agent });
            program_call.prepare(&context.secrets, &context.config.programs, output_path, inputs, approved).await?
        };
        let program = prepared.program.clone();
        let exit = group::run(prepared.command, prepared.held, prepared.stdin, self.max_bytes, cancel)
            .await
            .map_err(|error| program_call.cannot_start(&error))?;
        let reader = outcome::OutputReader {
            process: self,
            program: &program,
            all_secrets: &context.secrets,
            passed_secrets: &prepared.secrets,
            written: program_call.output_file().map(|name| output_path.join(name)),
            spool: Spool::of(context, invocation, context.config.executor.output_bytes),
        };
        reader.outcome(exit).await
    }
}

/// Opens the files that the program reads.
async fn inputs_of(
    program_call: &ProgramCall,
    invocation: &Invocation,
    context: &RunnerContext,
) -> Result<Vec<OpenedInput>, Failure> {
    let mut inputs = Vec::new();
    for path in program_call.input_files() {
        inputs.push(input_file::sealed(path, invocation, context).await?);
    }
    Ok(inputs)
}

/// Returns a new folder for the file that a program writes.
fn output_folder(spool: &Path) -> Result<TempDir, Failure> {
    let created =
        fs::create_dir_all(spool).and_then(|()| tempfile::Builder::new().prefix("program-").tempdir_in(spool));
    created.map_err(|error| Failure::new(Code::Io, format!("failed to create a folder for the output: {error}")))
}

/// Fails if the folder that a definition names for its program is one of our own.
fn check_open(folder: &Path, own: &OwnFolders) -> Result<(), Failure> {
    let real = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    if !own.closed().contain(&real) {
        return Ok(());
    }
    let message =
        format!("the folder `{}` belongs to agent-magic-tool itself and is closed to subtools", folder.display());
    Err(Failure::new(Code::OutsideRoots, message).hint("use another folder"))
}

/// Runs a program of the configuration with `stdin`, in the same clean environment as any other program.
///
/// Returns an error message unless the program exits with status 0.
pub(crate) async fn run_configured(
    argv: &[String],
    stdin: &str,
    context: &RunnerContext,
    cancel: &CancellationToken,
) -> Result<(), String> {
    let program_call = ProgramCall::configured(argv, stdin);
    let prepared =
        program_call.prepare(&context.secrets, &context.config.programs, Path::new(""), Vec::new(), None).await;
    let mut prepared = prepared.map_err(|failure| failure.error.message)?;
    prepared.command.stdout(Stdio::null()).stderr(Stdio::null());
    let exit = group::run(prepared.command, prepared.held, prepared.stdin, MAX_BYTES, cancel).await;
    let name = program_call.name();
    match exit.map_err(|error| program_call.cannot_start(&error).error.message)? {
        ProgramExit { stopped: Some(_), .. } => Err(format!("`{name}` was stopped")),
        ProgramExit { status: Some(status), .. } if status.success() => Ok(()),
        ProgramExit { status: Some(status), .. } => Err(format!("`{name}` ended with {status}")),
        ProgramExit { status: None, .. } => Err(format!("the exit status of `{name}` is unknown")),
    }
}

impl Process {
    /// Returns the files that the program executes, with the scripts among its constant arguments, those that the
    /// definition covers, and those that the input names.
    pub(super) fn files(&self, invocation: &Invocation, context: &RunnerContext) -> Result<Vec<Fingerprint>, Failure> {
        let agent = invocation.caller.uid;
        let opened = self.files_by_name(invocation, &context.config)?.into_iter();
        let mut files: Vec<_> = opened.map(|(path, role)| Fingerprint::of(&path, role, agent)).collect();
        for path in ProgramCall::of(self, invocation)?.input_files() {
            files.push(input_file::fingerprint(path, invocation, context)?);
        }
        Ok(files)
    }

    /// Those of the files that are found by their names alone, as they are known before the start.
    fn files_by_name(&self, invocation: &Invocation, config: &Config) -> Result<Vec<(PathBuf, FileRole)>, Failure> {
        let program_call = ProgramCall::of(self, invocation)?;
        let folder = program_call.folder();
        let mut files = program_call.startup(&config.programs)?.files();
        let is_place = |role| role == FileRole::Place;
        let mut known: HashSet<_> = files.iter().map(|(path, role)| (path.clone(), is_place(*role))).collect();
        let mut add = |path: PathBuf, role| {
            if known.insert((path.clone(), is_place(role))) {
                files.push((path, role));
            }
        };
        let constants: Vec<_> = self.argv.iter().skip(1).map(Argument::constant).collect();
        let is_constant = |name: &str| self.env.get(name).is_none_or(|template| template::is_constant(template));
        let (fixed, filled): (Vec<_>, Vec<_>) = program_call.variables().partition(|(name, _)| is_constant(name));
        for path in scripts_named(Path::new(self.program()), &constants, fixed, folder) {
            add(path, FileRole::Covered);
        }
        let covered = self.covers.iter().map(|path| folder.join(path));
        covered.for_each(|path| add(path.clone(), FileRole::of_covered(&path)));
        if let Ok(real) = folder.canonicalize() {
            add(real, FileRole::WorkingFolder);
        }
        for text in argument::filled_by_input(self.argv.get(1..).unwrap_or_default(), &invocation.values())? {
            arguments_in(&text, folder).for_each(|(path, role)| add(path, role));
        }
        for (_, value) in filled {
            arguments_in(value, folder).for_each(|(path, role)| add(path, role));
        }
        // Whatever way they go to the program.
        let given = serde_json::json!([invocation.input, program_call.stdin()]);
        for path in checked_places(&given, folder)? {
            add(path, FileRole::Place);
        }
        Ok(files)
    }

    /// The folders from which its program takes code, as its constants say.
    pub(super) fn code_folders(&self, invocation: &Invocation) -> Result<BTreeSet<PathBuf>, Failure> {
        let program_call = ProgramCall::of(self, invocation)?;
        let constants: Vec<_> = self.argv.iter().skip(1).map(Argument::constant).collect();
        let variables = self.env.iter().filter(|(_, value)| template::is_constant(value));
        let variables = variables.map(|(name, value)| (name.as_str(), value.as_str()));
        Ok(code_folders(self.program(), &constants, variables, program_call.folder()))
    }

    /// Fails if the program cannot be found, read or started in its folder.
    pub(super) fn check_before(&self, invocation: &Invocation, context: &RunnerContext) -> Result<(), Failure> {
        let program_call = ProgramCall::of(self, invocation)?;
        program_call.check_folder()?;
        if self.folder.is_some() {
            check_open(program_call.folder(), &context.own_folders)?;
        }
        for path in program_call.input_files() {
            input_file::fingerprint(path, invocation, context)?;
        }
        for (path, role) in self.files_by_name(invocation, &context.config)? {
            if role.is_of_argument() {
                continue;
            }
            let is_executed = matches!(role, FileRole::Program | FileRole::Interpreter);
            if is_executed && access(&path, AccessFlags::X_OK).is_err() {
                let message = format!("`{}` is not executable", path.display());
                return Err(Failure::new(Code::CannotStart, message).hint("ask a human to run `chmod +x` on it"));
            }
            if let Err(error) = check_shown(&path, role) {
                let message = format!("failed to read `{}`: {error}", path.display());
                return Err(Failure::new(Code::CannotStart, message)
                    .hint("an approval is bound to the content of this file; ask a human to make it readable"));
            }
        }
        Ok(())
    }

    /// Fails unless the invocation would execute the files that a human was shown, by their names.
    fn check_same_files(
        &self,
        invocation: &Invocation,
        approved: &[Fingerprint],
        config: &Config,
    ) -> Result<(), Failure> {
        let is_compared = |role: FileRole| !role.is_of_argument() || invocation.attempt <= 1;
        let shown = approved.iter().filter(|file| file.role != FileRole::Input);
        let is_same = match self.files_by_name(invocation, config) {
            Ok(now) => {
                let now = now.iter().filter(|(_, role)| is_compared(*role));
                shown.map(|file| (&file.path, file.role)).eq(now.map(|(path, role)| (path, *role)))
            }
            Err(_) => false,
        };
        if is_same {
            Ok(())
        } else {
            Err(Failure::drifted("the program or one of its files changed after the human was asked"))
        }
    }

    /// Whether the input names files that the program reads.
    pub fn reads_files(&self) -> bool {
        self.argv.iter().any(|argument| matches!(argument, Argument::InputFile(_)))
    }

    /// Returns the program as the definition names it.
    pub fn program(&self) -> &str {
        match self.argv.first() {
            Some(Argument::Template(program)) => program,
            Some(Argument::When(_) | Argument::Each(_) | Argument::OutputFile(_) | Argument::InputFile(_)) | None => "",
        }
    }

    /// The program, if it is always the same one and found where all programs are.
    pub fn constant_program(&self) -> Option<&str> {
        Some(self.program()).filter(|program| template::is_constant(program) && !self.env.contains_key("PATH"))
    }

    /// Returns the file of the program, if it is one that can be started. A `PATH` that the definition sets counts if it
    /// is constant.
    pub fn find(&self, settings: &ProgramSettings) -> Option<PathBuf> {
        let own = self.env.get("PATH").filter(|path| template::is_constant(path));
        let folders = own.map_or_else(|| settings.path.clone(), |path| std::env::split_paths(path).collect());
        programs::find(Path::new(self.program()), folders).filter(|found| programs::is_program(found))
    }

    fn options(&self) -> ArgumentOptions {
        if self.allow_options { ArgumentOptions::Allowed } else { ArgumentOptions::Refused }
    }

    fn check_output_file(&self) -> Result<(), DefinitionMistake> {
        let mut files = self.argv.iter().enumerate().filter_map(|(index, argument)| match argument {
            Argument::OutputFile(file) => Some((index, file)),
            Argument::Template(_) | Argument::When(_) | Argument::Each(_) | Argument::InputFile(_) => None,
        });
        let Some((index, OutputFile { output_file: name, .. })) = files.next() else {
            let printed = self.output == ProcessOutput::File;
            return match &self.content_type {
                Some(_) if !printed => {
                    Err(DefinitionMistake::new("content_type", &"only a file has one: set `\"output\": \"file\"`"))
                }
                _ => Ok(()),
            };
        };
        let place = format!("argv[{index}].output_file");
        if name.is_empty() || name.contains(['/', '\0']) || name == "." || name == ".." {
            return Err(DefinitionMistake::new(place, &"it is the name of a file, without a folder"));
        }
        if let Some((index, _)) = files.next() {
            return Err(DefinitionMistake::new(format!("argv[{index}]"), &"a program can have one output file"));
        }
        if self.output != ProcessOutput::Text {
            return Err(DefinitionMistake::new("output", &"leave it out: the data is the output file"));
        }
        Ok(())
    }

    fn check_argv(&self) -> Result<(), DefinitionMistake> {
        match self.argv.first() {
            None => return Err(DefinitionMistake::new("argv", &"it is empty; the first element names the program")),
            Some(Argument::Template(program)) if template::is_constant(program) => {
                let relative = program.contains('/') && !program.starts_with('/');
                if program.is_empty() || relative {
                    return Err(DefinitionMistake::new(
                        "argv[0]",
                        &"the program must be an absolute path, or a name without `/`",
                    ));
                }
            }
            Some(_) => {
                return Err(DefinitionMistake::new("argv[0]", &"the program must be a constant, not a template"));
            }
        }
        let Some(allow) = &self.allow else { return Ok(()) };
        if allow.is_empty() {
            return Err(DefinitionMistake::new("allow", &"it is empty; leave it out to allow any first argument"));
        }
        match self.argv.get(1) {
            None => Err(DefinitionMistake::new("allow", &"there is no first argument to allow")),
            Some(Argument::Template(first)) if template::is_constant(first) && !allow.contains(first) => {
                Err(DefinitionMistake::new("argv[1]", &format!("`allow` does not contain `{first}`")))
            }
            Some(_) => Ok(()),
        }
    }
}

fn check_variable(name: &str) -> Result<(), DefinitionMistake> {
    if name.is_empty() || name.contains(['=', '\0']) {
        // The message does not quote the name: the text after the `=` may be a secret.
        let message = "the name of an environment variable must not be empty or contain `=`";
        return Err(DefinitionMistake::new("env", &message));
    }
    Ok(())
}
