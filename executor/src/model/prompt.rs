//! The system prompt: our own page, and the sections that people add.
//!
//! Sections are Markdown files and folders of them below `prompt/` in the configuration's folder: a file is a
//! section, a folder a section of sections. They stand in the order of their names; digits and a dash before a
//! name (`10-tone.md`) order it and are not part of it. A name stands once in the whole tree. Read anew for
//! each session.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::Serialize;

use super::provider::ToolDefinition;
use crate::base::trust::{self, Distrust};

/// What a model has to know of the one tool: the only words of ours in its prompt.
pub const OWN: &str = include_str!("prompt.md");
/// More than this is no prompt.
const MAX_SECTION_BYTES: u64 = 1 << 20;
/// Folders in folders; a link that leads back ends here at the latest.
const DEEPEST: usize = 16;

/// One section, with what is below it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PromptSection {
    pub name: String,
    pub path: PathBuf,
    /// Of a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Of a folder.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sections: Vec<Self>,
}

#[derive(Debug, thiserror::Error)]
pub enum PromptError {
    #[error("the section `{path}` cannot be read")]
    Read { path: PathBuf, source: io::Error },
    #[error("the section `{path}` cannot be trusted: {distrust}")]
    Untrusted { path: PathBuf, distrust: Distrust },
    #[error("the section `{name}` stands twice: `{first}` and `{second}`")]
    Twice { name: String, first: PathBuf, second: PathBuf },
    #[error("the sections lead back to themselves at `{path}`")]
    Loop { path: PathBuf },
    #[error("`{path}` is no section: it is a Markdown file, `NAME.md`, or a folder of them")]
    NoSection { path: PathBuf },
    #[error("no section named `{name}`; there are: {}", known.join(", "))]
    Unknown { name: String, known: Vec<String> },
    #[error("the section `{name}` is a folder: only a file can be edited")]
    NotALeaf { name: String },
    #[error("the section `{path}` is larger than {MAX_SECTION_BYTES} bytes")]
    TooLarge { path: PathBuf },
}

/// The sections below `folder`; none if it is not there.
pub fn sections(folder: &Path) -> Result<Vec<PromptSection>, PromptError> {
    let mut seen = BTreeMap::new();
    let mut above = Vec::new();
    match fs::metadata(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        _ => read_folder(folder, &mut above, &mut seen),
    }
}

/// The whole prompt for a model: what its configuration puts first, our own page, the sections.
pub fn compose(first: Option<&str>, sections: &[PromptSection], written_calls: Option<&ToolDefinition>) -> String {
    let mut parts: Vec<String> = first.map(|text| text.trim().to_owned()).into_iter().collect();
    parts.push(OWN.trim().to_owned());
    parts.extend(written_calls.map(how_to_write));
    parts.extend(sections.iter().map(|section| written(section, 1)));
    parts.retain(|part| !part.is_empty());
    parts.join("\n\n")
}

/// The section of that name, or at that place in the tree, like `2.1`.
pub fn find<'a>(sections: &'a [PromptSection], word: &str) -> Result<&'a PromptSection, PromptError> {
    let at_place = || {
        let mut numbers = word.split('.').map(|number| number.parse::<usize>().ok()?.checked_sub(1));
        let first = sections.get(numbers.next()??)?;
        numbers.try_fold(first, |section, number| section.sections.get(number?))
    };
    named(sections, word)
        .or_else(at_place)
        .ok_or_else(|| PromptError::Unknown { name: word.to_owned(), known: names(sections) })
}

fn named<'a>(sections: &'a [PromptSection], name: &str) -> Option<&'a PromptSection> {
    let below =
        |section: &'a PromptSection| if section.name == name { Some(section) } else { named(&section.sections, name) };
    sections.iter().find_map(below)
}

fn names(sections: &[PromptSection]) -> Vec<String> {
    sections.iter().flat_map(|section| [vec![section.name.clone()], names(&section.sections)].concat()).collect()
}

/// Replaces a file's text, at once and whole.
pub fn edit(sections: &[PromptSection], word: &str, text: &str) -> Result<PathBuf, PromptError> {
    let section = find(sections, word)?;
    if section.text.is_none() {
        return Err(PromptError::NotALeaf { name: section.name.clone() });
    }
    if text.len() as u64 > MAX_SECTION_BYTES {
        return Err(PromptError::TooLarge { path: section.path.clone() });
    }
    let failed = |source| PromptError::Read { path: section.path.clone(), source };
    let folder = section.path.parent().expect("a section lies in a folder");
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
        move |source| PromptError::Read { path, source }
    };
    let real = folder.canonicalize().map_err(failed(folder))?;
    if above.contains(&real) || above.len() >= DEEPEST {
        return Err(PromptError::Loop { path: folder.to_owned() });
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
            && distrust.is_of_others()
        {
            return Err(PromptError::Untrusted { path, distrust });
        }
        let metadata = fs::metadata(&path).map_err(failed(&path))?;
        let name = name_of(&path, metadata.is_dir()).ok_or_else(|| PromptError::NoSection { path: path.clone() })?;
        if let Some(first) = seen.insert(name.clone(), path.clone()) {
            return Err(PromptError::Twice { name, first, second: path });
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

/// The name without its order and ending.
fn name_of(path: &Path, is_folder: bool) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let name = if is_folder { name } else { name.strip_suffix(".md")? };
    let name = match name.split_once('-') {
        Some((order, rest)) if !order.is_empty() && order.bytes().all(|byte| byte.is_ascii_digit()) => rest,
        _ => name,
    };
    Some(name.to_owned()).filter(|name| !name.is_empty())
}

fn written(section: &PromptSection, level: usize) -> String {
    let title = format!("{} {}", "#".repeat(level.min(6)), section.name);
    let below = section.sections.iter().map(|section| written(section, level + 1));
    let parts = [title].into_iter().chain(section.text.as_deref().map(|text| text.trim().to_owned())).chain(below);
    parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n\n")
}

/// For a model without tools.
fn how_to_write(tool: &ToolDefinition) -> String {
    format!(
        "You call it by writing, and nothing else in that answer:\n<tool_call>{{\"name\": \"{}\", \"arguments\": {{\"command\": \"...\"}}}}</tool_call>\nIts result comes back to you as the next message.",
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
    fn files_and_folders_are_sections_in_their_order() {
        let folder =
            tree(&[("20-tone.md", "Be brief.\n"), ("10-work/b.md", "B"), ("10-work/a.md", "A"), (".hidden", "x")]);
        let sections = sections(folder.path()).expect("read");
        let prompt = compose(Some("You are Ada."), &sections, None);
        assert!(prompt.starts_with("You are Ada.\n\n"), "{prompt}");
        assert!(prompt.ends_with("# work\n\n## a\n\nA\n\n## b\n\nB\n\n# tone\n\nBe brief."), "{prompt}");
        assert_eq!(find(&sections, "b").expect("by name"), find(&sections, "1.2").expect("by place"));
        assert!(
            matches!(find(&sections, "3"), Err(PromptError::Unknown { known, .. }) if known == ["work", "a", "b", "tone"])
        );
    }

    #[test]
    fn a_name_that_stands_twice_and_a_loop_are_found() {
        let folder = tree(&[("1-a.md", ""), ("x/2-a.md", "")]);
        assert!(matches!(sections(folder.path()), Err(PromptError::Twice { name, .. }) if name == "a"));
        let folder = tree(&[("x/a.md", "")]);
        std::os::unix::fs::symlink(folder.path(), folder.path().join("x/again")).expect("linked");
        assert!(matches!(sections(folder.path()), Err(PromptError::Loop { .. })));
    }

    #[test]
    fn a_file_can_be_edited_and_a_folder_cannot() {
        let folder = tree(&[("x/a.md", "old")]);
        let before = sections(folder.path()).expect("read");
        assert!(matches!(edit(&before, "x", "new"), Err(PromptError::NotALeaf { .. })));
        edit(&before, "a", "new").expect("edited");
        let after = sections(folder.path()).expect("read");
        assert_eq!(find(&after, "a").expect("there").text.as_deref(), Some("new"));
    }
}
