//! The files that the program of a server executes: what an approval of a call is bound to.
//!
//! A server runs before the call and opens its files by their names. So it is known from which bytes it was started,
//! and one that was started from others than a human was shown is ended, and started anew for the call. What its
//! program loads besides, such as modules, is not looked for: `covers` lists it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use definition::run::mcp::McpServer;
use ground::config::programs::ProgramSettings;
use ground::task::failure::Failure;
use ground::task::fingerprint::{FileRole, Fingerprint, check_shown};
use protocol::code::Code;

use crate::RunnerContext;
use crate::process::named_files::code_folders;
use crate::process::program_call::ProgramCall;

/// Keeps Python from executing compiled code that lies beside a module, and from writing it there.
const NO_COMPILED_MODULES: (&str, &str) = ("PYTHONPYCACHEPREFIX", "/dev/null");

/// What starts the program of a server that is a command.
pub(super) fn program_call(server: &McpServer) -> ProgramCall {
    ProgramCall::server(&server.command, &server.env, Path::new(server.folder.as_deref().unwrap_or("/")))
}

/// What starts it from these files: one that loads more than its start executes keeps that as it is.
pub(super) fn program_call_from(server: &McpServer, started_from: &StartedFrom) -> ProgramCall {
    let (name, value) = NO_COMPILED_MODULES;
    if !started_from.has_covered() || server.env.contains_key(name) {
        return program_call(server);
    }
    let mut env = server.env.clone();
    env.insert(name.to_owned(), value.to_owned());
    ProgramCall::server(&server.command, &env, Path::new(server.folder.as_deref().unwrap_or("/")))
}

/// The files and folders that an approval is bound to besides those that the start executes: those that `covers`
/// lists, and the Python module that the command names.
fn covered(server: &McpServer, programs: &ProgramSettings) -> Result<Vec<PathBuf>, Failure> {
    let folder = Path::new(server.folder.as_deref().unwrap_or("/"));
    let module = program_call(server).module(programs)?.and_then(|module| module.path);
    Ok(server.covers.iter().map(|path| folder.join(path)).chain(module).collect())
}

/// All files and folders that an approval is bound to.
fn bound(server: &McpServer, programs: &ProgramSettings) -> Result<Vec<(PathBuf, FileRole)>, Failure> {
    let mut files = program_call(server).executed(programs)?;
    for path in covered(server, programs)? {
        if files.iter().all(|(known, _)| *known != path) {
            files.push((path.clone(), FileRole::of_covered(&path)));
        }
    }
    Ok(files)
}

/// Fails if the program of the server cannot be found, or a human cannot be shown what it is.
pub(super) fn check_program(server: &McpServer, context: &RunnerContext) -> Result<(), Failure> {
    if server.url.is_some() {
        return Ok(());
    }
    for (path, role) in bound(server, &context.config.programs)? {
        if matches!(role, FileRole::Covered | FileRole::Folder)
            && let Err(error) = check_shown(&path, role)
        {
            let message = format!("`{}` belongs to the MCP server `{}`: {error}", path.display(), server.name);
            return Err(Failure::new(Code::CannotStart, message)
                .hint("an approval is bound to its content; a human mends it, or names less in `covers`"));
        }
    }
    Ok(())
}

/// The folders from which its program takes code.
pub(super) fn code_folders_of(server: &McpServer) -> BTreeSet<PathBuf> {
    let Some((program, arguments)) = server.command.split_first() else { return BTreeSet::new() };
    let arguments: Vec<_> = arguments.iter().map(|text| Some(text.as_str())).collect();
    let variables = server.env.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let folder = server.folder.as_deref().map_or(Path::new("/"), Path::new);
    code_folders(program, &arguments, variables, folder)
}

/// The files that its program executes, and those that are covered; none for a server at a URL. `agent` is the Unix
/// user of the agent.
pub(super) fn executed(server: &McpServer, context: &RunnerContext, agent: u32) -> Result<Vec<Fingerprint>, Failure> {
    if server.url.is_some() {
        return Ok(Vec::new());
    }
    let files = bound(server, &context.config.programs)?.into_iter();
    Ok(files.map(|(path, role)| Fingerprint::of(&path, role, agent)).collect())
}

/// Fails if what is covered is no longer what a human was `shown`: a server may load it at any time.
pub(super) async fn check_covered(
    server: &McpServer,
    shown: &[Fingerprint],
    context: &RunnerContext,
) -> Result<(), Failure> {
    if server.url.is_some() {
        return Ok(());
    }
    let (bound_server, programs) = (server.clone(), context.config.programs.clone());
    let shown: Vec<_> = shown.iter().filter(|file| !file.role.is_of_input()).cloned().collect();
    let is_current = move || {
        let (bound, covered) = (bound(&bound_server, &programs)?, covered(&bound_server, &programs)?);
        let is_same =
            shown.iter().map(|file| (&file.path, file.role)).eq(bound.iter().map(|(path, role)| (path, *role)));
        Ok(is_same && shown.iter().filter(|file| covered.contains(&file.path)).all(Fingerprint::is_current))
    };
    if blocking(is_current).await? { Ok(()) } else { Err(drifted(server)) }
}

/// The failure of a call for which a human was shown another program.
pub(super) fn drifted(server: &McpServer) -> Failure {
    Failure::drifted(&format!("the program of the MCP server `{}` changed after the human was asked", server.name))
}

/// From which files a program was started.
#[derive(Debug)]
pub(super) struct StartedFrom(Vec<Fingerprint>);

impl StartedFrom {
    /// Reads the files of `server`, which is about to be started.
    pub(super) async fn read(server: &McpServer, context: &RunnerContext) -> Result<Self, Failure> {
        let (server, programs) = (server.clone(), context.config.programs.clone());
        let read = move || {
            let files = bound(&server, &programs)?.into_iter();
            // Who could change them is said when a human is asked.
            Ok(Self(files.map(|(path, role)| Fingerprint::of(&path, role, 0)).collect()))
        };
        blocking(read).await
    }

    /// Whether the program opens some of them by itself.
    fn has_covered(&self) -> bool {
        self.0.iter().any(|file| matches!(file.role, FileRole::Covered | FileRole::Folder))
    }

    /// Whether the files are still those that were read. A file that could not be read says nothing.
    pub(super) fn is_current(&self) -> bool {
        self.0.iter().all(|file| file.sha256.is_empty() || file.is_current())
    }

    /// Whether these are the executed ones among the files that a human was shown.
    pub(super) fn is(&self, shown: &[Fingerprint]) -> bool {
        let executed: Vec<_> = shown.iter().filter(|file| !file.role.is_of_input()).collect();
        executed.len() == self.0.len() && executed.iter().zip(&self.0).all(|(shown, own)| shown.is_same_as(own))
    }
}

/// Does what would block the runtime: files may be large.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Failure> + Send + 'static) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(Failure::new(Code::Internal, format!("failed to read a program: {error}"))))
}
