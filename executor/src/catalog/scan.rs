//! Scans definition files: finds which subtools each defines and where in the file, and reads only the file's own keys.
//!
//! A catalog of thousands of subtools is scanned in the time that reading its files takes. What is wrong within a
//! definition is found when the definition is loaded (`load.rs`).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::Read as _;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use aho_corasick::AhoCorasick;
use protocol::json::{self, JsonError, JsonLimits, RawMember};
use protocol::mailbox::is_resource_exhaustion;
use protocol::nearest::{did_you_mean, nearest};
use protocol::regular_file;
use serde_json::{Map, Value};

use super::file_keys::FileKeys;
use super::file_state::FileState;
use super::packs::Pack;
use super::sources::SourceFile;
use super::{DefinitionId, LoadProblem, Origin, Sources, SourcesStamp};
use crate::task::name::SubtoolName;

/// The largest accepted definition file. The definitions of Google's largest API take about 3 MB.
pub(super) const MAX_FILE_BYTES: u64 = 16 << 20;

/// The key, or an escape of one of its characters.
static RATE_LIMIT: LazyLock<AhoCorasick> = LazyLock::new(|| {
    AhoCorasick::new(["rate_limit", "\\u005", "\\u006", "\\u007"]).expect("four short patterns can be compiled")
});

/// A definition file, or the pack that ships, whose own keys are valid.
#[derive(Debug)]
pub struct DefinitionFile {
    pub origin: Origin,
    /// The state in which the file was scanned; `None` for a pack.
    pub stamp: Option<FileState>,
    pub(super) defaults: Arc<Map<String, Value>>,
    /// In the order of the file.
    pub(super) definitions: Vec<ScannedDefinition>,
}

impl DefinitionFile {
    /// The names that it defines, also of those with mistakes.
    pub fn names(&self) -> impl Iterator<Item = &SubtoolName> {
        self.definitions.iter().map(|definition| &definition.name)
    }

    /// The definitions of this file, which is the catalog's with this index.
    pub(super) fn definitions(&self, file: usize) -> impl Iterator<Item = DefinitionId> {
        let file = u32::try_from(file).expect("memory holds fewer files");
        (0..).zip(&self.definitions).map(move |(number, _)| DefinitionId { file, number })
    }
}

/// Where a definition is.
#[derive(Debug)]
pub(super) struct ScannedDefinition {
    pub(super) name: SubtoolName,
    pub(super) start: u32,
    pub(super) length: u32,
    /// Whether its text contains the key `rate_limit`, or may contain it with a letter as an escape.
    pub(super) may_limit_rate: bool,
}

/// Changes of shipped subtools by name, with the files that they are in.
pub(super) type Overrides = BTreeMap<String, (Origin, Map<String, Value>)>;

/// All definition files of some sources.
#[derive(Debug)]
pub(super) struct Scan {
    pub(super) stamp: SourcesStamp,
    /// The packs, then the files in the order of the search path.
    pub(super) files: Vec<DefinitionFile>,
    pub(super) overrides: Overrides,
    pub(super) problems: Vec<LoadProblem>,
    /// Whether descriptors or memory ran out meanwhile.
    pub(super) is_incomplete: bool,
}

/// One file and what else was found in it.
pub(super) struct ScannedFile {
    pub(super) file: Option<DefinitionFile>,
    overrides: Map<String, Value>,
    pub(super) problems: Vec<LoadProblem>,
    is_incomplete: bool,
}

pub(super) fn scan(sources: &Sources) -> Scan {
    let found = sources.files();
    let stamp = sources.stamp_of(&found);
    let mut problems = found.problems;
    let (mut scanned, mut overrides) = (Vec::new(), Overrides::new());
    for pack in sources.packs() {
        scanned.push(scan_pack(pack));
    }
    let mut buffer = Vec::new();
    for SourceFile { path, .. } in found.trusted {
        scanned.push(scan_file(&path, &mut buffer));
    }
    let mut files = Vec::new();
    let is_incomplete = scanned.iter().any(|found| found.is_incomplete);
    for found in scanned {
        problems.extend(found.problems);
        let Some(file) = found.file else { continue };
        for (name, changes) in found.overrides {
            let Value::Object(changes) = changes else { continue };
            match overrides.entry(name) {
                Entry::Vacant(vacant) => drop(vacant.insert((file.origin.clone(), changes))),
                Entry::Occupied(first) => {
                    let message = format!("it is already overridden by {}; merge the two", first.get().0);
                    problems.push(problem(&file.origin, None, Some(format!("$overrides.{}", first.key())), message));
                }
            }
        }
        files.push(file);
    }
    problems.extend(unused_overrides(&mut overrides, &files));
    Scan { stamp, files, overrides, problems, is_incomplete }
}

fn scan_pack(pack: &Pack) -> ScannedFile {
    scan_text(Origin::Pack(pack.name.to_owned()), None, pack.text.as_bytes())
}

/// Scans the file at `path` as it is now. `buffer` is for its text.
pub(super) fn scan_file(path: &Path, buffer: &mut Vec<u8>) -> ScannedFile {
    let origin = Origin::File(path.to_owned());
    let failed = |message, is_incomplete| ScannedFile {
        file: None,
        overrides: Map::new(),
        problems: vec![problem(&Origin::File(path.to_owned()), None, None, message)],
        is_incomplete,
    };
    let too_large = |size: u64| failed(format!("the file has {size} bytes; the limit is {MAX_FILE_BYTES}"), false);
    buffer.clear();
    let read = regular_file::open(path).and_then(|file| {
        let stamp = FileState::of_file(&file)?;
        // One more, to notice a file that grows meanwhile.
        file.take(MAX_FILE_BYTES.min(stamp.size()) + 1).read_to_end(buffer)?;
        Ok(stamp)
    });
    match read {
        Err(error) => failed(format!("failed to read it: {error}"), is_resource_exhaustion(&error)),
        Ok(stamp) if stamp.size() > MAX_FILE_BYTES => too_large(stamp.size()),
        Ok(stamp) => scan_text(origin, Some(stamp), buffer),
    }
}

fn scan_text(origin: Origin, stamp: Option<FileState>, text: &[u8]) -> ScannedFile {
    let mut problems = Vec::new();
    let file = match members(text) {
        Ok(members) => read_members(members, text, origin, stamp, &mut problems),
        Err((place, message)) => {
            problems.push(problem(&origin, None, place, message));
            None
        }
    };
    let (file, overrides) = file.map_or((None, Map::new()), |(file, overrides)| (Some(file), overrides));
    ScannedFile { file, overrides, problems, is_incomplete: false }
}

fn members(text: &[u8]) -> Result<Vec<RawMember<'_>>, (Option<String>, String)> {
    match json::members(text) {
        Ok(Some(members)) => Ok(members),
        Ok(None) => Err((None, "a definition file must be a JSON object".to_owned())),
        Err(error) => Err((Some(line_and_column(&error)), error.message)),
    }
}

/// Returns the file and its overrides; `None` if its own keys have mistakes, which may affect every subtool of it.
fn read_members(
    members: Vec<RawMember<'_>>,
    text: &[u8],
    origin: Origin,
    stamp: Option<FileState>,
    problems: &mut Vec<LoadProblem>,
) -> Option<(DefinitionFile, Map<String, Value>)> {
    let (own, members): (Vec<_>, Vec<_>) = members.into_iter().partition(|member| member.key.starts_with('$'));
    let mut keys = Vec::new();
    for member in own {
        match json::parse_within(member.text.as_bytes(), JsonLimits::DEFINITIONS) {
            Ok(value) => keys.push((member.key, value)),
            Err(error) => {
                let error = error.after(&text[..member.start]);
                problems.push(problem(&origin, None, Some(line_and_column(&error)), error.message));
                return None;
            }
        }
    }
    let FileKeys { defaults, namespace, overrides, mistakes } = FileKeys::of(keys);
    if !mistakes.is_empty() {
        problems.extend(mistakes.into_iter().map(|(place, message)| problem(&origin, None, Some(place), message)));
        return None;
    }
    let mut definitions = Vec::with_capacity(members.len());
    for RawMember { key, text, start } in members {
        let name = format!("{namespace}{key}");
        match name.parse::<SubtoolName>() {
            Ok(name) => definitions.push(ScannedDefinition {
                name,
                start: u32::try_from(start).expect("a file is smaller than 4 GiB"),
                length: u32::try_from(text.len()).expect("a file is smaller than 4 GiB"),
                may_limit_rate: RATE_LIMIT.is_match(text),
            }),
            Err(error) => problems.push(problem(&origin, Some(&name), None, error.to_string())),
        }
    }
    Some((DefinitionFile { origin, stamp, defaults: Arc::new(defaults), definitions }, overrides))
}

/// Removes the overrides of what no pack defines, and returns a problem for each.
fn unused_overrides(overrides: &mut Overrides, files: &[DefinitionFile]) -> Vec<LoadProblem> {
    let packs = files.iter().filter(|file| matches!(file.origin, Origin::Pack(_)));
    let known: Vec<_> = packs.flat_map(|pack| &pack.definitions).map(|found| found.name.as_str()).collect();
    let mut problems = Vec::new();
    overrides.retain(|name, (origin, _)| {
        if known.contains(&name.as_str()) {
            return true;
        }
        let hint = did_you_mean(nearest(name, known.iter().copied(), 1)).map(|hint| format!("; {hint}"));
        let message = format!("no shipped subtool named `{name}`{}", hint.unwrap_or_default());
        problems.push(problem(origin, None, Some(format!("$overrides.{name}")), message));
        false
    });
    problems
}

pub(super) fn line_and_column(error: &JsonError) -> String {
    format!("line {} column {}", error.line, error.column)
}

pub(super) fn problem(
    origin: &Origin,
    subtool: Option<&str>,
    place: Option<String>,
    message: impl Into<String>,
) -> LoadProblem {
    LoadProblem { file: origin.to_string(), subtool: subtool.map(str::to_owned), place, message: message.into() }
}
