//! The `process` runner: one program, started without a shell.
//!
//! The program runs in its own process group, with a clean environment and only the three standard streams. The
//! whole group is dead when [`Runner::perform`] returns. Descriptors that the executor opens are close-on-exec;
//! descriptors that the executor inherited are the responsibility of its parent. The runner does not confine the
//! program: the operating system and the definition decide what it may access. `argument.rs` fills `argv`,
//! `program_call.rs` prepares the start, `startup.rs` finds the files that it executes, `named_files.rs` those
//! that its arguments name, `held.rs` executes those that a human was shown, `group.rs` runs the process group, `outcome.rs` interprets the exit.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use definition::run::process::{Argument, MAX_BYTES, Process};
use futures_util::future::BoxFuture;
use ground::base::own_folders::OwnFolders;
use ground::base::template;
use ground::task::fingerprint::{FileRole, Fingerprint, check_shown};
use nix::unistd::{AccessFlags, access};
use tempfile::TempDir;

use super::spool::Spool;
use super::{
    CancellationToken, Code, Config, Failure, Invocation, Runner, RunnerContext, RunnerOutput, Value, checked_places,
};
use crate::input_file::{self, OpenedInput};
use argument::ArgumentOptions;
use group::ProgramExit;
use named_files::{arguments_in, code_folders, scripts_named};
use program_call::{ApprovedFiles, ProgramCall};

mod argument;
pub(super) mod group;
pub(super) mod held;
pub(super) mod loading;
pub(crate) mod named_files;
mod outcome;
pub(super) mod program_call;
pub(super) mod python_module;
mod startup;

impl Runner for Process {
    fn plan(&self, invocation: &Invocation, _: &Config) -> Result<Value, Failure> {
        Ok(ProgramCall::of(self, invocation)?.plan())
    }

    /// Returns the files that the program executes, with the scripts among its constant arguments, those that the
    /// definition covers, and those that the input names.
    fn files(&self, invocation: &Invocation, context: &RunnerContext) -> Result<Vec<Fingerprint>, Failure> {
        let agent = invocation.caller.uid;
        let opened = files_by_name(self, invocation, &context.config)?.into_iter();
        let mut files: Vec<_> = opened.map(|(path, role)| Fingerprint::of(&path, role, agent)).collect();
        for path in ProgramCall::of(self, invocation)?.input_files() {
            files.push(input_file::fingerprint(path, invocation, context)?);
        }
        Ok(files)
    }

    /// The folders from which its program takes code, as its constants say.
    fn code_folders(&self, invocation: &Invocation) -> Result<BTreeSet<PathBuf>, Failure> {
        let program_call = ProgramCall::of(self, invocation)?;
        let constants: Vec<_> = self.argv.iter().skip(1).map(Argument::constant).collect();
        let variables = self.env.iter().filter(|(_, value)| template::is_constant(value));
        let variables = variables.map(|(name, value)| (name.as_str(), value.as_str()));
        Ok(code_folders(self.program(), &constants, variables, program_call.folder()))
    }

    /// Fails if the program cannot be found, read or started in its folder.
    fn check_before(&self, invocation: &Invocation, context: &RunnerContext) -> Result<(), Failure> {
        let program_call = ProgramCall::of(self, invocation)?;
        program_call.check_folder()?;
        if self.folder.is_some() {
            check_open(program_call.folder(), &context.own_folders)?;
        }
        for path in program_call.input_files() {
            input_file::fingerprint(path, invocation, context)?;
        }
        for (path, role) in files_by_name(self, invocation, &context.config)? {
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

    fn perform<'a>(
        &'a self,
        invocation: &'a Invocation,
        context: &'a RunnerContext,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<RunnerOutput, Failure>> {
        Box::pin(perform(self, invocation, context, cancel))
    }
}

async fn perform(
    process: &Process,
    invocation: &Invocation,
    context: &RunnerContext,
    cancel: &CancellationToken,
) -> Result<RunnerOutput, Failure> {
    let program_call = ProgramCall::of(process, invocation)?;
    if cancel.is_cancelled() {
        let message = format!("cancelled before `{}` was started", program_call.name());
        return Err(Failure::new(Code::Cancelled, message));
    }
    if process.folder.is_some() {
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
            check_same_files(process, invocation, approved, &context.config)?;
        }
        let inputs = inputs_of(&program_call, invocation, context).await?;
        let approved = approved.map(|files| ApprovedFiles { files, agent });
        program_call.prepare(&context.secrets, &context.config.programs, output_path, inputs, approved).await?
    };
    let program = prepared.program.clone();
    let exit = group::run(prepared.command, prepared.held, prepared.stdin, process.max_bytes, cancel)
        .await
        .map_err(|error| program_call.cannot_start(&error))?;
    let reader = outcome::OutputReader {
        process,
        program: &program,
        all_secrets: &context.secrets,
        passed_secrets: &prepared.secrets,
        written: program_call.output_file().map(|name| output_path.join(name)),
        spool: Spool::of(context, invocation, context.config.executor.output_bytes),
    };
    reader.outcome(exit).await
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
pub async fn run_configured(
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

fn options(process: &Process) -> ArgumentOptions {
    if process.allow_options { ArgumentOptions::Allowed } else { ArgumentOptions::Refused }
}

/// Those of the files that are found by their names alone, as they are known before the start.
fn files_by_name(
    process: &Process,
    invocation: &Invocation,
    config: &Config,
) -> Result<Vec<(PathBuf, FileRole)>, Failure> {
    let program_call = ProgramCall::of(process, invocation)?;
    let folder = program_call.folder();
    let mut files = program_call.startup(&config.programs)?.files();
    let is_place = |role| role == FileRole::Place;
    let mut known: HashSet<_> = files.iter().map(|(path, role)| (path.clone(), is_place(*role))).collect();
    let mut add = |path: PathBuf, role| {
        if known.insert((path.clone(), is_place(role))) {
            files.push((path, role));
        }
    };
    let constants: Vec<_> = process.argv.iter().skip(1).map(Argument::constant).collect();
    let is_constant = |name: &str| process.env.get(name).is_none_or(|template| template::is_constant(template));
    let (fixed, filled): (Vec<_>, Vec<_>) = program_call.variables().partition(|(name, _)| is_constant(name));
    for path in scripts_named(Path::new(process.program()), &constants, fixed, folder) {
        add(path, FileRole::Covered);
    }
    let covered = process.covers.iter().map(|path| folder.join(path));
    covered.for_each(|path| add(path.clone(), FileRole::of_covered(&path)));
    if let Ok(real) = folder.canonicalize() {
        add(real, FileRole::WorkingFolder);
    }
    for text in argument::filled_by_input(process.argv.get(1..).unwrap_or_default(), &invocation.values())? {
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

/// Fails unless the invocation would execute the files that a human was shown, by their names.
fn check_same_files(
    process: &Process,
    invocation: &Invocation,
    approved: &[Fingerprint],
    config: &Config,
) -> Result<(), Failure> {
    let is_compared = |role: FileRole| !role.is_of_argument() || invocation.attempt <= 1;
    let shown = approved.iter().filter(|file| file.role != FileRole::Input);
    let is_same = match files_by_name(process, invocation, config) {
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
