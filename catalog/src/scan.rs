//! Scans definition files: finds which subtools each defines and where in the file, and reads only the file's own keys.
//!
//! A catalog of thousands of subtools is scanned in the time that reading its files takes. What is wrong within a
//! definition is found when the definition is loaded (`load.rs`).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::{ErrorKind, Read as _};
use std::path::Path;
use std::sync::{Arc, LazyLock};

use aho_corasick::AhoCorasick;
use definition::enabled_files::PinnedPack;
use ground::task::name::SubtoolName;
use ground::task::question_key::QUESTION;
use protocol::file_state::FileState;
use protocol::json::{self, JsonError, JsonLimits, RawMember};
use protocol::mailbox::is_resource_exhaustion;
use protocol::nearest::{did_you_mean, nearest};
use protocol::regular_file;
use serde_json::{Map, Value};

use super::file_keys::{FileKeys, merge};
use super::packs::loaded::{EnabledPack, LoadedPack, PackPlace};
use super::packs::manifest::MAX_MANIFEST_BYTES;
use super::sources::{SourceFile, SourceFiles};
use super::{DefinitionId, LoadProblem, Origin, Sources, SourcesStamp};

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
    /// The pack that it belongs to.
    pub(super) pack: Option<Arc<LoadedPack>>,
    pub(super) defaults: Arc<Map<String, Value>>,
    /// In the order of the file.
    pub(super) definitions: Vec<ScannedDefinition>,
}

impl DefinitionFile {
    /// The name of its pack, or that of the file without its extension.
    pub fn group(&self) -> String {
        match (&self.pack, &self.origin) {
            (Some(pack), _) => pack.name().to_owned(),
            (None, Origin::Pack(name)) => name.clone(),
            (None, Origin::File(path)) => path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        }
    }

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

/// Changes of the subtools of packs by name, with the files that they are in.
pub(super) type Overrides = BTreeMap<String, (Origin, Map<String, Value>)>;

/// All definition files of some sources.
#[derive(Debug)]
pub(super) struct Scan {
    pub(super) stamp: SourcesStamp,
    /// The packs that ship, then the files in the order of the search path, then the human's packs.
    pub(super) files: Vec<DefinitionFile>,
    /// The packs whose manifests are valid.
    pub(super) packs: Vec<Arc<LoadedPack>>,
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

/// The text of a file that was scanned before is overwritten.
type TextBuffer = Vec<u8>;

pub(super) fn scan(sources: &Sources) -> Scan {
    let found = sources.files();
    let stamp = sources.stamp_of(&found);
    let SourceFiles { trusted, manifests, enabled, mut problems, .. } = found;
    let mut buffer = TextBuffer::new();
    let (mut scanned, mut packs) = (Vec::new(), Vec::new());
    for pack in sources.packs() {
        if let PackPlace::Shipped(shipped) = &pack.place {
            let scan = |buffer: &mut TextBuffer| {
                buffer.clear();
                buffer.extend_from_slice(shipped.text.as_bytes());
                scan_text(Origin::Pack(shipped.name.to_owned()), None, buffer)
            };
            let found = scan_pack(pack, shipped.manifest, None, [scan], &mut buffer);
            packs.extend(found.pack);
            scanned.extend(found.files);
            problems.extend(found.problems);
        }
    }
    let mut of_packs = Vec::new();
    for SourceFile { path, pack, .. } in trusted {
        match pack {
            None => scanned.push(scan_file(&path, &mut buffer)),
            Some(pack) => of_packs.push((pack, path)),
        }
    }
    for SourceFile { path, pack, .. } in manifests {
        let Some((index, pack)) = pack.and_then(|index| Some((index, sources.packs().get(index)?))) else { continue };
        let manifest = match regular_file::read_text(&path, MAX_MANIFEST_BYTES) {
            Ok(manifest) => manifest,
            Err(error) => {
                let what =
                    if error.kind() == ErrorKind::NotFound { "a pack needs this file" } else { "failed to read it" };
                problems.push(pack.problem(None, format!("{what}: {error}")));
                continue;
            }
        };
        let own = of_packs.iter().filter(|(owner, _)| *owner == index);
        let scans = own.map(|(_, path)| |buffer: &mut TextBuffer| scan_file(path, buffer));
        let PackPlace::Folder(folder) = &pack.place else { continue };
        let pinned = enabled.pack(&pack.name, folder).map(Arc::new);
        let mut found = scan_pack(pack, &manifest, pinned.clone(), scans, &mut buffer);
        // Compared after it was read: what is read later is read only if it has not changed since.
        let refusal = match &pinned {
            Some(pinned) => pinned.refusal(),
            None => found.problems.is_empty().then(|| not_enabled(&pack.name)),
        };
        if let Some(refusal) = refusal {
            found = ScannedPack { problems: vec![pack.problem(None, refusal)], ..ScannedPack::default() };
        }
        packs.extend(found.pack);
        scanned.extend(found.files);
        problems.extend(found.problems);
    }
    let mut overrides = Overrides::new();
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
    Scan { stamp, files, packs, overrides, problems, is_incomplete }
}

/// Why a pack is off that only the configuration enables: no one has said which content of it may run.
fn not_enabled(name: &str) -> String {
    format!(
        "the configuration enables the pack, but no one has enabled its files as they are now, so it is off; look at it \
         with `agent-magic-tool pack info {name}`, and enable it with `agent-magic-tool pack enable {name}`"
    )
}

/// What was found of one pack. Without a pack there are no files.
#[derive(Default)]
struct ScannedPack {
    pack: Option<Arc<LoadedPack>>,
    files: Vec<ScannedFile>,
    problems: Vec<LoadProblem>,
}

/// Scans the files of a pack, each with one of `scans`, if its `manifest` is valid and fits them. A file with mistakes is
/// left out; with a mistake in the manifest, all are.
fn scan_pack(
    pack: &EnabledPack,
    manifest: &str,
    pinned: Option<Arc<PinnedPack>>,
    scans: impl IntoIterator<Item = impl FnOnce(&mut TextBuffer) -> ScannedFile>,
    buffer: &mut TextBuffer,
) -> ScannedPack {
    let loaded = match pack.load(manifest) {
        Ok(mut loaded) => {
            loaded.pinned = pinned;
            Arc::new(loaded)
        }
        Err(problems) => return ScannedPack { problems, ..ScannedPack::default() },
    };
    let health = loaded.manifest.health.as_ref().map(|health| health.subtool.as_str());
    let (mut files, mut is_read_only) = (Vec::new(), true);
    for scan in scans {
        let mut found = scan(buffer);
        if let Some(file) = &mut found.file {
            file.pack = Some(Arc::clone(&loaded));
            let checked = file.definitions.iter().find(|definition| Some(definition.name.as_str()) == health);
            // A second definition of the name may be the one that counts.
            is_read_only &= checked.is_none_or(|definition| declares_read_only(file, definition, buffer));
            for name in std::mem::take(&mut found.overrides).keys() {
                let message = "a pack cannot change the subtools of others; a file of the folder `subtools` can";
                found.problems.push(problem(&file.origin, None, Some(format!("$overrides.{name}")), message));
            }
        }
        files.push(found);
    }
    let known: Vec<_> = files.iter().filter_map(|found| found.file.as_ref()).flat_map(DefinitionFile::names).collect();
    let names: Vec<_> = known.into_iter().map(SubtoolName::as_str).collect();
    // What is missing may be in a file that was left out.
    let is_whole = files.iter().all(|found| found.problems.is_empty());
    let problems = if is_whole { loaded.mistakes(pack, &names, |_| is_read_only) } else { Vec::new() };
    if problems.is_empty() {
        ScannedPack { pack: Some(loaded), files, problems }
    } else {
        ScannedPack { problems, ..ScannedPack::default() }
    }
}

/// Whether the annotations of a definition in `text` say that it changes nothing, and it delegates nothing, of which they
/// say nothing.
fn declares_read_only(file: &DefinitionFile, definition: &ScannedDefinition, text: &[u8]) -> bool {
    let (start, length) = (definition.start as usize, definition.length as usize);
    let own = text.get(start..start + length).and_then(|own| json::parse_within(own, JsonLimits::DEFINITIONS).ok());
    let Some(Value::Object(own)) = own else { return false };
    let merged = merge(Map::clone(&file.defaults), own);
    let delegates = merged.get("run").is_some_and(|run| {
        ["agent", "steps", "script"].iter().any(|kind| run.get(kind).is_some()) || !run["llm"]["tool"].is_null()
    });
    !delegates && merged.get("annotations").is_some_and(|annotations| annotations["readOnlyHint"] == true)
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
        match name.parse::<SubtoolName>().map_err(|error| error.to_string()).and_then(unreserved) {
            Ok(name) => definitions.push(ScannedDefinition {
                name,
                start: u32::try_from(start).expect("a file is smaller than 4 GiB"),
                length: u32::try_from(text.len()).expect("a file is smaller than 4 GiB"),
                may_limit_rate: RATE_LIMIT.is_match(text),
            }),
            Err(message) => problems.push(problem(&origin, Some(&name), None, message)),
        }
    }
    Some((DefinitionFile { origin, stamp, pack: None, defaults: Arc::new(defaults), definitions }, overrides))
}

/// Fails if clients would take `name` for one of a server's tools, or if it is of this program's own.
pub(super) fn unreserved(name: SubtoolName) -> Result<SubtoolName, String> {
    let plain = name.as_str().to_ascii_lowercase().replace('-', "_");
    if plain.starts_with("mcp__") || plain == "agent_magic_tool" || plain.starts_with("agent_magic_tool_") {
        return Err("names that begin with `mcp__` or `agent-magic-tool` are those of clients and of this program; choose another name".to_owned());
    }
    if name.as_str() == QUESTION {
        return Err(format!(
            "`{QUESTION}` is built in: it is how tasks that run ask the human, and no definition can take its place; \
             choose another name"
        ));
    }
    Ok(name)
}

/// Removes the overrides of what no pack defines, and returns a problem for each.
fn unused_overrides(overrides: &mut Overrides, files: &[DefinitionFile]) -> Vec<LoadProblem> {
    let packs = files.iter().filter(|file| file.pack.is_some());
    let known: Vec<_> = packs.flat_map(|pack| &pack.definitions).map(|found| found.name.as_str()).collect();
    let mut problems = Vec::new();
    overrides.retain(|name, (origin, _)| {
        if known.contains(&name.as_str()) {
            return true;
        }
        let hint = did_you_mean(nearest(name, known.iter().copied(), 1)).map(|hint| format!("; {hint}"));
        let message = format!("no subtool of a pack named `{name}`{}", hint.unwrap_or_default());
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
    let (file, subtool) = (origin.to_string(), subtool.map(str::to_owned));
    LoadProblem { file, subtool, place, message: message.into(), count: None }
}
