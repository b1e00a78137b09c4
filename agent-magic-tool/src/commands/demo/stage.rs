//! The demo's temporary home, mailbox and notes, and the functions that run and show its commands.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use agent_side::context::Context;
use agent_side::error::Error;
use agent_side::launch;
use ground::page_client::client::PageClient;
use protocol::error::ErrorBody;
use protocol::paths::Paths;
use serde::Deserialize;
use serde_json::Value;
use tempfile::TempDir;

use crate::commands::executor::open_page::refuse_agents;

/// Enough files that searching them takes a moment.
const NOTES: usize = 400;

#[derive(Debug)]
pub(super) struct Stage<'a> {
    root: TempDir,
    program: PathBuf,
    context: &'a Context,
}

/// A running command of the demo, whose output is read line by line.
pub(super) struct RunningCommand {
    child: Child,
    lines: Receiver<String>,
}

impl<'a> Stage<'a> {
    pub(super) fn prepare(context: &'a Context) -> std::io::Result<Self> {
        let stage = Self {
            root: tempfile::Builder::new().prefix("agent-magic-tool-demo-").tempdir()?,
            program: launch::program()?,
            context,
        };
        for folder in [stage.folder().join("notes"), stage.folder().join("board"), stage.config().join("subtools")] {
            fs::create_dir_all(folder)?;
        }
        for day in 1..=NOTES {
            let note = match day {
                77 => "Board meeting.\n年度报告: revenue grew by a fifth.\n".to_owned(),
                _ => format!("Day {day}.\n{}", "Nothing to report.\n".repeat(40)),
            };
            fs::write(stage.folder().join(format!("notes/day-{day:03}.md")), note)?;
        }
        Ok(stage)
    }

    fn home(&self) -> PathBuf {
        self.root.path().join("home")
    }

    fn folder(&self) -> PathBuf {
        self.root.path().join("work")
    }

    fn mailbox(&self) -> PathBuf {
        self.root.path().join("mailbox")
    }

    fn config(&self) -> PathBuf {
        self.home().join(".config/agent-magic-tool")
    }

    /// This program in the demo's environment.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(words).env("HOME", self.home()).env("AGENT_MAGIC_TOOL_DIR", self.mailbox());
        for variable in ["AGENT_MAGIC_TOOL_SUBTOOLS", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"] {
            command.env_remove(variable);
        }
        command.current_dir(self.folder());
        command
    }

    /// Runs a command and returns the JSON that it prints.
    pub(super) fn call(&self, words: &[&str]) -> Result<Value, Error> {
        #[derive(Deserialize)]
        struct DemoOutput {
            error: ErrorBody,
        }
        let output = self.command(words).output().map_err(|error| not_started(&error))?;
        serde_json::from_slice(&output.stdout).map_err(|_| {
            let stderr = String::from_utf8_lossy(&output.stderr);
            match stderr.lines().find_map(|line| serde_json::from_str::<DemoOutput>(line).ok()) {
                Some(DemoOutput { error }) => error.into(),
                None => Error::internal(format!("the demo's command failed ({}): {stderr}", output.status)),
            }
        })
    }

    /// Prints `line` after a prompt, runs this program with `words` and prints its output.
    pub(super) fn shell(&self, line: &str, words: &[&str]) -> Result<Value, Error> {
        self.print_line(&self.prompt(line))?;
        let answer = self.call(words)?;
        self.print_line(&answer.to_string())?;
        Ok(answer)
    }

    /// Prints `line` after a prompt and starts the command.
    pub(super) fn start(&self, words: &[&str], line: &str) -> Result<RunningCommand, Error> {
        self.print_line(&self.prompt(line))?;
        let mut command = self.command(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| not_started(&error))?;
        let (sender, lines) = mpsc::channel();
        forward(child.stdout.take(), sender.clone());
        forward(child.stderr.take(), sender);
        Ok(RunningCommand { child, lines })
    }

    pub(super) fn cat(&self, file: &str) -> Result<(), Error> {
        let content =
            fs::read_to_string(file).map_err(|error| Error::io(&format!("failed to read `{file}`"), &error))?;
        self.print_line(&self.prompt(&format!("cat {file}")))?;
        self.print_line(content.trim_end())
    }

    pub(super) fn add_subtool(&self, name: &str, text: &str) -> Result<(), Error> {
        self.write(&format!("subtools/{name}"), text)?;
        self.print_line(&self.prompt(&format!("cat ~/.config/agent-magic-tool/subtools/{name}")))?;
        self.print_line(text.trim_end())
    }

    pub(super) fn configure(&self, text: &str) -> Result<(), Error> {
        self.write("config.toml", text)
    }

    fn write(&self, file: &str, text: &str) -> Result<(), Error> {
        let path = self.config().join(file);
        fs::write(&path, text).map_err(|error| Error::io(&format!("failed to write `{}`", path.display()), &error))
    }

    /// Whether a person is at the terminal, who could decide on the page.
    pub(super) fn has_person(&self) -> bool {
        self.context.output.is_terminal() && refuse_agents(self.context).is_ok()
    }

    /// Opens the page in a browser, or prints its link.
    pub(super) fn show_page(&self) -> Result<(), Error> {
        self.print_line(&self.prompt("agent-magic-tool executor page"))?;
        self.command(&["executor", "page"]).status().map(drop).map_err(|error| not_started(&error))
    }

    /// Signs in to the page of the demo's executor.
    pub(super) fn sign_in(&self) -> Result<PageClient, Error> {
        let paths = Paths::below(&self.home(), &self.mailbox());
        PageClient::log_in(&paths.executor())
            .map_err(|error| Error::internal(format!("failed to sign in to the page: {error}")))
    }

    fn prompt(&self, line: &str) -> String {
        if self.context.output.is_terminal() {
            format!("\x1b[1;32m$\x1b[0m \x1b[1m{line}\x1b[0m")
        } else {
            format!("$ {line}")
        }
    }

    pub(super) fn comment(&self, text: &str) -> Result<(), Error> {
        self.print_line(&if self.context.output.is_terminal() {
            format!("\n\x1b[36m# {text}\x1b[0m")
        } else {
            format!("\n# {text}")
        })
    }

    /// Prints a line, with a short path for the demo's folder.
    pub(super) fn print_line(&self, text: &str) -> Result<(), Error> {
        let short = text.replace(&self.root.path().display().to_string(), "/tmp/demo");
        self.context.output.text(&format!("{short}\n"))
    }
}

impl RunningCommand {
    /// Waits for the next line of output; `None` at the end.
    pub(super) fn next_line(&mut self) -> Option<String> {
        self.lines.recv().ok()
    }

    pub(super) fn finish(mut self) -> Result<(), Error> {
        let status = self.child.wait().map_err(|error| Error::io("failed to wait for the agent", &error))?;
        if status.success() { Ok(()) } else { Err(Error::internal(format!("the demo's agent ended with {status}"))) }
    }
}

/// Sends every line of a stream to `lines`, in a thread.
fn forward(stream: Option<impl std::io::Read + Send + 'static>, lines: Sender<String>) {
    if let Some(stream) = stream {
        thread::spawn(move || {
            BufReader::new(stream).lines().map_while(Result::ok).try_for_each(|line| lines.send(line))
        });
    }
}

fn not_started(error: &std::io::Error) -> Error {
    Error::io("failed to run the program for the demo", error)
}
