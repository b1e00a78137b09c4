//! The catalog: every usable subtool, and the problems of what could not be loaded.
//!
//! `catalog/load.rs` loads it strictly, `catalog/listing.rs` caches the listing, and `catalog/search.rs` searches it.
//! A bad file or definition does not affect the others. Whether a run is allowed is up to `intake/policy.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use globset::Glob;
use protocol::nearest::{did_you_mean, nearest};
use protocol::tool_scope::ToolScope;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::base::schema::InputSchema;
use crate::catalog::definition::Definition;
use crate::model::provider::ToolDefinition;
use crate::runner::delegation::SubtoolDirectory;
use crate::task::name::SubtoolName;

mod check;
pub mod definition;
mod dependencies;
mod deserialize;
pub mod drafts;
mod file_keys;
pub mod format;
pub mod learned;
pub mod lint;
pub mod listing;
mod load;
pub mod privileges;
pub mod search;
mod sources;
mod variables;

pub use load::{Pack, SHIPPED, problems_of_definitions};
pub use sources::{Sources, SourcesStamp};

/// Every usable subtool by its name.
#[derive(Debug, Default)]
pub struct Catalog {
    subtools: BTreeMap<SubtoolName, Subtool>,
    /// The subtools that are defined and that callers may not use.
    hidden: BTreeSet<SubtoolName>,
    problems: Vec<LoadProblem>,
}

/// A loaded subtool, with what is derived from its definition.
#[derive(Debug, Clone)]
pub struct Subtool {
    pub name: SubtoolName,
    pub definition: Arc<Definition>,
    pub schema: Arc<InputSchema>,
    pub origin: Origin,
    /// The file whose `$overrides` changed it.
    pub changed_by: Option<Origin>,
    /// SHA-256 of the name and the merged definition, in hex. An accepted task never runs under another hash.
    pub hash: String,
}

/// Where a definition was read from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// A pack that ships with the program.
    Pack(String),
    File(PathBuf),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pack(name) => write!(f, "built-in pack {name}"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

/// A file, subtool or setting that could not be loaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadProblem {
    pub file: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub subtool: Option<String>,
    /// The location in the file: a path of keys like `run.http.method`, or a line and column.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub place: Option<String>,
    pub message: String,
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
    let mut files: BTreeMap<&str, BTreeSet<Option<&str>>> = BTreeMap::new();
    for problem in problems {
        files.entry(&problem.file).or_default().insert(problem.subtool.as_deref());
    }
    let mut named: Vec<_> = files
        .iter()
        .take(MAX_FILES)
        .map(|(file, subtools)| {
            if subtools.contains(&None) {
                format!("all of {file}")
            } else {
                format!("{} of {file}", counted(subtools.len(), "definition"))
            }
        })
        .collect();
    if files.len() > MAX_FILES {
        named.push(format!("and something in {} more files", files.len() - MAX_FILES));
    }
    (!named.is_empty()).then(|| format!("left out: {}", named.join(", ")))
}

/// A number and its noun: `1 error`, `2 errors`.
pub fn counted(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

impl Catalog {
    /// Loads all definitions of `sources`.
    pub fn load(sources: &Sources) -> Self {
        load::load(sources)
    }

    pub fn get(&self, name: &str) -> Option<&Subtool> {
        self.subtools.get(name)
    }

    /// Whether a subtool of this name is defined that callers may not use.
    pub fn is_hidden(&self, name: &str) -> bool {
        self.hidden.contains(name)
    }

    /// Returns what is wrong with `pattern`, a name or a glob of the configuration, if it matches no defined subtool.
    pub fn unmatched(&self, pattern: &str) -> Option<String> {
        let matcher = Glob::new(pattern).ok()?.compile_matcher();
        let names = || self.subtools.keys().chain(&self.hidden).map(SubtoolName::as_str);
        if names().any(|name| matcher.is_match(name)) {
            return None;
        }
        let hint = did_you_mean(nearest(pattern, names(), 1)).map(|hint| format!("; {hint}")).unwrap_or_default();
        Some(format!("`{pattern}` matches no subtool{hint}"))
    }

    /// Whether a subtool has this tag.
    pub fn has_tag(&self, tag: &str) -> bool {
        self.subtools.values().any(|subtool| subtool.definition.tags.iter().any(|known| known == tag))
    }

    /// Returns all subtools, ordered by name.
    pub fn subtools(&self) -> impl Iterator<Item = &Subtool> {
        self.subtools.values()
    }

    pub fn problems(&self) -> &[LoadProblem] {
        &self.problems
    }

    /// Returns up to three names within `tool_scope` that are most similar to `name`, best first.
    pub fn nearest(&self, name: &str, tool_scope: &ToolScope) -> Vec<String> {
        nearest(name, self.subtools.keys().map(SubtoolName::as_str).filter(|known| tool_scope.covers(known)), 3)
    }
}

/// Always uses the current catalog.
impl SubtoolDirectory for watch::Receiver<Arc<Catalog>> {
    fn find(&self, name: &str, scope: &ToolScope) -> Result<ToolDefinition, Vec<String>> {
        let catalog = self.borrow();
        let found = catalog.get(name).filter(|_| scope.covers(name));
        let Some(Subtool { definition, .. }) = found else { return Err(catalog.nearest(name, scope)) };
        let (description, parameters) = (definition.description.clone(), definition.input.clone().into());
        Ok(ToolDefinition { name: name.to_owned(), description, parameters })
    }
}
