//! The listing: what `list` shows, cached in a file.
//!
//! Loading a catalog compiles every schema and template, and `list` needs neither. So the result is cached with the
//! state of all source files, and used as long as that state is the same. Losing the cache costs a few milliseconds.

use std::io::Write as _;
use std::path::Path;

use protocol::paths::create_private;
use protocol::regular_file;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::search::SearchTerms;
use super::{Catalog, CheckOutcome, LoadProblem, Origin, Sources, SourcesStamp, Subtool};

/// Everything that `list` needs.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Listing {
    stamp: SourcesStamp,
    pub problems: Vec<LoadProblem>,
    /// The packs and files, without an extension.
    pub groups: Vec<String>,
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
    /// The index of its pack or file in [`Listing::groups`]. Short keys, because reading the listing is most of `list`.
    #[serde(rename = "g")]
    pub group: usize,
    /// Whether a session that is restricted to reading may run it.
    #[serde(rename = "r", default, skip_serializing_if = "std::ops::Not::not")]
    pub is_read_only: bool,
    /// The names of the secrets without which it cannot run.
    #[serde(rename = "s", default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
}

impl ListingEntry {
    pub fn new(name: &str, description: &str, input: &Map<String, Value>, tags: &[String]) -> Self {
        Self {
            name: name.to_owned(),
            description: description.to_owned(),
            input: serde_json::value::to_raw_value(input).expect("a JSON object can be written as JSON"),
            terms: SearchTerms::of(name, description, input, tags),
            group: 0,
            is_read_only: false,
            secrets: Vec::new(),
        }
    }

    fn of(subtool: &Subtool, groups: &mut Vec<String>) -> Self {
        let group = match &subtool.origin {
            Origin::Pack(name) => name.clone(),
            Origin::File(path) => path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        };
        let group = groups.iter().position(|known| *known == group).unwrap_or_else(|| {
            groups.push(group);
            groups.len() - 1
        });
        let definition = &*subtool.definition;
        let mut description = definition.description.clone();
        if definition.needs_reason {
            description.push_str(" Say why with --reason.");
        }
        Self {
            group,
            is_read_only: definition.runs_in_read_only_sessions(),
            secrets: definition.secrets().into_iter().collect(),
            ..Self::new(subtool.name.as_str(), &description, &definition.input, &definition.tags)
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
        let listing = Self::from_catalog(&Catalog::load(sources));
        let written = write(cache, &listing);
        if let Err(error) = written {
            tracing::debug!(cache = %cache.display(), %error, "failed to cache the listing");
        }
        listing
    }

    fn from_catalog(catalog: &Catalog) -> Self {
        let (mut groups, mut entries, mut problems) = (Vec::new(), Vec::new(), catalog.problems().to_vec());
        for (_, checked) in catalog.check() {
            match checked {
                CheckOutcome::Usable(subtool) => entries.push(ListingEntry::of(&subtool, &mut groups)),
                CheckOutcome::Hidden => {}
                CheckOutcome::Broken(found) => problems.extend(found),
            }
        }
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        Self { stamp: catalog.stamp().clone(), problems, groups, entries }
    }
}

/// Far more than the listing of any catalog.
const MAX_CACHE_BYTES: u64 = 256 << 20;

fn read(cache: &Path) -> Option<Listing> {
    serde_json::from_slice(&regular_file::read(cache, MAX_CACHE_BYTES).ok()?).ok()
}

fn write(cache: &Path, listing: &Listing) -> std::io::Result<()> {
    let folder = cache.parent().unwrap_or(Path::new("."));
    create_private(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(&serde_json::to_vec(listing)?)?;
    file.persist(cache)?;
    Ok(())
}
