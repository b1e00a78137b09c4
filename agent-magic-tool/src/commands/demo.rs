//! `demo`: the whole story on this machine, without any account. Nothing in it is faked: it runs
//! this very program, with a mailbox and a home of its own, which are gone afterwards.

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

/// A subtool as a developer writes it.
const DROPPED_IN: &str = r#"{
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
    let stage = Stage::set(context).map_err(|error| Error::io("the demo's folder cannot be made", &error))?;
    let told = tell(&stage);
    // Whatever happened, the executor of the demo goes with the demo.
    let stopped = stage.call(&["executor", "stop"]);
    told.and(stopped.map(|_| Exit::Ok))
}

fn tell(stage: &Stage<'_>) -> Result<Exit, Error> {
    stage.say("An agent has one tool, its shell. It looks for a subtool in its own words:")?;
    stage.shell(
        "agent-magic-tool list tools --query=\"search the contents of my notes\" --limit=1",
        &["list", "tools", "--query=search the contents of my notes", "--limit=1"],
    )?;

    stage.say("It runs the subtool. That returns at once, with the path of a result file:")?;
    let input = r#"{"pattern": "年度报告", "path": "notes"}"#;
    let receipt = stage.shell(
        &format!("agent-magic-tool run files_search --input='{input}'"),
        &["run", "files_search", "--input", input],
    )?;
    stage.say("The file is there already. An executor outside the agent is at work on it:")?;
    stage.cat(text(&receipt, "result_file"))?;
    stage.say("`wait` blocks until the same file is final:")?;
    stage.wait(text(&receipt, "id"))?;

    stage.say("A developer adds a subtool by dropping in a file. No restart, no change of any prompt:")?;
    let file = stage.home().join(".config/agent-magic-tool/subtools/archive.json");
    write(&file, DROPPED_IN)?;
    stage.print(&format!("{}\n{DROPPED_IN}", stage.prompt("cat ~/.config/agent-magic-tool/subtools/archive.json")))?;
    let receipt = stage.shell("agent-magic-tool run archive_notes", &["run", "archive_notes"])?;
    stage.say("This one takes a second. Until then the file says so:")?;
    stage.cat(text(&receipt, "result_file"))?;
    stage.say("And then:")?;
    stage.wait(text(&receipt, "id"))?;
    stage.say("That was all of it. Next: agent-magic-tool --help")?;
    Ok(Exit::Ok)
}

/// A field that every answer has; an answer without it shows itself in what is printed.
fn text<'a>(answer: &'a Value, field: &str) -> &'a str {
    answer[field].as_str().unwrap_or_default()
}

/// A folder with a home, a mailbox and some notes.
#[derive(Debug)]
struct Stage<'a> {
    root: TempDir,
    program: PathBuf,
    context: &'a Context,
}

impl<'a> Stage<'a> {
    fn set(context: &'a Context) -> std::io::Result<Self> {
        let stage = Self {
            root: tempfile::Builder::new().prefix("agent-magic-tool-demo-").tempdir()?,
            program: launch::program()?,
            context,
        };
        fs::create_dir_all(stage.folder().join("notes"))?;
        fs::create_dir_all(stage.home().join(".config/agent-magic-tool/subtools"))?;
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

    fn call(&self, words: &[&str]) -> Result<Value, Error> {
        #[derive(Deserialize)]
        struct DemoOutput {
            error: ErrorBody,
        }
        let output = Command::new(&self.program)
            .args(words)
            .env("HOME", self.home())
            .env("AGENT_MAGIC_TOOL_DIR", self.root.path().join("mailbox"))
            .env_remove("AGENT_MAGIC_TOOL_SUBTOOLS")
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("XDG_STATE_HOME")
            .env_remove("XDG_CACHE_HOME")
            .current_dir(self.folder())
            .output()
            .map_err(|error| Error::io("the demo cannot run this program", &error))?;
        serde_json::from_slice(&output.stdout).map_err(|_| {
            let words = String::from_utf8_lossy(&output.stderr);
            match words.lines().find_map(|line| serde_json::from_str::<DemoOutput>(line).ok()) {
                Some(DemoOutput { error }) => error.into(),
                None => Error::internal(format!("the demo's command failed ({}): {words}", output.status)),
            }
        })
    }

    /// Runs this program with `words`, shown as `line`.
    fn shell(&self, line: &str, words: &[&str]) -> Result<Value, Error> {
        self.print(&format!("{}\n", self.prompt(line)))?;
        let answer = self.call(words)?;
        self.print(&format!("{}\n", self.homely(&answer.to_string())))?;
        Ok(answer)
    }

    fn wait(&self, id: &str) -> Result<Value, Error> {
        self.shell(&format!("agent-magic-tool wait {id}"), &["wait", id])
    }

    fn cat(&self, file: &str) -> Result<(), Error> {
        let content =
            fs::read_to_string(file).map_err(|error| Error::io(&format!("`{file}` cannot be read"), &error))?;
        self.print(&format!("{}\n{}", self.prompt(&format!("cat {}", self.homely(file))), self.homely(&content)))
    }

    /// `text` without the long name of the demo's folder.
    fn homely(&self, text: &str) -> String {
        text.replace(&self.root.path().display().to_string(), "/tmp/demo")
    }

    fn prompt(&self, line: &str) -> String {
        if self.context.output.is_terminal() {
            format!("\x1b[1;32m$\x1b[0m \x1b[1m{line}\x1b[0m")
        } else {
            format!("$ {line}")
        }
    }

    fn say(&self, words: &str) -> Result<(), Error> {
        let line = if self.context.output.is_terminal() {
            format!("\n\x1b[36m# {words}\x1b[0m\n")
        } else {
            format!("\n# {words}\n")
        };
        self.print(&line)
    }

    fn print(&self, text: &str) -> Result<(), Error> {
        self.context.output.text(text)
    }
}

fn write(file: &Path, text: &str) -> Result<(), Error> {
    fs::write(file, text).map_err(|error| Error::io(&format!("`{}` cannot be written", file.display()), &error))
}
