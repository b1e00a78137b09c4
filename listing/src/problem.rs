//! What could not be loaded, and why.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use protocol::wording::counted;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

/// A file, subtool or setting that could not be loaded.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadProblem {
    pub file: String,
    pub subtool: Option<String>,
    /// The location in the file: a path of keys like `run.http.method`, or a line and column.
    pub place: Option<String>,
    pub message: String,
    /// How many definitions of the file it leaves out, if it stands for several.
    pub count: Option<usize>,
}

impl fmt::Display for LoadProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if let Some(subtool) = &self.subtool {
            write!(f, ": {subtool}")?;
        }
        if let Some(place) = &self.place {
            write!(f, ": {place}")?;
        }
        write!(f, ": {}", self.message)
    }
}

/// Says which definitions could not be loaded, by file; `None` if all were loaded.
pub fn left_out(problems: &[LoadProblem]) -> Option<String> {
    const MAX_FILES: usize = 3;
    let mut files: BTreeMap<&str, (BTreeSet<Option<&str>>, usize)> = BTreeMap::new();
    for problem in problems {
        let (subtools, count) = files.entry(&problem.file).or_default();
        match problem.count {
            Some(several) => *count += several,
            None => drop(subtools.insert(problem.subtool.as_deref())),
        }
    }
    let mut named: Vec<_> = files
        .iter()
        .take(MAX_FILES)
        .map(|(file, (subtools, count))| {
            if subtools.contains(&None) {
                format!("all of {file}")
            } else {
                format!("{} of {file}", counted(subtools.len() + count, "definition"))
            }
        })
        .collect();
    if files.len() > MAX_FILES {
        named.push(format!("and something in {}", counted(files.len() - MAX_FILES, "more file")));
    }
    (!named.is_empty()).then(|| format!("left out: {}", named.join(", ")))
}
