//! The system prompt: the built-in text, and the sections that the user adds.
//!
//! A section is a Markdown file in the folder `prompt/` of the configuration; a folder in it is a section that
//! contains sections. They are sorted by file name; leading digits and a dash (`10-tone.md`) set the order and
//! are not part of the name. A name is unique in the whole tree. The files are read for each session.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::Serialize;

use super::provider::ToolDefinition;
use crate::base::trust::{self, Distrust};

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

/// Returns the whole system prompt: `preamble` (from the model's configuration), the built-in text, the sections.
///
/// `text_tool` is the tool of a model that writes its calls as text; the prompt then explains how.
pub fn compose(preamble: Option<&str>, sections: &[PromptSection], text_tool: Option<&ToolDefinition>) -> String {
    let mut parts: Vec<String> = preamble.map(|text| text.trim().to_owned()).into_iter().collect();
    parts.push(BUILT_IN.trim().to_owned());
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

/// Replaces the text of a file section atomically, and returns its path.
pub fn edit(sections: &[PromptSection], word: &str, text: &str) -> Result<PathBuf, PromptError> {
    let section = find(sections, word)?;
    if section.text.is_none() {
        return Err(PromptError::NotAFile { name: section.name.clone() });
    }
    if text.len() as u64 > MAX_SECTION_BYTES {
        return Err(PromptError::TooLarge { path: section.path.clone() });
    }
    let failed = |source| PromptError::Io { path: section.path.clone(), source };
    let folder = section.path.parent().expect("a section file is in a folder");
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
    io::Write::write_all(&mut file, text.as_bytes()).and_then(|()| file.as_file().sync_all()).map_err(failed)?;
    file.persist(&section.path).map_err(|error| failed(error.error))?;
    Ok(section.path.clone())
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
            let text = fs::read_to_string(&path).map_err(failed(&path))?;
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
        let prompt = compose(Some("You are Ada."), &sections, None);
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
        assert!(matches!(edit(&before, "x", "new"), Err(PromptError::NotAFile { .. })));
        edit(&before, "a", "new").expect("edited");
        let after = sections(folder.path()).expect("read");
        assert_eq!(find(&after, "a").expect("the section exists").text.as_deref(), Some("new"));
    }
}
