//! A setup plan: our parts of a client's files, and what the user has to do.

use std::path::PathBuf;

use agent_side::client::Client;
use protocol::duration::PositiveDuration;
use protocol::paths::Paths;
use serde_json::{Value, json};

use super::json_file::JsonEdit;
use super::section::SectionMarks;

/// How much longer than the hook the client waits, so that it does not kill a hook that is about to respond.
const GRACE_SECONDS: u64 = 30;
/// The client's timeout for the hook at the start of a session, which only writes a file.
const START_SECONDS: u64 = 10;

/// Where something is installed, and for whom.
#[derive(Debug)]
pub(super) struct SetupTarget {
    pub(super) client: Client,
    pub(super) paths: Paths,
    pub(super) home: PathBuf,
    /// The project's folder; `None` means all projects of the user.
    pub(super) project: Option<PathBuf>,
    pub(super) wait: PositiveDuration,
    /// The path of this program, or its name in files that are shared.
    pub(super) program: String,
}

#[derive(Debug, Default)]
pub(super) struct SetupPlan {
    pub(super) pieces: Vec<FilePiece>,
    /// What the user has to know or do, one sentence each.
    pub(super) next: Vec<String>,
}

/// Our part of one file.
#[derive(Debug)]
pub(super) struct FilePiece {
    pub(super) path: PathBuf,
    pub(super) edit: Edit,
}

#[derive(Debug)]
pub(super) enum Edit {
    /// The whole file.
    Own(String),
    /// A section of a text that others edit too.
    Section {
        marks: SectionMarks,
        text: String,
    },
    Json(Vec<JsonEdit>),
    /// One item of a list in a TOML table.
    TomlList {
        table: &'static str,
        key: &'static str,
        item: String,
    },
    /// A server in a TOML table of servers.
    TomlServer {
        table: &'static str,
        key: &'static str,
        command: String,
        arguments: Vec<String>,
    },
    /// An entry below a key of a YAML file.
    YamlEntry {
        key: &'static str,
        /// Its lines, the first of which is its name.
        entry: Vec<String>,
    },
    /// Aider's list of files to read, unless the user has one already.
    AiderRead {
        file: String,
    },
}

impl SetupTarget {
    /// The folder of the client's files: in the project, else named by the client's environment variable, else in
    /// the home folder.
    pub(super) fn folder(&self, in_project: &str, variable: &str, below_home: &str) -> PathBuf {
        match &self.project {
            Some(project) => project.join(in_project),
            None => self.paths.folder_in(variable).unwrap_or_else(|| self.home.join(below_home)),
        }
    }

    /// The hook's command line for a shell.
    pub(super) fn command(&self) -> String {
        let mailbox = self
            .paths
            .explicit_mailbox()
            .map(|mailbox| format!(" --mailbox {}", quoted(&mailbox.display().to_string())));
        // Files of a project are shared, so they must not name folders of this machine.
        let mailbox = mailbox.filter(|_| self.project.is_none()).unwrap_or_default();
        format!("{} hook {} --wait {}{mailbox}", quoted(&self.program), self.client, self.wait)
    }

    pub(super) fn timeout_seconds(&self) -> u64 {
        self.wait.get().as_secs() + GRACE_SECONDS
    }

    /// The hooks in the format that Claude Code, Codex and Gemini CLI share. Timeouts are in units of which a second
    /// has `units_per_second`.
    pub(super) fn hooks(
        &self,
        start: &'static str,
        end: &'static str,
        units_per_second: u64,
        more: &Value,
    ) -> Vec<JsonEdit> {
        let hook = |seconds: u64| {
            let mut hook = json!({"type": "command", "command": self.command(), "timeout": seconds * units_per_second});
            if let (Value::Object(hook), Value::Object(more), true) = (&mut hook, more, seconds > START_SECONDS) {
                hook.extend(more.clone());
            }
            json!({"hooks": [hook]})
        };
        vec![
            JsonEdit::Hook { event: start, client: self.client, entry: hook(START_SECONDS) },
            JsonEdit::Hook { event: end, client: self.client, entry: hook(self.timeout_seconds()) },
        ]
    }
}

/// Quotes `text` as one shell word, if needed.
pub(super) fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@".contains(c);
    if text.chars().all(is_plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

impl SetupPlan {
    pub(super) fn file(&mut self, path: PathBuf, edit: Edit) {
        self.pieces.push(FilePiece { path, edit });
    }
}
