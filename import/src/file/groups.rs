//! Which definitions lie in which file: one file for a small pack, one for each group of a large one.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::ImportedSubtool;

/// The largest file that is comfortable to read and edit. The loader takes 16 MiB.
const COMFORTABLE_BYTES: usize = 512 << 10;
/// A group with fewer subtools shares the file of the pack.
const MIN_GROUP: usize = 3;

/// The definitions of one file.
#[derive(Debug)]
pub struct GroupedFile {
    /// The name of the file, without `.json`.
    pub name: String,
    /// What its definitions share.
    pub defaults: Map<String, Value>,
    pub subtools: Vec<ImportedSubtool>,
}

/// Distributes `subtools` to files. What all definitions of a file have in common goes into its defaults.
pub fn grouped(pack: &str, defaults: &Map<String, Value>, subtools: Vec<ImportedSubtool>) -> Vec<GroupedFile> {
    let bytes = |subtools: &[ImportedSubtool]| subtools.iter().map(size).sum::<usize>();
    let mut files: BTreeMap<String, Vec<ImportedSubtool>> = BTreeMap::new();
    if bytes(&subtools) <= COMFORTABLE_BYTES {
        files.insert(pack.to_owned(), subtools);
    } else {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for subtool in &subtools {
            *counts.entry(subtool.group.clone()).or_default() += 1;
        }
        for subtool in subtools {
            let group = crate::names::words(&subtool.group).join("-");
            let is_own = !group.is_empty() && group != pack && counts[&subtool.group] >= MIN_GROUP;
            let name = if is_own { format!("{pack}-{group}") } else { pack.to_owned() };
            files.entry(name).or_default().push(subtool);
        }
    }
    let mut grouped = Vec::new();
    for (name, subtools) in files {
        for (index, part) in parts(subtools).into_iter().enumerate() {
            let name = if index == 0 { name.clone() } else { format!("{name}-{}", index + 1) };
            grouped.push(with_defaults(name, defaults, part));
        }
    }
    grouped
}

/// Cuts a group that is too large for one file into several.
fn parts(subtools: Vec<ImportedSubtool>) -> Vec<Vec<ImportedSubtool>> {
    const MAX_BYTES: usize = 4 << 20;
    let mut parts: Vec<Vec<ImportedSubtool>> = vec![Vec::new()];
    let mut bytes = 0;
    for subtool in subtools {
        bytes += size(&subtool);
        if bytes > MAX_BYTES {
            parts.push(Vec::new());
            bytes = size(&subtool);
        }
        parts.last_mut().expect("it begins with one part").push(subtool);
    }
    parts
}

/// About how many bytes a definition takes in a file.
fn size(subtool: &ImportedSubtool) -> usize {
    // Indented JSON is about twice as large.
    2 * Value::Object(subtool.definition.clone()).to_string().len()
}

/// Makes a file of `subtools`. What all of them have in common goes into its defaults.
pub fn with_defaults(name: String, defaults: &Map<String, Value>, mut subtools: Vec<ImportedSubtool>) -> GroupedFile {
    let mut defaults = defaults.clone();
    let first = subtools.first().and_then(|subtool| subtool.definition.get("tags")).cloned();
    if let Some(tags) = first.filter(|tags| subtools.iter().all(|subtool| subtool.definition.get("tags") == Some(tags)))
    {
        defaults.insert("tags".to_owned(), tags);
    }
    let shared = defaults.get("tags").cloned();
    for subtool in &mut subtools {
        if shared.is_some() && subtool.definition.get("tags") == shared.as_ref() {
            subtool.definition.remove("tags");
        }
    }
    GroupedFile { name, defaults, subtools }
}
