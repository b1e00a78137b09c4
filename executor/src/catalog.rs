//! The catalog: every subtool that may be used here, and what was left out and why.
//!
//! Loaded strictly (`catalog/load.rs`), listed from a cache that knows when it is stale
//! (`catalog/listing.rs`), searched by words (`catalog/search.rs`). One bad file never hides the
//! good ones. Decides nothing about single runs: that is `policy.rs`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::schema::InputSchema;
use crate::subtool::{Definition, SubtoolName};

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
pub use sources::{Sources, Stamp};

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

    /// The names that are most like `name`, the likeliest first.
    pub fn nearest(&self, name: &str) -> Vec<String> {
        nearest(name, self.subtools.keys().map(SubtoolName::as_str), 3)
    }
}

/// At most `count` of `names` that resemble `wanted`, the likeliest first.
pub fn nearest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>, count: usize) -> Vec<String> {
    /// Below this Jaro-Winkler similarity a name is another word, not a slip.
    const RESEMBLES: f64 = 0.75;
    let wanted = wanted.to_lowercase();
    let wanted_sorted = words_sorted(&wanted);
    let mut scored: Vec<_> = names
        .map(|name| {
            let lower = name.to_lowercase();
            let within = if lower.contains(&wanted) || wanted.contains(&lower) { 0.2 } else { 0.0 };
            let as_written = strsim::jaro_winkler(&wanted, &lower);
            // `search_files` means `files_search`, in another order.
            let in_any_order = strsim::jaro_winkler(&wanted_sorted, &words_sorted(&lower));
            (as_written.max(in_any_order) + within, name)
        })
        .filter(|(score, _)| *score >= RESEMBLES)
        .collect();
    scored.sort_by(|(a, a_name), (b, b_name)| b.total_cmp(a).then(a_name.cmp(b_name)));
    scored.into_iter().take(count).map(|(_, name)| name.to_owned()).collect()
}

fn words_sorted(name: &str) -> String {
    let mut words: Vec<_> = name.split(['_', '-']).collect();
    words.sort_unstable();
    words.join("_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_find_the_name_that_was_meant() {
        let names = ["gmail_search_messages", "gmail_send_message", "git_log", "web_search"];
        assert_eq!(nearest("gmial_search_mesages", names.into_iter(), 1), ["gmail_search_messages"]);
        assert_eq!(nearest("search", names.into_iter(), 1), ["web_search"]);
        assert_eq!(nearest("search_web", names.into_iter(), 1), ["web_search"]);
        assert_eq!(nearest("gitlog", names.into_iter(), 1), ["git_log"]);
        assert!(nearest("zzz", names.into_iter(), 3).is_empty());
    }
}
