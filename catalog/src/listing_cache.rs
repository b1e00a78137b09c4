//! The listing of the definitions as they are, in the cache.
//!
//! Loading a catalog checks every schema and template, and `list` needs neither. So the listing is built once for each
//! state of the sources, and what an edit did not change is taken over from the one before.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use definition::Definition;
use definition::run::Run;
use listing::header::{FACT_BYTES, HAS_RELATIVES, Header, NOT_ENGLISH, READ_ONLY, Summary};
use listing::{ListedGroup, Listing, ListingEntry};
use protocol::paths::create_private;
use search::{Document, Index, IndexWriter, Unusable, Verb};

use self::previous::{ListedFile, PreviousListing};
use super::profiles::constant_requirements;
use super::scan::DefinitionFile;
use super::{Catalog, CheckOutcome, Sources, SourcesStamp, Subtool, relatives};

mod previous;

fn entry_of(subtool: &Subtool) -> ListingEntry {
    let definition = &*subtool.definition;
    let mut description = definition.description.clone();
    if definition.needs_reason {
        description.push_str(" Say why with --reason.");
    }
    let program = match &definition.run {
        Run::Process(process) => process.constant_program().map(PathBuf::from),
        _ => None,
    };
    ListingEntry {
        name: subtool.name.as_str().to_owned(),
        description,
        input: serde_json::value::to_raw_value(&definition.input).expect("a JSON object can be written as JSON"),
        is_read_only: definition.runs_in_read_only_sessions(),
        tags: definition.tags.clone(),
        requires: constant_requirements(definition).into_iter().map(str::to_owned).collect(),
        is_admin: definition.admin,
        secrets: definition.secrets().into_iter().collect(),
        program,
        lacks_server: definition.lacks_server(),
    }
}

/// What the index knows of a subtool.
pub(super) fn document<'a>(name: &'a str, definition: &'a Definition) -> Document<'a> {
    let Definition { description, phrases, tags, input, .. } = definition;
    Document { name, description, phrases, tags, verb: verb_of(definition), input }
}

/// What a subtool does, unless its name says it.
pub fn verb_of(definition: &Definition) -> Option<Verb> {
    match &definition.run {
        // As in `delete_preview`, a name may have the verb of what is only looked at.
        _ if definition.annotations.read_only_hint => Some(Verb::Read),
        Run::Http(http) => Verb::of_http_method(http.method.as_str()),
        _ => None,
    }
}

/// How often a listing is built again if its file turns out to be damaged.
const MAX_REBUILDS: usize = 2;

/// Gives `read` the listing of `sources`: from `cache` if that is current, otherwise from a new one, which replaces
/// it. A file that turns out to be damaged is built again. Failing to write the cache is not an error.
pub fn read<T>(sources: &Sources, cache: &Path, read: impl Fn(&Listing) -> Result<T, Unusable>) -> Result<T, Unusable> {
    let current = open(cache, &sources.stamp()).and_then(|listing| read(&listing));
    match current {
        Ok(found) => return Ok(found),
        Err(Unusable::Io(error)) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => tracing::debug!(cache = %cache.display(), %error, "the listing is built again"),
    }
    let mut outcome = Err(Unusable::Foreign);
    for _ in 0..MAX_REBUILDS {
        outcome = build(sources, cache).and_then(|listing| read(&listing));
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

/// Opens the listing in `cache`, if it is that of `stamp`.
fn open(cache: &Path, stamp: &SourcesStamp) -> Result<Listing, Unusable> {
    let listing = Listing::open(cache)?;
    if listing.stamp() == stamp.digest() { Ok(listing) } else { Err(Unusable::Damaged("the definitions changed")) }
}

/// Reads the definitions that changed, and replaces the file. If that cannot be written, the listing lies in memory.
fn build(sources: &Sources, cache: &Path) -> Result<Listing, Unusable> {
    let catalog = Catalog::load(sources);
    let previous = previous::open(cache);
    let folder = cache.parent().unwrap_or(Path::new("."));
    let written = create_private(folder).and_then(|()| {
        // Unlinked when dropped, so that no interrupted command leaves half a file behind.
        let file = tempfile::NamedTempFile::new_in(folder)?;
        let mut output = io::BufWriter::with_capacity(1 << 20, file);
        write_index(&catalog, previous.as_ref(), &mut output)?;
        output.flush()?;
        let file = output.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.persist(cache)?;
        Ok(())
    });
    match written {
        Ok(()) => open(cache, catalog.stamp()),
        Err(error) => {
            tracing::debug!(cache = %cache.display(), %error, "failed to keep the listing");
            let mut bytes = Vec::new();
            write_index(&catalog, None, &mut bytes)?;
            Listing::of(Index::from_bytes(bytes)?)
        }
    }
}

/// The most groups that two bytes can tell apart. What is beyond is in the last one.
const MAX_GROUPS: usize = u16::MAX as usize;

fn flags_of(subtool: &Subtool, entry: &ListingEntry) -> u8 {
    let flag = |holds: bool, flag: u8| if holds { flag } else { 0 };
    flag(entry.is_read_only, READ_ONLY)
        | flag(!entry.description.is_ascii(), NOT_ENGLISH)
        | flag(!relatives(&subtool.definition).is_empty(), HAS_RELATIVES)
}

/// Writes the index of `catalog`. Takes over from `previous` what cannot have changed.
fn write_index(catalog: &Catalog, previous: Option<&PreviousListing>, output: &mut impl io::Write) -> io::Result<()> {
    let mut writer = IndexWriter::new(output)?;
    let mut copier = previous.and_then(|previous| previous.copier(catalog));
    let mut summary = Summary { is_english: true, ..Summary::default() };
    summary.problems = catalog.problems().to_vec();
    // By name, as the index numbers them.
    let mut facts: BTreeMap<String, [u8; FACT_BYTES]> = BTreeMap::new();
    let mut files = Vec::new();
    for (number, file) in catalog.files().iter().enumerate() {
        let group = group_of(file, &mut summary.groups);
        let known = summary.problems.len();
        for definition in file.definitions(number) {
            let taken_over = copier.as_mut().and_then(|copier| copier.copy(catalog, definition, &mut writer));
            let flags = match taken_over {
                Some(flags) => flags,
                None => match catalog.check_definition(definition) {
                    CheckOutcome::Usable(subtool) => {
                        let entry = entry_of(&subtool);
                        let document = document(subtool.name.as_str(), &subtool.definition);
                        writer.add(&document, &serde_json::to_vec(&entry)?)?;
                        flags_of(&subtool, &entry)
                    }
                    CheckOutcome::Hidden => continue,
                    CheckOutcome::Broken(problems) => {
                        summary.problems.extend(problems);
                        continue;
                    }
                },
            };
            summary.is_english &= flags & NOT_ENGLISH == 0;
            summary.groups[group].subtools += 1;
            let [low, high] = u16::try_from(group).unwrap_or(u16::MAX).to_le_bytes();
            facts.insert(catalog.name(definition).as_str().to_owned(), [flags, low, high]);
        }
        files.push(ListedFile::of(file, summary.problems.len() == known));
    }
    summary.problems = catalog.once_per_pack(std::mem::take(&mut summary.problems));
    let header = Header {
        stamp: catalog.listing_stamp(),
        base: catalog.stamp().base_digest(),
        facts: facts.into_values().flatten().collect(),
        files: serde_json::to_vec(&files)?,
        summary,
    };
    writer.finish(&header.encode())?;
    Ok(())
}

/// Returns the place of the group of `file` in `groups`, to which it is added if it is new.
fn group_of(file: &DefinitionFile, groups: &mut Vec<ListedGroup>) -> usize {
    let name = file.group();
    let known = groups.iter().position(|known| known.name == name);
    let place = known.unwrap_or_else(|| {
        let about = file.pack.as_ref().map(|pack| pack.manifest.description.clone());
        groups.push(ListedGroup { name, about, subtools: 0 });
        groups.len() - 1
    });
    place.min(MAX_GROUPS)
}
