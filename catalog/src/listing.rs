//! The listing: what `list` shows, and the index that finds it, in one file in the cache.
//!
//! Loading a catalog checks every schema and template, and `list` needs neither. So the listing is built once for each
//! state of the sources, and a command reads only what it prints. Losing the file costs the time to build it again. It
//! is never trusted with more than what is shown: what runs is read from the definitions themselves.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use definition::Definition;
use definition::run::Run;
use protocol::paths::create_private;
use search::{Document, Hit, Index, IndexWriter, LearnedRequests, MatchedWords, Unusable, Verb};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use self::previous::{ListedFile, PreviousListing};
use super::scan::DefinitionFile;
use super::{Catalog, CheckOutcome, LoadProblem, Origin, Sources, SourcesStamp, Subtool, relatives};

mod previous;

/// The listing of the definitions as they are.
#[derive(Debug)]
pub struct Listing {
    index: Index,
    summary: Summary,
    facts: Vec<u8>,
}

/// What is known of all subtools together.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Summary {
    problems: Vec<LoadProblem>,
    groups: Vec<ListedGroup>,
    /// Whether every description is in English, as far as its letters tell.
    is_english: bool,
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
    fn of(subtool: &Subtool) -> Self {
        let definition = &*subtool.definition;
        let mut description = definition.description.clone();
        if definition.needs_reason {
            description.push_str(" Say why with --reason.");
        }
        let program = match &definition.run {
            Run::Process(process) => process.constant_program().map(PathBuf::from),
            _ => None,
        };
        Self {
            name: subtool.name.as_str().to_owned(),
            description,
            input: serde_json::value::to_raw_value(&definition.input).expect("a JSON object can be written as JSON"),
            is_read_only: definition.runs_in_read_only_sessions(),
            secrets: definition.secrets().into_iter().collect(),
            program,
            lacks_server: definition.lacks_server(),
        }
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

impl Listing {
    /// Gives `read` the listing of `sources`: from `cache` if that is current, otherwise from a new one, which replaces
    /// it. A file that turns out to be damaged is built again. Failing to write the cache is not an error.
    pub fn read<T>(
        sources: &Sources,
        cache: &Path,
        read: impl Fn(&Self) -> Result<T, Unusable>,
    ) -> Result<T, Unusable> {
        let current = Self::open(cache, &sources.stamp()).and_then(|listing| read(&listing));
        match current {
            Ok(found) => return Ok(found),
            Err(Unusable::Io(error)) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => tracing::debug!(cache = %cache.display(), %error, "the listing is built again"),
        }
        let mut outcome = Err(Unusable::Foreign);
        for _ in 0..MAX_REBUILDS {
            outcome = Self::build(sources, cache).and_then(|listing| read(&listing));
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    /// Opens the listing in `cache`, if it is that of `stamp`.
    fn open(cache: &Path, stamp: &SourcesStamp) -> Result<Self, Unusable> {
        let index = Index::open(cache)?;
        let header = Header::decode(&index.header()?)?;
        if header.stamp != digest_of(stamp) {
            return Err(Unusable::Damaged("the definitions changed"));
        }
        Ok(Self { index, summary: header.summary, facts: header.facts })
    }

    /// Reads the definitions that changed, and replaces the file. If that cannot be written, the listing lies in memory.
    fn build(sources: &Sources, cache: &Path) -> Result<Self, Unusable> {
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
            Ok(()) => Self::open(cache, catalog.stamp()),
            Err(error) => {
                tracing::debug!(cache = %cache.display(), %error, "failed to keep the listing");
                let mut bytes = Vec::new();
                write_index(&catalog, None, &mut bytes)?;
                let index = Index::from_bytes(bytes)?;
                let header = Header::decode(&index.header()?)?;
                Ok(Self { index, summary: header.summary, facts: header.facts })
            }
        }
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

/// For each subtool its flags, and its group as two bytes.
const FACT_BYTES: usize = 3;
const READ_ONLY: u8 = 1;
/// Its description has letters beyond ASCII.
const NOT_ENGLISH: u8 = 2;
/// It needs other subtools, so whether it can be used depends on them.
const HAS_RELATIVES: u8 = 4;
/// The most groups that two bytes can tell apart. What is beyond is in the last one.
const MAX_GROUPS: usize = u16::MAX as usize;

fn flags_of(subtool: &Subtool, entry: &ListingEntry) -> u8 {
    let flag = |holds: bool, flag: u8| if holds { flag } else { 0 };
    flag(entry.is_read_only, READ_ONLY)
        | flag(!entry.description.is_ascii(), NOT_ENGLISH)
        | flag(!relatives(&subtool.definition).is_empty(), HAS_RELATIVES)
}

/// The header of the index. What every command needs comes first; the files are for the next listing.
struct Header {
    /// The digest of the sources, and of what of them concerns all files.
    stamp: [u8; 32],
    base: [u8; 32],
    facts: Vec<u8>,
    /// The [`ListedFile`]s as JSON.
    files: Vec<u8>,
    summary: Summary,
}

impl Header {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = [self.stamp, self.base].concat();
        for part in [&self.facts, &self.files] {
            bytes.extend(u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes());
            bytes.extend(part);
        }
        bytes.extend(serde_json::to_vec(&self.summary).expect("texts can be written as JSON"));
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Self, Unusable> {
        const DAMAGED: Unusable = Unusable::Damaged("the header is unreadable");
        let part = |bytes| -> Result<(Vec<u8>, &[u8]), Unusable> {
            let (length, rest) = <[u8]>::split_first_chunk::<8>(bytes).ok_or(DAMAGED)?;
            let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| DAMAGED)?;
            let (part, rest) = rest.split_at_checked(length).ok_or(DAMAGED)?;
            Ok((part.to_vec(), rest))
        };
        let (stamp, rest) = bytes.split_first_chunk::<32>().ok_or(DAMAGED)?;
        let (base, rest) = rest.split_first_chunk::<32>().ok_or(DAMAGED)?;
        let (facts, rest) = part(rest)?;
        let (files, summary) = part(rest)?;
        let summary = serde_json::from_slice(summary).map_err(|_| DAMAGED)?;
        Ok(Self { stamp: *stamp, base: *base, facts, files, summary })
    }
}

fn digest_of(stamp: &SourcesStamp) -> [u8; 32] {
    Sha256::digest(serde_json::to_vec(stamp).expect("a stamp can be written as JSON")).into()
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
        let group = summary.group_of(file);
        let known = summary.problems.len();
        for definition in file.definitions(number) {
            let taken_over = copier.as_mut().and_then(|copier| copier.copy(catalog, definition, &mut writer));
            let flags = match taken_over {
                Some(flags) => flags,
                None => match catalog.check_definition(definition) {
                    CheckOutcome::Usable(subtool) => {
                        let entry = ListingEntry::of(&subtool);
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
        stamp: digest_of(catalog.stamp()),
        base: catalog.stamp().base_digest(),
        facts: facts.into_values().flatten().collect(),
        files: serde_json::to_vec(&files)?,
        summary,
    };
    writer.finish(&header.encode())?;
    Ok(())
}

impl Summary {
    /// Returns the place of the group of `file`, which is added if it is new.
    fn group_of(&mut self, file: &DefinitionFile) -> usize {
        let name = match (&file.pack, &file.origin) {
            (Some(pack), _) => pack.name().to_owned(),
            (None, Origin::Pack(name)) => name.clone(),
            (None, Origin::File(path)) => path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        };
        let known = self.groups.iter().position(|known| known.name == name);
        let place = known.unwrap_or_else(|| {
            let about = file.pack.as_ref().map(|pack| pack.manifest.description.clone());
            self.groups.push(ListedGroup { name, about, subtools: 0 });
            self.groups.len() - 1
        });
        place.min(MAX_GROUPS)
    }
}
