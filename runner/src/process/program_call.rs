//! A `process` definition, filled for one invocation: the program, its arguments, folder, environment and stdin.
//!
//! Secrets stay names until [`ProgramCall::prepare`]. Only environment variables can hold a secret, since every
//! user of the machine can read the arguments of a program.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::{env, io, iter};

use ground::config::programs::{self, ProgramSettings};
use ground::config::secret::{Secret, SecretName, Secrets};
use ground::task::failure::{Failure, Retry};
use ground::task::fingerprint::{FileRole, Fingerprint, check_shown};
use protocol::caller::Caller;
use protocol::code::Code;
use protocol::paths::TOOL_SCOPE;
use protocol::paths::home_folder;
use protocol::tool_scope::ToolScope;
use serde_json::{Map, Value, json};
use tokio::process::Command;

use super::Process;
use super::argument::{self, FilledArgument};
use super::held::{HeldFiles, HeldStart};
use super::loading::ProgramLoading;
use super::named_files::scripts_named;
use super::python_module::PythonModule;
use super::startup::{Startup, interpreter_kind};
use crate::Invocation;
use crate::fields::{self, FieldValues};
use crate::input_file::OpenedInput;

/// The variables that a program inherits from the executor: enough to find the home folder and the language, and
/// nothing that could hold a key. `PATH` is that of the configuration.
const INHERITED: [&str; 3] = ["LANG", "TMPDIR", "USER"];

pub(crate) struct ProgramCall {
    program: String,
    arguments: Vec<FilledArgument>,
    folder: PathBuf,
    env: Vec<(String, VariableValue)>,
    stdin: Option<String>,
}

enum VariableValue {
    Text(String),
    Secret(SecretName),
}

/// The files that a human was shown.
pub(crate) struct ApprovedFiles {
    pub(super) files: Vec<Fingerprint>,
    /// The Unix user of the agent.
    pub(super) agent: u32,
}

impl ApprovedFiles {
    async fn hold(self, startup: Startup) -> Result<HeldStart, Failure> {
        // Hashing a large program would block the runtime.
        let held = tokio::task::spawn_blocking(move || HeldStart::of(&startup, &self.files, self.agent)).await;
        held.unwrap_or_else(|error| Err(Failure::new(Code::Internal, format!("failed to open the program: {error}"))))
    }
}

/// A program that is ready to be started.
pub(crate) struct PreparedProgram {
    pub(crate) command: Command,
    pub(super) program: PathBuf,
    pub(super) held: HeldFiles,
    pub(super) stdin: Option<String>,
    /// The secrets in its environment.
    pub(super) secrets: Vec<Secret>,
}

impl ProgramCall {
    pub(super) fn of(process: &Process, invocation: &Invocation) -> Result<Self, Failure> {
        let values = FieldValues::of(invocation);
        let mut arguments = argument::render(&process.argv, &invocation.values(), super::options(process))?;
        if arguments.is_empty() {
            return Err(Failure::new(Code::TemplateFailed, "`argv` is empty after filling its templates"));
        }
        let program = arguments.remove(0).shown();
        if let Some(allow) = &process.allow {
            check_allowed(arguments.first().map(FilledArgument::shown).as_ref(), allow)?;
        }
        let base = invocation.caller.folder.clone().unwrap_or_else(|| PathBuf::from("/"));
        let folder = match &process.folder {
            None => base,
            Some(template) => match values.text(Some(template))? {
                None => base,
                Some(folder) => base.join(folder),
            },
        };
        let mut env = Vec::with_capacity(process.env.len());
        for (name, template) in &process.env {
            if let Some(secret) = SecretName::in_reference(template) {
                env.push((name.clone(), VariableValue::Secret(secret)));
            } else if let Some(text) = values.text(Some(template))? {
                env.push((name.clone(), VariableValue::Text(text)));
            }
        }
        // If the program calls us, it does so on behalf of its own caller, with the same restrictions.
        for (name, value) in invocation.caller.environment() {
            env.extend(value.map(|value| (name.to_owned(), VariableValue::Text(value))));
        }
        let stdin = values.value(process.stdin.as_ref())?.map(fields::as_text);
        let has_nul = folder.as_os_str().as_encoded_bytes().contains(&0)
            || env.iter().any(|(_, setting)| matches!(setting, VariableValue::Text(text) if text.contains('\0')));
        if has_nul {
            return Err(Failure::new(Code::Rejected, "the folder or an environment variable contains a NUL byte"));
        }
        Ok(Self { program, arguments, folder, env, stdin })
    }

    /// A program of the configuration: it has no templates and no caller's folder.
    pub(super) fn configured(argv: &[String], stdin: &str) -> Self {
        let (program, arguments) =
            argv.split_first().map(|(program, rest)| (program.clone(), rest.to_vec())).unwrap_or_default();
        let arguments = arguments.into_iter().map(FilledArgument::Text).collect();
        Self { program, arguments, folder: PathBuf::from("/"), env: Vec::new(), stdin: Some(stdin.to_owned()) }
    }

    /// The program of a server, which talks over its standard input and output until it is ended.
    pub(crate) fn server(argv: &[String], env: &BTreeMap<String, String>, folder: &Path) -> Self {
        let env = env.iter().map(|(name, text)| {
            let value = match SecretName::in_reference(text) {
                Some(secret) => VariableValue::Secret(secret),
                None => VariableValue::Text(text.clone()),
            };
            (name.clone(), value)
        });
        // It works for all callers at once, and so has the rights of none, unless its configuration says otherwise.
        let nothing = (TOOL_SCOPE.to_owned(), VariableValue::Text(ToolScope::nothing().to_env_value()));
        let env = iter::once(nothing).chain(env).collect();
        Self { folder: folder.to_owned(), env, ..Self::configured(argv, "") }
    }

    pub(super) fn name(&self) -> &str {
        &self.program
    }

    /// The name of the file that the program writes, if it writes one.
    pub(super) fn output_file(&self) -> Option<&str> {
        self.arguments.iter().find_map(|argument| match argument {
            FilledArgument::OutputFile(file) => Some(file.output_file.as_str()),
            FilledArgument::Text(_) | FilledArgument::InputFile { .. } => None,
        })
    }

    /// The files that it reads, as the input names them.
    pub(super) fn input_files(&self) -> impl Iterator<Item = &str> {
        self.arguments.iter().filter_map(|argument| match argument {
            FilledArgument::InputFile { path, .. } => Some(path.as_str()),
            FilledArgument::Text(_) | FilledArgument::OutputFile(_) => None,
        })
    }

    /// What it gets on standard input.
    pub(super) fn stdin(&self) -> Option<&str> {
        self.stdin.as_deref()
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn check_folder(&self) -> Result<(), Failure> {
        if self.folder.is_dir() {
            return Ok(());
        }
        Err(Failure::new(Code::NotFound, format!("the folder `{}` does not exist", self.folder.display()))
            .hint("it is the working directory of the program; name a folder that exists"))
    }

    /// The environment variables that hold no secret.
    pub(super) fn variables(&self) -> impl Iterator<Item = (&str, &str)> {
        self.env.iter().filter_map(|(name, setting)| match setting {
            VariableValue::Text(text) => Some((name.as_str(), text.as_str())),
            VariableValue::Secret(_) => None,
        })
    }

    /// Finds what the program executes.
    pub(super) fn startup(&self, settings: &ProgramSettings) -> Result<Startup, Failure> {
        let search = self.search_path(settings);
        let arguments: Vec<_> = self.arguments.iter().map(FilledArgument::shown).collect();
        let folders: Vec<_> = env::split_paths(&search).filter(|folder| folder.is_absolute()).collect();
        Startup::of(self.find(&search)?, &arguments, &self.folder, &folders)
    }

    /// Finds what a program whose arguments are constants executes: the files of its start, and the scripts among its
    /// arguments.
    pub(crate) fn executed(&self, settings: &ProgramSettings) -> Result<Vec<(PathBuf, FileRole)>, Failure> {
        let mut files = self.startup(settings)?.files();
        let arguments: Vec<_> = self.arguments.iter().map(FilledArgument::shown).collect();
        let arguments: Vec<_> = arguments.iter().map(|argument| Some(argument.as_str())).collect();
        for path in scripts_named(Path::new(&self.program), &arguments, self.variables(), &self.folder) {
            if files.iter().all(|(known, _)| *known != path) {
                files.push((path, FileRole::Covered));
            }
        }
        Ok(files)
    }

    /// The module that it runs by its name, if it is Python.
    pub(crate) fn module(&self, settings: &ProgramSettings) -> Result<Option<PythonModule>, Failure> {
        self.startup(settings).map(|startup| self.module_of(&startup))
    }

    fn module_of(&self, startup: &Startup) -> Option<PythonModule> {
        let (kind, _) = interpreter_kind(&startup.program)?;
        if kind != "python" {
            return None;
        }
        let arguments: Vec<_> = self.arguments.iter().map(FilledArgument::shown).collect();
        let env = self.env.iter().map(|(name, value)| match value {
            VariableValue::Text(text) => (name.as_str(), Some(text.as_str())),
            VariableValue::Secret(_) => (name.as_str(), None),
        });
        let module = PythonModule::of(&startup.program, &arguments, &env.collect::<Vec<_>>(), &self.folder);
        // What a script in the place of Python does, it alone knows. What is too large to be shown is not covered.
        let is_python = startup.before.is_empty();
        let is_shown = |path: &PathBuf| is_python && check_shown(path, FileRole::of_covered(path)).is_ok();
        module.map(|module| PythonModule { path: module.path.filter(is_shown), ..module })
    }

    /// How it comes to what it runs.
    pub(crate) fn loading(&self, settings: &ProgramSettings) -> Result<ProgramLoading, Failure> {
        let startup = self.startup(settings)?;
        let module = self.module_of(&startup);
        Ok(ProgramLoading::of(&startup, module.as_ref()))
    }

    /// The `PATH` of the program: that of its definition, or of the configuration.
    fn search_path(&self, settings: &ProgramSettings) -> OsString {
        let own = self.env.iter().find_map(|(name, setting)| match setting {
            VariableValue::Text(text) if name == "PATH" => Some(OsString::from(text)),
            VariableValue::Text(_) | VariableValue::Secret(_) => None,
        });
        own.unwrap_or_else(|| settings.search_path())
    }

    pub(super) fn plan(&self) -> Value {
        let env: Map<String, Value> = self
            .env
            .iter()
            // Whom it would call us for is nothing that its definition says.
            .filter(|(name, _)| !Caller::default().environment().iter().any(|(own, _)| own == name))
            .map(|(name, setting)| {
                let shown = match setting {
                    VariableValue::Text(text) => text.clone(),
                    VariableValue::Secret(secret) => secret.to_string(),
                };
                (name.clone(), Value::String(shown))
            })
            .collect();
        let argv: Vec<_> =
            iter::once(self.program.clone()).chain(self.arguments.iter().map(FilledArgument::shown)).collect();
        json!({
            "program": self.name(),
            "argv": argv,
            "folder": self.folder.to_string_lossy(),
            "env": env,
            "stdin": self.stdin,
        })
    }

    /// Finds the program and resolves the secrets. The file that it writes will be in `output_folder`, those that it
    /// reads are `inputs`. What a human has `approved` is held.
    pub(crate) async fn prepare(
        &self,
        secrets: &Secrets,
        settings: &ProgramSettings,
        output_folder: &Path,
        inputs: Vec<OpenedInput>,
        approved: Option<ApprovedFiles>,
    ) -> Result<PreparedProgram, Failure> {
        let mut env: Vec<(OsString, OsString)> =
            INHERITED.iter().filter_map(|name| Some((OsString::from(*name), env::var_os(name)?))).collect();
        env.extend(home_folder().map(|home| ("HOME".into(), home.into())));
        env.push(("PATH".into(), settings.search_path()));
        let mut passed = Vec::new();
        for (name, setting) in &self.env {
            let value = match setting {
                VariableValue::Text(text) => text.clone(),
                VariableValue::Secret(secret) => {
                    let secret = secrets.get(secret).await?;
                    let value = secret.expose().to_owned();
                    passed.push(secret);
                    value
                }
            };
            env.retain(|(known, _)| known != OsStr::new(name));
            env.push((name.into(), value.into()));
        }
        let program = self.find(&self.search_path(settings))?;
        self.check_folder()?;
        let mut read = HeldFiles::default();
        let mut inputs = inputs.into_iter().map(|input| read.hold_input(input.file, input.path));
        let mut arguments = Vec::with_capacity(self.arguments.len());
        for argument in &self.arguments {
            let input = if matches!(argument, FilledArgument::InputFile { .. }) { inputs.next() } else { None };
            arguments.push(argument.with_files(output_folder, input.as_deref()));
        }
        drop(inputs);
        let (mut command, mut held) = match approved {
            None => (Command::new(&program), HeldFiles::default()),
            Some(approved) => {
                let startup = self.startup(settings)?;
                let name = startup.binary.clone();
                let start = approved.hold(startup).await?;
                if let Some((place, words)) = start.script {
                    arguments.splice(place..=place, words);
                }
                arguments.splice(..0, start.before);
                for (name, value) in start.env {
                    add_variable(&mut env, name, value);
                }
                let mut command = Command::new(start.binary);
                command.arg0(name);
                (command, start.files)
            }
        };
        held.hold_all(read);
        command
            .args(arguments)
            .env_clear()
            .envs(env)
            .current_dir(&self.folder)
            .stdin(if self.stdin.is_some() { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Ok(PreparedProgram { command, program, held, stdin: self.stdin.clone(), secrets: passed })
    }

    fn find(&self, search: &OsStr) -> Result<PathBuf, Failure> {
        let name = Path::new(self.name());
        programs::find(name, env::split_paths(search)).ok_or_else(|| {
            let message = format!("no program named `{}` in the folders of `path` under [programs]", name.display());
            Failure::new(Code::CannotStart, message)
                .hint("ask a human to install it, or to add its folder to `path` under [programs] in config.toml")
        })
    }

    pub(crate) fn cannot_start(&self, error: &io::Error) -> Failure {
        let failure = Failure::new(Code::CannotStart, format!("failed to start `{}`: {error}", self.name()));
        match error.kind() {
            io::ErrorKind::ArgumentListTooLong => {
                failure.hint("pass shorter arguments: the system limits their length")
            }
            // Too many processes, or the program's file is being replaced.
            io::ErrorKind::WouldBlock | io::ErrorKind::ExecutableFileBusy => failure.retry(Retry::Later),
            _ => failure,
        }
    }
}

fn check_allowed(first: Option<&String>, allow: &[String]) -> Result<(), Failure> {
    let message = match first {
        Some(first) if allow.contains(first) => return Ok(()),
        Some(first) => format!("`{first}` is not allowed as the first argument"),
        None => "the first argument is missing".to_owned(),
    };
    Err(Failure::new(Code::NotAllowed, message).hint(format!("use one of: `{}`", allow.join("`, `"))))
}

/// Sets a variable; of one that lists folders, what the definition sets stays behind it.
fn add_variable(env: &mut Vec<(OsString, OsString)>, name: &str, value: PathBuf) {
    let mut value = value.into_os_string();
    if let Some(at) = env.iter().position(|(known, _)| known == name) {
        value.push(":");
        value.push(env.remove(at).1);
    }
    env.push((name.into(), value));
}
