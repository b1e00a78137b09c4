//! The listing: what `list` shows, cached in a file.
//!
//! Loading a catalog compiles every schema and template, and `list` needs neither. So the result is cached with the
//! state of all source files, and used as long as that state is the same. Losing the cache costs a few milliseconds.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use protocol::paths::create_private;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::search::SearchTerms;
use super::{Catalog, LoadProblem, Sources, SourcesStamp};

/// Everything that `list` needs.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Listing {
    stamp: SourcesStamp,
    pub problems: Vec<LoadProblem>,
    /// Ordered by name.
    pub entries: Vec<ListingEntry>,
}

/// One subtool as a model sees it, and its search terms.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ListingEntry {
    pub name: String,
    pub description: String,
    /// Its JSON Schema as text, which is only copied to the output.
    pub input: Box<RawValue>,
    pub terms: SearchTerms,
}

impl ListingEntry {
    pub fn new(name: &str, description: &str, input: &Map<String, Value>, tags: &[String]) -> Self {
        Self {
            name: name.to_owned(),
            description: description.to_owned(),
            input: serde_json::value::to_raw_value(input).expect("a JSON object can be written as JSON"),
            terms: SearchTerms::of(name, description, input, tags),
        }
    }
}

impl Listing {
    /// Returns the listing of `sources`: from `cache` if that is current, otherwise by loading the catalog and updating
    /// the cache. Failing to write the cache is not an error.
    pub fn of(sources: &Sources, cache: &Path) -> Self {
        let stamp = sources.stamp();
        if let Some(listing) = read(cache)
            && listing.stamp == stamp
        {
            return listing;
        }
        let listing = Self::from_catalog(&Catalog::load(sources), stamp);
        let written = write(cache, &listing);
        if let Err(error) = written {
            tracing::debug!(cache = %cache.display(), %error, "failed to cache the listing");
        }
        listing
    }

    fn from_catalog(catalog: &Catalog, stamp: SourcesStamp) -> Self {
        let entries = catalog
            .subtools()
            .map(|subtool| {
                let definition = &subtool.definition;
                ListingEntry::new(subtool.name.as_str(), &definition.description, &definition.input, &definition.tags)
            })
            .collect();
        Self { stamp, problems: catalog.problems().to_vec(), entries }
    }
}

fn read(cache: &Path) -> Option<Listing> {
    serde_json::from_slice(&fs::read(cache).ok()?).ok()
}

fn write(cache: &Path, listing: &Listing) -> std::io::Result<()> {
    let folder = cache.parent().unwrap_or(Path::new("."));
    create_private(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(&serde_json::to_vec(listing)?)?;
    file.persist(cache)?;
    Ok(())
}
