//! The listing: what `list` shows of all subtools, and the index that finds them, in one file.
//!
//! The crate `catalog` writes it, once for each state of the definitions. A reader needs neither the definitions nor
//! what checks them, and reads only what it prints. Losing the file costs the time to build it again. It is never trusted
//! with more than what is shown: what runs is read from the definitions themselves.

use std::fs::File;
use std::path::{Path, PathBuf};

use search::{Hit, Index, LearnedRequests, MatchedWords, Unusable};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use self::header::{FACT_BYTES, Header, READ_ONLY, Summary};
use self::problem::LoadProblem;

pub mod header;
pub mod learned;
pub mod problem;
pub mod rights;

/// The listing of the definitions as they are.
#[derive(Debug)]
pub struct Listing {
    index: Index,
    summary: Summary,
    facts: Vec<u8>,
    stamp: Stamp,
}

/// A pack, or a file of definitions.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ListedGroup {
    /// The name of the pack, or that of the file without its extension.
    pub name: String,
    /// What its subtools are for, in one line.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub about: Option<String>,
    /// How many subtools it has.
    pub subtools: usize,
}

/// What is known of each subtool without reading its entry: three bytes in the header of the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListedFacts {
    /// Its place in [`Listing::groups`].
    pub group: usize,
    /// Whether a session that is restricted to reading may run it.
    pub is_read_only: bool,
}

/// One subtool as a model sees it.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ListingEntry {
    pub name: String,
    pub description: String,
    /// Its JSON Schema as text, which is only copied to the output.
    pub input: Box<RawValue>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_read_only: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// The privileges that every call of it needs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<String>,
    /// Whether it is only for callers with administrative access.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_admin: bool,
    /// The names of the secrets without which it cannot run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// The program without which it cannot run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<PathBuf>,
    /// Where its server is was not known when it was imported.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lacks_server: bool,
}

impl ListingEntry {
    /// The names of the input fields.
    pub fn fields(&self) -> Vec<String> {
        let input: Value = serde_json::from_str(self.input.get()).unwrap_or_default();
        input["properties"].as_object().map(|fields| fields.keys().cloned().collect()).unwrap_or_default()
    }

    /// The secrets and the program without which it cannot run.
    pub fn needs(&self) -> (&[String], Option<&PathBuf>) {
        (&self.secrets, self.program.as_ref())
    }
}

/// Identifies the state of the definitions that a listing is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp(pub [u8; 32]);

impl Listing {
    /// Opens the listing at `path`, whatever definitions it is of.
    pub fn open(path: &Path) -> Result<Self, Unusable> {
        Self::of(Index::open(path)?)
    }

    /// The listing in a file that is open already.
    pub fn of_file(file: File) -> Result<Self, Unusable> {
        Self::of(Index::from_file(file)?)
    }

    /// The listing in an index.
    pub fn of(index: Index) -> Result<Self, Unusable> {
        let Header { stamp, summary, facts, .. } = Header::decode(&index.header()?)?;
        Ok(Self { index, summary, facts, stamp })
    }

    /// Of which definitions it is.
    pub fn stamp(&self) -> Stamp {
        self.stamp
    }

    /// How many subtools there are. They are numbered in the order of their names.
    pub fn count(&self) -> u32 {
        self.index.document_count()
    }

    pub fn problems(&self) -> &[LoadProblem] {
        &self.summary.problems
    }

    pub fn groups(&self) -> &[ListedGroup] {
        &self.summary.groups
    }

    /// Whether every description is in English, as far as its letters tell.
    pub fn is_english(&self) -> bool {
        self.summary.is_english
    }

    /// The subtools that match `query`, best first.
    pub fn search(&self, query: &str, learned: &LearnedRequests<'_>) -> Result<Vec<Hit>, Unusable> {
        self.index.search(query, learned)
    }

    /// Which words of `query` a subtool has that it found.
    pub fn matched_words(&self, query: &str, hit: &Hit) -> Result<MatchedWords, Unusable> {
        self.index.matched_words(query, hit)
    }

    /// The number of the subtool with this name.
    pub fn find(&self, name: &str) -> Result<Option<u32>, Unusable> {
        let found = self.index.find(name)?;
        if found.is_none() && self.index.names()?.iter().any(|known| known == name) {
            return Err(Unusable::Damaged("a subtool cannot be found by its name"));
        }
        Ok(found)
    }

    pub fn name(&self, number: u32) -> Result<String, Unusable> {
        self.index.name(number)
    }

    pub fn names(&self) -> Result<Vec<String>, Unusable> {
        self.index.names()
    }

    pub fn facts(&self, number: u32) -> ListedFacts {
        let at = number as usize * FACT_BYTES;
        let [flags, low, high] =
            self.facts.get(at..at + FACT_BYTES).and_then(|it| it.try_into().ok()).unwrap_or([0; 3]);
        ListedFacts { group: usize::from(u16::from_le_bytes([low, high])), is_read_only: flags & READ_ONLY != 0 }
    }

    pub fn entry(&self, number: u32) -> Result<ListingEntry, Unusable> {
        serde_json::from_slice(&self.index.payload(number)?).map_err(|_| Unusable::Damaged("an entry is unreadable"))
    }
}
