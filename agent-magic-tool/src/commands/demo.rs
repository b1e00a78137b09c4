//! `demo`: shows how it all works, on this machine and without any account. Nothing is faked: it runs
//! this program with a temporary mailbox and home folder, which are removed afterwards.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use protocol::code::Exit;
use protocol::error::ErrorBody;
use serde::Deserialize;
use serde_json::Value;
use tempfile::TempDir;

use crate::context::Context;
use crate::error::Error;
use crate::launch;

/// Enough files that searching them takes a moment.
const NOTES: usize = 400;

/// The file that the demo adds, as a developer would write it.
const ADDED_SUBTOOL: &str = r#"{
  "archive_notes": {
    "description": "Packs all notes into one compressed archive and returns its size.",
    "input": {"type": "object", "properties": {"name": {"type": "string", "default": "notes"}}},
    "annotations": {"idempotentHint": true},
    "confirm": "never",
    "run": {"process": {"argv": ["sh", "-c", "sleep 1; tar czf \"$1.tgz\" notes; wc -c < \"$1.tgz\"", "archive", "{{ name }}"], "folder": "."}}
  }
}
"#;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: &Args, context: &Context) -> Result<Exit, Error> {
    let demo = Demo::prepare(context).map_err(|error| Error::io("failed to create the demo's folder", &error))?;
    let result = run_steps(&demo);
    // The demo's executor stops even if a step failed.
    let stopped = demo.call(&["executor", "stop"]);
    result.and(stopped.map(|_| Exit::Ok))
}

fn run_steps(demo: &Demo<'_>) -> Result<Exit, Error> {
    demo.comment("An agent has one tool, its shell. It looks for a subtool in its own words:")?;
    demo.shell(
        "agent-magic-tool list tools --query=\"search the contents of my notes\" --limit=1",
        &["list", "tools", "--query=search the contents of my notes", "--limit=1"],
    )?;

    demo.comment("It runs the subtool. That returns at once, with the path of a result file:")?;
    let input = r#"{"pattern": "年度报告", "path": "notes"}"#;
    let receipt = demo.shell(
        &format!("agent-magic-tool run files_search --input='{input}'"),
        &["run", "files_search", "--input", input],
    )?;
    demo.comment("The file already exists. An executor outside the agent works on the task:")?;
    demo.cat(text(&receipt, "result_file"))?;
    demo.comment("`wait` blocks until the same file is final:")?;
    demo.wait(text(&receipt, "id"))?;

    demo.comment("A developer adds a subtool by adding a file. No restart, no prompt change:")?;
    let file = demo.home().join(".config/agent-magic-tool/subtools/archive.json");
    write(&file, ADDED_SUBTOOL)?;
    demo.print(&format!("{}\n{ADDED_SUBTOOL}", demo.prompt("cat ~/.config/agent-magic-tool/subtools/archive.json")))?;
    let receipt = demo.shell("agent-magic-tool run archive_notes", &["run", "archive_notes"])?;
    demo.comment("This one takes a second. Until then, the file says that it is pending:")?;
    demo.cat(text(&receipt, "result_file"))?;
    demo.comment("After that:")?;
    demo.wait(text(&receipt, "id"))?;
    demo.comment("That is all. Next: agent-magic-tool --help")?;
    Ok(Exit::Ok)
}

/// A text field of an answer. Empty if it is missing, which then shows in the demo's output.
fn text<'a>(answer: &'a Value, field: &str) -> &'a str {
    answer[field].as_str().unwrap_or_default()
}

/// A temporary folder with a home, a mailbox and some notes.
#[derive(Debug)]
struct Demo<'a> {
    root: TempDir,
    program: PathBuf,
    context: &'a Context,
}

impl<'a> Demo<'a> {
    fn prepare(context: &'a Context) -> std::io::Result<Self> {
        let demo = Self {
            root: tempfile::Builder::new().prefix("agent-magic-tool-demo-").tempdir()?,
            program: launch::program()?,
            context,
        };
        fs::create_dir_all(demo.folder().join("notes"))?;
        fs::create_dir_all(demo.home().join(".config/agent-magic-tool/subtools"))?;
        for day in 1..=NOTES {
            let note = match day {
                77 => "Board meeting.\n年度报告: revenue grew by a fifth.\n".to_owned(),
                _ => format!("Day {day}.\n{}", "Nothing to report.\n".repeat(40)),
            };
            fs::write(demo.folder().join(format!("notes/day-{day:03}.md")), note)?;
        }
        Ok(demo)
    }

    fn home(&self) -> PathBuf {
        self.root.path().join("home")
    }

    fn folder(&self) -> PathBuf {
        self.root.path().join("work")
    }

    fn call(&self, arguments: &[&str]) -> Result<Value, Error> {
        #[derive(Deserialize)]
        struct DemoOutput {
            error: ErrorBody,
        }
        let output = Command::new(&self.program)
            .args(arguments)
            .env("HOME", self.home())
            .env("AGENT_MAGIC_TOOL_DIR", self.root.path().join("mailbox"))
            .env_remove("AGENT_MAGIC_TOOL_SUBTOOLS")
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("XDG_STATE_HOME")
            .env_remove("XDG_CACHE_HOME")
            .current_dir(self.folder())
            .output()
            .map_err(|error| Error::io("failed to run the program for the demo", &error))?;
        serde_json::from_slice(&output.stdout).map_err(|_| {
            let stderr = String::from_utf8_lossy(&output.stderr);
            match stderr.lines().find_map(|line| serde_json::from_str::<DemoOutput>(line).ok()) {
                Some(DemoOutput { error }) => error.into(),
                None => Error::internal(format!("the demo's command failed ({}): {stderr}", output.status)),
            }
        })
    }

    /// Prints `line` as a shell prompt, runs this program with `arguments` and prints its output.
    fn shell(&self, line: &str, arguments: &[&str]) -> Result<Value, Error> {
        self.print(&format!("{}\n", self.prompt(line)))?;
        let answer = self.call(arguments)?;
        self.print(&format!("{}\n", self.shorten_paths(&answer.to_string())))?;
        Ok(answer)
    }

    fn wait(&self, id: &str) -> Result<Value, Error> {
        self.shell(&format!("agent-magic-tool wait {id}"), &["wait", id])
    }

    fn cat(&self, file: &str) -> Result<(), Error> {
        let content =
            fs::read_to_string(file).map_err(|error| Error::io(&format!("failed to read `{file}`"), &error))?;
        self.print(&format!(
            "{}\n{}",
            self.prompt(&format!("cat {}", self.shorten_paths(file))),
            self.shorten_paths(&content)
        ))
    }

    /// Replaces the long path of the demo's folder by a short one.
    fn shorten_paths(&self, text: &str) -> String {
        text.replace(&self.root.path().display().to_string(), "/tmp/demo")
    }

    fn prompt(&self, line: &str) -> String {
        if self.context.output.is_terminal() {
            format!("\x1b[1;32m$\x1b[0m \x1b[1m{line}\x1b[0m")
        } else {
            format!("$ {line}")
        }
    }

    fn comment(&self, text: &str) -> Result<(), Error> {
        let line = if self.context.output.is_terminal() {
            format!("\n\x1b[36m# {text}\x1b[0m\n")
        } else {
            format!("\n# {text}\n")
        };
        self.print(&line)
    }

    fn print(&self, text: &str) -> Result<(), Error> {
        self.context.output.text(text)
    }
}

fn write(file: &Path, text: &str) -> Result<(), Error> {
    fs::write(file, text).map_err(|error| Error::io(&format!("failed to write `{}`", file.display()), &error))
}
