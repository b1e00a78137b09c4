//! The builtin runner's settings: a function of the executor, with templates for its arguments.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with_macros::skip_serializing_none;

use super::{DefinitionMistake, Settings, TextKind};

/// The most lines that are returned at once.
pub const MAX_LINES: u64 = 500;
/// The most hits that are returned.
pub const MAX_HITS: u64 = 50;
/// The most entries that are returned.
pub const MAX_ENTRIES: u64 = 200;
/// The most characters of text that the input can ask for.
pub const MAX_CHARS: u64 = 100_000;

/// A function of the executor, with templates for its arguments.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Builtin {
    /// Reads lines of a text file.
    ReadFile(ReadFile),
    /// Finds the lines of files that match a regular expression.
    SearchFiles(Box<SearchFiles>),
    /// Lists a folder.
    ListFiles(ListFiles),
    /// Fetches a web page as text.
    FetchUrl(FetchUrl),
    /// Shows the sections of the agent's system prompt, or one of them.
    ReadPrompt(ReadPrompt),
    /// Changes a section of the agent's system prompt.
    EditPrompt(EditPrompt),
    /// Drafts a subtool of a script that succeeded, and tests it.
    DraftScript(DraftScript),
    /// Tests a subtool with a script, and saves it.
    SaveScript(Box<SaveScript>),
}

/// Reads lines of a text file. Templates.
#[skip_serializing_none]
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadFile {
    /// The path of the file: absolute, or relative to the caller's folder.
    pub path: Value,
    /// The number of the first line, starting at 1. Absent: 1.
    pub start: Option<Value>,
    /// The most lines to return, up to 500. Absent: 500.
    pub lines: Option<Value>,
}

/// Finds lines that match a regular expression. Templates.
#[skip_serializing_none]
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SearchFiles {
    /// The regular expression.
    pub pattern: Value,
    /// The folder or the file to search. Absent: the caller's folder.
    pub path: Option<Value>,
    /// A glob for the names of the files or, if it contains a `/`, for their paths relative to `path`.
    pub glob: Option<Value>,
    /// Whether to ignore the difference between upper and lower case. Absent: false.
    pub ignore_case: Option<Value>,
    /// The most hits to return, up to 50. Absent: 50.
    pub limit: Option<Value>,
    /// The number of the page of hits, from 1. Absent: 1.
    pub page: Option<Value>,
    /// Whether the hits are counted, in all and by file, and not returned. Absent: false.
    pub count: Option<Value>,
}

/// Lists a folder. Templates.
#[skip_serializing_none]
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListFiles {
    /// The folder. Absent: the caller's folder.
    pub path: Option<Value>,
    /// A glob that the entries match. With a `/` or as `**` it also matches below the folder, except hidden and
    /// git-ignored files.
    pub glob: Option<Value>,
    /// The most entries to return, up to 200. Absent: 200.
    pub limit: Option<Value>,
}

/// Fetches a page as text. Templates.
#[skip_serializing_none]
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FetchUrl {
    /// An http or https URL.
    pub url: Value,
    /// The most characters of text to return, up to 100,000. Absent: 20,000.
    pub max_chars: Option<Value>,
    /// The index of the first character. Absent: 0.
    pub start: Option<Value>,
}

/// Shows the sections of the system prompt, or one of them. Templates.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadPrompt {
    /// The name of a section, or its position like `2.1`. Absent: all sections, without their texts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub section: Option<Value>,
}

/// Changes a section of the system prompt. Templates.
#[skip_serializing_none]
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EditPrompt {
    /// The name of the section, or its position like `2.1`.
    pub section: Value,
    /// The new text, or the text to add. Without a value: none, to delete the section.
    pub text: Option<Value>,
    /// `replace`, `append`, `prepend` or `delete`. Without a value: `replace`.
    pub change: Option<Value>,
}

/// Drafts a subtool of a script that succeeded: its program with the constants at the top as inputs. Templates.
#[skip_serializing_none]
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DraftScript {
    /// The id of the script.
    pub script: Value,
    /// The names of the constants that become inputs. Absent: all.
    pub inputs: Option<Value>,
}

/// Saves a subtool with a script beside the human's own definitions, if it does what `script` did. Templates.
#[skip_serializing_none]
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SaveScript {
    /// The name of the subtool.
    pub name: Value,
    /// What it is for.
    pub description: Value,
    /// The program.
    pub source: Value,
    /// The id of the script.
    pub script: Value,
    /// The names of the subtools that it may call.
    pub calls: Value,
    /// The schema of its input. Absent: it has none.
    pub schema: Option<Value>,
    /// The input with which it does what the script did. Absent: none.
    pub example: Option<Value>,
    /// Other words for what it is for.
    pub phrases: Option<Value>,
}

impl Settings for Builtin {
    fn check(&self) -> Vec<DefinitionMistake> {
        Vec::new()
    }

    fn text_kind(&self, _: &str) -> TextKind {
        TextKind::Template
    }
}

impl Builtin {
    /// The template of how much is returned, and what is returned at most; `None` without a limit.
    pub fn limit(&self) -> Option<(Option<&Value>, u64)> {
        Some(match self {
            Self::ReadFile(templates) => (templates.lines.as_ref(), MAX_LINES),
            Self::SearchFiles(templates) => (templates.limit.as_ref(), MAX_HITS),
            Self::ListFiles(templates) => (templates.limit.as_ref(), MAX_ENTRIES),
            Self::FetchUrl(templates) => (templates.max_chars.as_ref(), MAX_CHARS),
            Self::ReadPrompt(_) | Self::EditPrompt(_) | Self::DraftScript(_) | Self::SaveScript(_) => return None,
        })
    }

    /// Whether it writes files of the human.
    pub fn writes(&self) -> bool {
        matches!(self, Self::EditPrompt(_) | Self::SaveScript(_))
    }

    /// Whether it reads files or folders of this machine.
    pub fn reads_files(&self) -> bool {
        matches!(self, Self::ReadFile(_) | Self::SearchFiles(_) | Self::ListFiles(_))
    }
}
