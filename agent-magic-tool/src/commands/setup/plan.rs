//! A plan: which files of a client say what, and what is left to its user.

use std::path::PathBuf;

use protocol::duration::PositiveDuration;
use protocol::paths::Paths;
use serde_json::{Value, json};

use super::client::Client;
use super::json_file::JsonEdit;
use super::section::SectionMarks;

/// Longer than our own wait, so that the client never kills a hook that would have spoken.
const GRACE_SECONDS: u64 = 30;
/// The start of a session is only written down.
const START_SECONDS: u64 = 10;

/// Where something is installed, and for whom.
#[derive(Debug)]
pub(super) struct SetupTarget {
    pub(super) client: Client,
    pub(super) paths: Paths,
    pub(super) home: PathBuf,
    /// The project's folder; `None` is for all of the user's.
    pub(super) project: Option<PathBuf>,
    pub(super) wait: PositiveDuration,
    /// How the client calls this program.
    pub(super) program: String,
}

#[derive(Debug, Default)]
pub(super) struct SetupPlan {
    pub(super) pieces: Vec<FilePiece>,
    /// What the user has to know or do, in sentences.
    pub(super) next: Vec<String>,
}

/// What is ours in one file.
#[derive(Debug)]
pub(super) struct FilePiece {
    pub(super) path: PathBuf,
    pub(super) edit: Edit,
}

#[derive(Debug)]
pub(super) enum Edit {
    /// The whole file.
    Own(String),
    /// A part of a text that others write too.
    Section {
        marks: SectionMarks,
        text: String,
    },
    Json(Vec<JsonEdit>),
    /// One more word in a list of a table.
    TomlList {
        table: &'static str,
        key: &'static str,
        word: String,
    },
    /// Aider's list of files that it reads, unless there is one already.
    AiderRead {
        word: String,
    },
}

impl SetupTarget {
    /// The folder of the client's own files: below the project, or where its variable or its custom says.
    pub(super) fn folder(&self, in_project: &str, variable: &str, below_home: &str) -> PathBuf {
        match &self.project {
            Some(project) => project.join(in_project),
            None => self.paths.folder_in(variable).unwrap_or_else(|| self.home.join(below_home)),
        }
    }

    /// The hook as a shell runs it.
    pub(super) fn command(&self) -> String {
        let mailbox =
            self.paths.explicit_mailbox().map(|mailbox| format!(" --mailbox {}", quoted(&mailbox.display().to_string())));
        // What is shared with others of a project names no folder of this machine.
        let mailbox = mailbox.filter(|_| self.project.is_none()).unwrap_or_default();
        format!("{} hook {} --wait {}{mailbox}", self.program, self.client, self.wait)
    }

    pub(super) fn timeout_seconds(&self) -> u64 {
        self.wait.get().as_secs() + GRACE_SECONDS
    }

    /// A hook in the form that Claude Code, Codex and Gemini CLI share; `unit` is what a second has of it.
    pub(super) fn hooks(&self, start: &'static str, end: &'static str, unit: u64, more: &Value) -> Vec<JsonEdit> {
        let hook = |seconds: u64| {
            let mut hook = json!({"type": "command", "command": self.command(), "timeout": seconds * unit});
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

/// As one word of a shell.
pub(super) fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@".contains(c);
    if text.chars().all(is_plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

impl SetupPlan {
    pub(super) fn file(&mut self, path: PathBuf, edit: Edit) {
        self.pieces.push(FilePiece { path, edit });
    }
}
