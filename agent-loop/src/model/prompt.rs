//! The system prompt: the built-in text, and the sections that the user adds.
//!
//! A section is a Markdown file in the folder `prompt/` of the configuration; a folder in it is a section that
//! contains sections. They are sorted by file name; leading digits and a dash (`10-tone.md`) set the order and
//! are not part of the name. A name is unique in the whole tree. The files are read for each session.

use ground::task::failure::Failure;
use protocol::code::Code;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::{Deserialize, Serialize};

use ground::config::{Config, RuleAction};
use protocol::regular_file;
use protocol::trust::{self, Distrust};

use super::provider::ToolDefinition;

/// The built-in prompt: what a model has to know about the one tool.
const BUILT_IN: &str = include_str!("prompt.md");
/// The largest section, in bytes.
const MAX_SECTION_BYTES: u64 = 1 << 20;
/// How deep folders may be nested; also stops symbolic links that form a cycle.
const MAX_DEPTH: usize = 16;

/// One section and its subsections.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PromptSection {
    pub name: String,
    pub path: PathBuf,
    /// The text of a file; `None` for a folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The sections in a folder; empty for a file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sections: Vec<Self>,
}

#[derive(Debug, thiserror::Error)]
pub enum PromptError {
    #[error("failed to access prompt section `{path}`")]
    Io { path: PathBuf, source: io::Error },
    #[error("prompt section `{path}` is not trusted: {distrust}")]
    Untrusted { path: PathBuf, distrust: Distrust },
    #[error("two prompt sections are named `{name}`: `{first}` and `{second}`")]
    Duplicate { name: String, first: PathBuf, second: PathBuf },
    #[error("the prompt folders form a cycle, or are nested too deep, at `{path}`")]
    Cycle { path: PathBuf },
    #[error("`{path}` is not a prompt section: a section is a Markdown file, `NAME.md`, or a folder of them")]
    NotASection { path: PathBuf },
    #[error("no prompt section named `{name}`; available: {}", known.join(", "))]
    Unknown { name: String, known: Vec<String> },
    #[error("prompt section `{name}` is a folder; only a file can be edited")]
    NotAFile { name: String },
    #[error("prompt section `{path}` is larger than {MAX_SECTION_BYTES} bytes")]
    TooLarge { path: PathBuf },
}

/// Returns the sections in `folder`, or an empty list if the folder does not exist.
pub fn sections(folder: &Path) -> Result<Vec<PromptSection>, PromptError> {
    let mut seen = BTreeMap::new();
    let mut above = Vec::new();
    match fs::metadata(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        _ => read_folder(folder, &mut above, &mut seen),
    }
}

/// What happens to calls that change something, as the model is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptMode {
    ReadOnly,
    /// By the setting `confirm.writes`.
    Writes(RuleAction),
}

impl PromptMode {
    pub fn of(config: &Config, is_read_only: bool) -> Self {
        if is_read_only { Self::ReadOnly } else { Self::Writes(config.confirm.writes) }
    }

    /// `None` if the built-in text says it already.
    fn text(self) -> Option<&'static str> {
        match self {
            Self::ReadOnly => Some(
                "This session is read-only: only subtools that change nothing run, and every other call is refused. Do not try to change anything, and do not look for a way around it. If the task needs a change, say which one, and that the user can make it in a session that is not read-only.",
            ),
            Self::Writes(RuleAction::Ask) => None,
            Self::Writes(RuleAction::Allow) => Some(
                "In this session a call that changes something runs at once, unless a rule asks the user first. Change only what you were asked to change. Before a change that cannot be taken back, look at what it would affect.",
            ),
            Self::Writes(RuleAction::Refuse) => Some(
                "In this session a call that changes something is refused, unless a rule of the user allows it. After such a refusal do not try again; say what was not done.",
            ),
        }
    }
}

/// Returns the whole system prompt: `preamble` (from the model's configuration), the built-in text, the mode, the
/// sections.
///
/// `text_tool` is the tool of a model that writes its calls as text; the prompt then explains how.
pub fn compose(
    preamble: Option<&str>,
    mode: PromptMode,
    sections: &[PromptSection],
    text_tool: Option<&ToolDefinition>,
) -> String {
    let mut parts: Vec<String> = preamble.map(|text| text.trim().to_owned()).into_iter().collect();
    parts.push(BUILT_IN.trim().to_owned());
    parts.extend(mode.text().map(str::to_owned));
    parts.extend(text_tool.map(text_call_instructions));
    parts.extend(sections.iter().map(|section| render(section, 1)));
    parts.retain(|part| !part.is_empty());
    parts.join("\n\n")
}

/// Returns the section with this name, or at this position in the tree, such as `2.1`.
pub fn find<'a>(sections: &'a [PromptSection], word: &str) -> Result<&'a PromptSection, PromptError> {
    let by_position = || {
        let mut numbers = word.split('.').map(|number| number.parse::<usize>().ok()?.checked_sub(1));
        let first = sections.get(numbers.next()??)?;
        numbers.try_fold(first, |section, number| section.sections.get(number?))
    };
    find_by_name(sections, word)
        .or_else(by_position)
        .ok_or_else(|| PromptError::Unknown { name: word.to_owned(), known: names(sections) })
}

fn find_by_name<'a>(sections: &'a [PromptSection], name: &str) -> Option<&'a PromptSection> {
    let search = |section: &'a PromptSection| {
        if section.name == name { Some(section) } else { find_by_name(&section.sections, name) }
    };
    sections.iter().find_map(search)
}

fn names(sections: &[PromptSection]) -> Vec<String> {
    sections.iter().flat_map(|section| [vec![section.name.clone()], names(&section.sections)].concat()).collect()
}

/// A change of one section.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SectionChange {
    #[default]
    Replace,
    /// Puts the text after what is there.
    Append,
    /// Puts the text before what is there.
    Prepend,
    /// Removes the section's file.
    Delete,
}

/// Returns the section that can be changed, with its new text; `None` if the change deletes it.
pub fn changed<'a>(
    sections: &'a [PromptSection],
    word: &str,
    change: SectionChange,
    text: &str,
) -> Result<(&'a PromptSection, Option<String>), PromptError> {
    let section = find(sections, word)?;
    let Some(before) = &section.text else {
        return Err(PromptError::NotAFile { name: section.name.clone() });
    };
    let (before, added) = (before.trim_end(), text.trim_end());
    let after = match change {
        SectionChange::Replace => Some(text.to_owned()),
        SectionChange::Append => Some(format!("{before}\n\n{added}\n").trim_start().to_owned()),
        SectionChange::Prepend => Some(format!("{added}\n\n{before}\n").trim_start().to_owned()),
        SectionChange::Delete => None,
    };
    if after.as_ref().is_some_and(|after| after.len() as u64 > MAX_SECTION_BYTES) {
        return Err(PromptError::TooLarge { path: section.path.clone() });
    }
    Ok((section, after))
}

/// Writes the new text of a file section atomically, or removes its file.
pub fn write(section: &PromptSection, text: Option<&str>) -> Result<(), PromptError> {
    let failed = |source| PromptError::Io { path: section.path.clone(), source };
    let Some(text) = text else { return fs::remove_file(&section.path).map_err(failed) };
    let folder = section.path.parent().expect("a section file is in a folder");
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
    io::Write::write_all(&mut file, text.as_bytes()).and_then(|()| file.as_file().sync_all()).map_err(failed)?;
    file.persist(&section.path).map_err(|error| failed(error.error))?;
    Ok(())
}

fn read_folder(
    folder: &Path,
    above: &mut Vec<PathBuf>,
    seen: &mut BTreeMap<String, PathBuf>,
) -> Result<Vec<PromptSection>, PromptError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| PromptError::Io { path, source }
    };
    let real = folder.canonicalize().map_err(failed(folder))?;
    if above.contains(&real) || above.len() >= MAX_DEPTH {
        return Err(PromptError::Cycle { path: folder.to_owned() });
    }
    above.push(real);
    let mut paths: Vec<_> = fs::read_dir(folder)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>())
        .map_err(failed(folder))?;
    paths.retain(|path| !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.')));
    paths.sort();
    let mut sections = Vec::new();
    for path in paths {
        if let Err(distrust) = trust::check(&path)
            && distrust.is_writable_by_others()
        {
            return Err(PromptError::Untrusted { path, distrust });
        }
        let metadata = fs::metadata(&path).map_err(failed(&path))?;
        let name =
            section_name(&path, metadata.is_dir()).ok_or_else(|| PromptError::NotASection { path: path.clone() })?;
        if let Some(first) = seen.insert(name.clone(), path.clone()) {
            return Err(PromptError::Duplicate { name, first, second: path });
        }
        sections.push(if metadata.is_dir() {
            PromptSection { name, sections: read_folder(&path, above, seen)?, path, text: None }
        } else {
            if metadata.len() > MAX_SECTION_BYTES {
                return Err(PromptError::TooLarge { path });
            }
            let text = regular_file::read_text(&path, MAX_SECTION_BYTES).map_err(failed(&path))?;
            PromptSection { name, path, text: Some(text), sections: Vec::new() }
        });
    }
    above.pop();
    Ok(sections)
}

/// Returns the name without its order prefix and file extension.
fn section_name(path: &Path, is_folder: bool) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let name = if is_folder { name } else { name.strip_suffix(".md")? };
    let name = match name.split_once('-') {
        Some((order, rest)) if !order.is_empty() && order.bytes().all(|byte| byte.is_ascii_digit()) => rest,
        _ => name,
    };
    Some(name.to_owned()).filter(|name| !name.is_empty())
}

/// Renders a section and its subsections as Markdown.
fn render(section: &PromptSection, level: usize) -> String {
    let title = format!("{} {}", "#".repeat(level.min(6)), section.name);
    let subsections = section.sections.iter().map(|section| render(section, level + 1));
    let parts =
        [title].into_iter().chain(section.text.as_deref().map(|text| text.trim().to_owned())).chain(subsections);
    parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n\n")
}

/// Tells a model without native tool calls how to write a call as text.
fn text_call_instructions(tool: &ToolDefinition) -> String {
    format!(
        "To call it, write this and nothing else in your answer:\n<tool_call>{{\"name\": \"{}\", \"arguments\": {{\"command\": \"...\"}}}}</tool_call>\nYou get the result as the next message.",
        tool.name
    )
}

impl From<PromptError> for Failure {
    fn from(error: PromptError) -> Self {
        let message = protocol::error::chain(&error);
        match error {
            PromptError::Unknown { .. } => Self::new(Code::NotFound, message),
            PromptError::NotAFile { .. } => Self::new(Code::Rejected, message)
                .hint("name one of the sections that it contains, as listed by `read_prompt_sections`"),
            PromptError::TooLarge { .. } => Self::new(Code::Rejected, message),
            PromptError::Io { .. } => Self::new(Code::Io, message),
            PromptError::Untrusted { .. }
            | PromptError::Duplicate { .. }
            | PromptError::Cycle { .. }
            | PromptError::NotASection { .. } => Self::new(Code::BadConfig, message)
                .hint("tell the user to repair the folder `prompt/` beside config.toml"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, text).expect("written");
        }
        folder
    }

    #[test]
    fn files_and_folders_are_sections_in_order() {
        let folder =
            tree(&[("20-tone.md", "Be brief.\n"), ("10-work/b.md", "B"), ("10-work/a.md", "A"), (".hidden", "x")]);
        let sections = sections(folder.path()).expect("read");
        let prompt = compose(Some("You are Ada."), PromptMode::Writes(RuleAction::Ask), &sections, None);
        assert!(prompt.starts_with("You are Ada.\n\n"), "{prompt}");
        assert!(prompt.ends_with("# work\n\n## a\n\nA\n\n## b\n\nB\n\n# tone\n\nBe brief."), "{prompt}");
        assert_eq!(find(&sections, "b").expect("by name"), find(&sections, "1.2").expect("by position"));
        assert!(
            matches!(find(&sections, "3"), Err(PromptError::Unknown { known, .. }) if known == ["work", "a", "b", "tone"])
        );
    }

    #[test]
    fn a_duplicate_name_and_a_cycle_are_rejected() {
        let folder = tree(&[("1-a.md", ""), ("x/2-a.md", "")]);
        assert!(matches!(sections(folder.path()), Err(PromptError::Duplicate { name, .. }) if name == "a"));
        let folder = tree(&[("x/a.md", "")]);
        std::os::unix::fs::symlink(folder.path(), folder.path().join("x/again")).expect("linked");
        assert!(matches!(sections(folder.path()), Err(PromptError::Cycle { .. })));
    }

    #[test]
    fn a_file_can_be_edited_and_a_folder_cannot() {
        let folder = tree(&[("x/a.md", "old")]);
        let before = sections(folder.path()).expect("read");
        let edit = |sections: &[PromptSection], word: &str, change: SectionChange, text: &str| {
            let (section, text) = changed(sections, word, change, text)?;
            write(section, text.as_deref())
        };
        assert!(matches!(edit(&before, "x", SectionChange::Replace, "new"), Err(PromptError::NotAFile { .. })));
        for (change, text, expected) in [
            (SectionChange::Replace, "new", Some("new")),
            (SectionChange::Append, "more\n", Some("new\n\nmore\n")),
            (SectionChange::Prepend, "first", Some("first\n\nnew\n\nmore\n")),
            (SectionChange::Delete, "", None),
        ] {
            edit(&sections(folder.path()).expect("read"), "a", change, text).expect("edited");
            let after = sections(folder.path()).expect("read");
            let after = find(&after, "a").ok().and_then(|section| section.text.clone());
            assert_eq!(after.as_deref(), expected, "{change:?}");
        }
    }
}
