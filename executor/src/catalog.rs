//! The catalog: every subtool that may be used here, and what was left out and why.
//!
//! Loaded strictly (`catalog/load.rs`), listed from a cache that knows when it is stale
//! (`catalog/listing.rs`), searched by words (`catalog/search.rs`). One bad file never hides the
//! good ones. Decides nothing about single runs: that is `policy.rs`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use protocol::nearest::nearest;
use protocol::tool_scope::ToolScope;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::base::schema::InputSchema;
use crate::catalog::definition::Definition;
use crate::model::provider::ToolDefinition;
use crate::runner::delegation::SubtoolDirectory;
use crate::task::name::SubtoolName;

pub mod definition;
mod dependencies;
mod file_keys;
pub mod format;
pub mod lint;
pub mod listing;
mod load;
mod reading;
pub mod search;
mod sources;

pub use load::{Pack, SHIPPED};
pub use sources::{Sources, SourcesStamp};

/// Every usable subtool by its name.
#[derive(Debug, Default)]
pub struct Catalog {
    subtools: BTreeMap<SubtoolName, Subtool>,
    problems: Vec<LoadProblem>,
}

/// A subtool that was loaded, with all that was derived from its definition once.
#[derive(Debug, Clone)]
pub struct Subtool {
    pub name: SubtoolName,
    pub definition: Arc<Definition>,
    pub schema: Arc<InputSchema>,
    pub origin: Origin,
    /// SHA-256 of the merged definition, in hex: a changed definition is another subtool.
    pub hash: String,
}

/// Where a definition was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// A pack that ships with this program.
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

/// Something that could not be loaded and was left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadProblem {
    pub file: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub subtool: Option<String>,
    /// Where in the file: a path of keys like `run.http.method`, or a line and column.
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

impl Catalog {
    /// Reads everything that `sources` names.
    pub fn load(sources: &Sources) -> Self {
        load::load(sources)
    }

    pub fn get(&self, name: &str) -> Option<&Subtool> {
        self.subtools.get(name)
    }

    /// All subtools, by name.
    pub fn subtools(&self) -> impl Iterator<Item = &Subtool> {
        self.subtools.values()
    }

    pub fn problems(&self) -> &[LoadProblem] {
        &self.problems
    }

    /// The names within `tool_scope` that are most like `name`, the likeliest first.
    pub fn nearest(&self, name: &str, tool_scope: &ToolScope) -> Vec<String> {
        nearest(name, self.subtools.keys().map(SubtoolName::as_str).filter(|known| tool_scope.covers(known)), 3)
    }
}

/// The catalog as it is now, whenever it is asked.
impl SubtoolDirectory for watch::Receiver<Arc<Catalog>> {
    fn find(&self, name: &str, scope: &ToolScope) -> Result<ToolDefinition, Vec<String>> {
        let catalog = self.borrow();
        let found = catalog.get(name).filter(|_| scope.covers(name));
        let Some(Subtool { definition, .. }) = found else { return Err(catalog.nearest(name, scope)) };
        let (description, parameters) = (definition.description.clone(), definition.input.clone().into());
        Ok(ToolDefinition { name: name.to_owned(), description, parameters })
    }
}
