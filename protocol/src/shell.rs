//! Runs one `agent-magic-tool` call for an agent, from an argument list; no shell is involved.
//!
//! The command line runs calls in its own process. [`ProgramShell`] starts a process for each call, for
//! programs that only use this library.

use std::ffi::OsString;
use std::fmt::Debug;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::thread;

use crate::caller::Caller;
use crate::code::{Code, Exit};
use crate::error::ErrorBody;
use crate::paths::{CAPTURED, SESSION, WAKES};
use crate::task::TaskId;

pub const IF_NO_APPROVER: &str = "--if-no-approver";
/// A dry run for which nothing is performed, not even what would show a change.
pub(crate) const PLAN: &str = "--plan";

/// Whether the words of a `run` say what is to happen if no human has the page open.
pub fn says_what_without_approver(words: &[String]) -> bool {
    words.iter().any(|word| word == IF_NO_APPROVER || word.starts_with("--if-no-approver="))
}

/// Whether a word of a `run` makes it a dry run, which starts no task.
pub fn is_dry_run(word: &str) -> bool {
    matches!(word, "--dry-run" | PLAN)
}

/// Runs one `agent-magic-tool` call for an agent.
pub trait Shell: Send + Sync + Debug {
    /// Runs the call and blocks until it has ended. `words` are the arguments without the program's name.
    fn call(&self, words: &[String], stdin: &str, caller: &Caller) -> PrintedOutput;

    /// Whether the agent may see this task and its files. A shell for several users hides those of the others.
    fn may_see(&self, task: TaskId) -> bool {
        let _ = task;
        true
    }
}

/// What a call printed, and its exit status.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PrintedOutput {
    pub status: u8,
    pub stdout: String,
    pub stderr: String,
}

impl PrintedOutput {
    /// The output of a call that ends with `error`.
    pub fn refused(error: &ErrorBody) -> Self {
        let stderr = format!("{}\n", serde_json::json!({ "error": error }));
        Self { status: error.code.exit() as u8, stdout: String::new(), stderr }
    }
}

/// Runs each call as a new process of the `agent-magic-tool` program.
#[derive(Debug, Clone)]
pub struct ProgramShell {
    path: PathBuf,
    environment: Vec<(OsString, OsString)>,
}

impl ProgramShell {
    /// Uses the program at `path`; a bare name is searched in `PATH`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), environment: Vec::new() }
    }

    /// Sets an environment variable of the process, which otherwise inherits ours.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    fn run(&self, words: &[String], stdin: &str, caller: &Caller) -> io::Result<Output> {
        let mut command = Command::new(&self.path);
        let (verb, rest) = words.split_at(usize::from(!words.is_empty()));
        command.args(verb);
        // An option that the line has already stays; the command takes it only once.
        if caller.unattended && verb == ["run"] && !says_what_without_approver(rest) {
            command.arg("--if-no-approver=fail");
        }
        command.args(rest).envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.env(CAPTURED, "1").env(WAKES, if caller.wakes { "1" } else { "" }).env_remove(SESSION);
        command.envs(caller.environment().into_iter().filter_map(|(name, value)| Some((name, value?))));
        if let Some(folder) = &caller.folder {
            command.current_dir(folder);
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let pipe = child.stdin.take();
        thread::scope(|scope| {
            // A program may end without reading all of its input; that is not an error.
            scope.spawn(move || drop(pipe.map(|mut pipe| pipe.write_all(stdin.as_bytes()))));
            child.wait_with_output()
        })
    }
}

impl Shell for ProgramShell {
    fn call(&self, words: &[String], stdin: &str, caller: &Caller) -> PrintedOutput {
        match self.run(words, stdin, caller) {
            Ok(output) => PrintedOutput {
                status: output.status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(Exit::Bug as u8),
                stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
                stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            },
            Err(error) => {
                let message = format!("failed to start `{}`: {error}", self.path.display());
                PrintedOutput::refused(
                    &ErrorBody::new(Code::CannotStart, message).hint("tell the user that it is not installed"),
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_gets_the_caller_and_all_of_its_input() {
        let folder = tempfile::tempdir().expect("failed to create a temporary folder");
        let caller = Caller {
            session: Some("s".to_owned()),
            folder: Some(folder.path().to_owned()),
            depth: 3,
            ..Caller::default()
        };
        let script = "echo $AGENT_MAGIC_TOOL_SESSION $AGENT_MAGIC_TOOL_DEPTH $OWN; pwd; cat; echo end >&2; exit 4";
        let program = ProgramShell::new("sh").env("OWN", "x");
        // More than a pipe can buffer, in both directions.
        let stdin = "年".repeat(1 << 18);
        let printed = program.call(&["-c".to_owned(), script.to_owned()], &stdin, &caller);
        let stdout = format!("s 3 x\n{}\n{stdin}", folder.path().canonicalize().expect("the folder exists").display());
        assert_eq!(printed, PrintedOutput { status: 4, stdout, stderr: "end\n".to_owned() });
        let ended = program.call(&["-c".to_owned(), "kill -9 $$".to_owned()], &stdin, &Caller::default());
        assert_eq!((ended.status, ended.stdout.as_str()), (70, ""));
    }

    #[test]
    fn a_program_of_an_agent_that_is_alone_gets_the_option_once() {
        let alone = Caller { unattended: true, ..Caller::default() };
        let folder = tempfile::tempdir().expect("failed to create a temporary folder");
        let script = folder.path().join("program");
        std::fs::write(&script, "#!/bin/sh\nprintf '%s ' \"$@\"\n").expect("written");
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(&script, executable).expect("made executable");
        let printed = |words: &[&str]| {
            let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
            ProgramShell::new(&script).call(&words, "", &alone).stdout
        };
        assert_eq!(printed(&["run", "x", "--", "--to=a"]), "run --if-no-approver=fail x -- --to=a ");
        assert_eq!(printed(&["run", "x", "--if-no-approver=wait"]), "run x --if-no-approver=wait ");
        assert_eq!(printed(&["run", "--if-no-approver", "fail", "x"]), "run --if-no-approver fail x ");
        assert_eq!(printed(&["list", "tools"]), "list tools ");
    }

    #[test]
    fn a_missing_program_is_reported_as_cannot_start() {
        let printed = ProgramShell::new("/nowhere/agent-magic-tool").call(&[], "", &Caller::default());
        assert_eq!(printed.status, 1);
        assert!(printed.stderr.contains("\"code\":\"cannot-start\""), "{}", printed.stderr);
    }
}
