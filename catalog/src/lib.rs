//! The catalog: every usable subtool, and the problems of what could not be loaded.
//!
//! `scan.rs` finds where each subtool is defined, and nothing more: a catalog may have tens of thousands of
//! subtools, of which few are used. When one is used, `load.rs` loads its definition strictly,
//! `relatives.rs` judges it by the others that it needs, and `compiled.rs` keeps it for a while.
//! `listing_cache.rs` builds the listing, which the crate `listing` reads.
//!
//! A bad file or definition does not affect the others. Whether a run is allowed is up to the policy.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use definition::Definition;
use globset::Glob;
use ground::base::schema::InputSchema;
use ground::task::name::SubtoolName;
use ground::task::question_key::QUESTION;
use listing::Stamp;
use protocol::nearest::{did_you_mean, nearest};
use protocol::tool_scope::ToolScope;
use serde::{Deserialize, Serialize};

pub mod absent;
mod changes;
pub mod check;
mod compiled;
mod dependencies;
mod deserialize;
mod destinations;
pub mod drafts;
mod file_keys;
mod file_part;
pub mod format;
pub mod listing_cache;
mod load;
pub mod packs;
pub mod plain_credentials;
mod privileges;
mod profiles;
mod question;
mod rate_windows;
mod relatives;
pub mod routing;
mod scan;
mod sources;
mod variables;

pub use changes::SourcesWatch;
pub use file_keys::merge as merged_over;
pub use listing::problem::{LoadProblem, left_out};
pub use load::problems_of_definitions;
pub use packs::{Pack, SHIPPED};
pub use profiles::Profiles;
pub use relatives::{CheckOutcome, relatives};
pub use scan::DefinitionFile;
pub use sources::{Sources, SourcesStamp};
pub use variables::names_in as variables_in;

use compiled::{Availability, CompiledSubtools};
use packs::loaded::LoadedPack;
use scan::{Overrides, Scan, ScannedDefinition};

/// Every subtool that is defined, each loaded when it is used.
#[derive(Debug)]
pub struct Catalog {
    sources: Sources,
    stamp: SourcesStamp,
    listing_stamp: OnceLock<Stamp>,
    files: Vec<DefinitionFile>,
    packs: Vec<Arc<LoadedPack>>,
    /// All definitions by name; those of one name in the order of the search path.
    by_name: Vec<DefinitionId>,
    /// The definitions whose names differ from that of another one only in case, by their names in lower case.
    same_but_for_case: BTreeMap<String, Vec<DefinitionId>>,
    overrides: Overrides,
    problems: Vec<LoadProblem>,
    compiled: Mutex<CompiledSubtools>,
    /// Whether a file was found to have changed since it was scanned, or could not be read for lack of descriptors.
    is_stale: AtomicBool,
}

/// The index of a file and of a definition in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DefinitionId {
    file: u32,
    number: u32,
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

impl Catalog {
    /// Finds all definitions of `sources`. Whether they have mistakes is not known before they are used or checked.
    pub fn load(sources: &Sources) -> Self {
        let Scan { stamp, files, packs, overrides, problems, is_incomplete } = scan::scan(sources);
        let index = |index: usize| u32::try_from(index).expect("memory holds fewer definitions");
        let mut by_name: Vec<_> = files
            .iter()
            .enumerate()
            .flat_map(|(file, found)| {
                (0..found.definitions.len())
                    .map(move |number| DefinitionId { file: index(file), number: index(number) })
            })
            .collect();
        let name = |id: DefinitionId| &files[id.file as usize].definitions[id.number as usize].name;
        by_name.sort_unstable_by(|one, other| name(*one).cmp(name(*other)).then(one.cmp(other)));
        let same_but_for_case = same_but_for_case(&by_name, |id| name(id).as_str());
        Self {
            sources: sources.clone(),
            stamp,
            listing_stamp: OnceLock::new(),
            files,
            packs,
            by_name,
            same_but_for_case,
            overrides,
            problems,
            compiled: Mutex::default(),
            is_stale: AtomicBool::new(is_incomplete),
        }
    }

    /// The state of the sources in which they were scanned.
    pub fn stamp(&self) -> &SourcesStamp {
        &self.stamp
    }

    /// The stamp of a listing of these definitions.
    pub fn listing_stamp(&self) -> Stamp {
        *self.listing_stamp.get_or_init(|| self.stamp.digest())
    }

    /// Whether it must be loaded anew: a file was found to have changed since it was scanned, or could not be read
    /// because descriptors or memory ran out.
    pub fn is_stale(&self) -> bool {
        self.is_stale.load(Ordering::Acquire)
    }

    /// Has it loaded anew before the next request.
    pub fn mark_stale(&self) {
        self.is_stale.store(true, Ordering::Release);
    }

    /// Returns a subtool that callers may use.
    pub fn get(&self, name: &str) -> Option<Arc<Subtool>> {
        if name == QUESTION {
            return question::question();
        }
        match self.resolved(name)? {
            Availability::Usable(subtool) => Some(subtool),
            Availability::Hidden | Availability::Broken => None,
        }
    }

    /// Whether a subtool of this name is defined that callers may not use.
    pub fn is_hidden(&self, name: &str) -> bool {
        name != QUESTION && matches!(self.resolved(name), Some(Availability::Hidden))
    }

    fn resolved(&self, name: &str) -> Option<Availability> {
        let candidates = self.candidates(name);
        let (_, ScannedDefinition { name, length, .. }) = self.definition(*candidates.first()?);
        if let Some(known) = self.compiled().get(name.as_str()) {
            return Some(known);
        }
        // Not locked meanwhile: at worst, two threads load the same subtool.
        let resolved = self.resolve(candidates);
        if !self.is_stale() {
            self.compiled().keep(name, resolved.clone(), *length as usize + resolved.program_bytes());
        }
        Some(resolved)
    }

    /// The name of a new definition. Fails if it cannot be one, or if another definition has it, or one that differs only in case
    /// or is the same in a script, which writes `_` for `-`.
    pub fn new_name(&self, name: &str) -> Result<SubtoolName, String> {
        let new = name.parse().map_err(|error| format!("`{name}` is no name of a subtool: {error}"))?;
        let new = scan::unreserved(new)?;
        let plain = |name: &str| name.to_lowercase().replace('-', "_");
        let own = plain(name);
        if name.starts_with('-') {
            return Err(format!("`{name}` looks like an option; choose another name"));
        }
        if own == plain(QUESTION) {
            return Err(format!("`{QUESTION}` is built in; choose another name"));
        }
        match self.names().find(|known| plain(known.as_str()) == own) {
            Some(known) => Err(format!("there is a subtool named `{known}` already; choose another name")),
            None => Ok(new),
        }
    }

    /// The folder for new definitions: the first one of the search path.
    pub fn own_folder(&self) -> Option<&Path> {
        self.sources.folders().first().map(PathBuf::as_path)
    }

    fn compiled(&self) -> MutexGuard<'_, CompiledSubtools> {
        self.compiled.lock().expect("no code panics while it holds the lock")
    }

    fn definition(&self, id: DefinitionId) -> (&DefinitionFile, &ScannedDefinition) {
        let file = &self.files[id.file as usize];
        (file, &file.definitions[id.number as usize])
    }

    fn name(&self, id: DefinitionId) -> &SubtoolName {
        &self.definition(id).1.name
    }

    /// Returns all definitions of this name. The first one without a mistake counts.
    fn candidates(&self, name: &str) -> &[DefinitionId] {
        let start = self.by_name.partition_point(|id| self.name(*id).as_str() < name);
        let count = self.by_name[start..].iter().take_while(|id| self.name(**id).as_str() == name).count();
        &self.by_name[start..start + count]
    }

    /// Returns the name of every definition, in alphabetical order: also of those with mistakes, and of those that
    /// callers may not use.
    pub fn names(&self) -> impl Iterator<Item = &SubtoolName> {
        self.by_name.chunk_by(|one, other| self.name(*one) == self.name(*other)).map(|same| self.name(same[0]))
    }

    /// Returns what is wrong with `pattern`, a name or a glob of the configuration, if it matches no defined subtool.
    pub fn unmatched(&self, pattern: &str) -> Option<String> {
        let matcher = Glob::new(pattern).ok()?.compile_matcher();
        let names = || self.names().map(SubtoolName::as_str);
        if names().any(|name| matcher.is_match(name)) {
            return None;
        }
        let hint = did_you_mean(nearest(pattern, names(), 1)).map(|hint| format!("; {hint}")).unwrap_or_default();
        Some(format!("`{pattern}` matches no subtool{hint}"))
    }

    /// Loads one subtool after the other that callers may use, ordered by name. None of them is kept.
    pub fn subtools(&self) -> impl Iterator<Item = Arc<Subtool>> {
        self.by_name.chunk_by(|one, other| self.name(*one) == self.name(*other)).filter_map(|candidates| {
            match self.resolve(candidates) {
                Availability::Usable(subtool) => Some(subtool),
                Availability::Hidden | Availability::Broken => None,
            }
        })
    }

    /// The packs whose manifests are valid and that are enabled.
    pub fn packs(&self) -> &[Arc<LoadedPack>] {
        &self.packs
    }

    /// The pack that a subtool belongs to.
    pub fn pack_of(&self, subtool: &Subtool) -> Option<&Arc<LoadedPack>> {
        self.files.iter().find(|file| file.origin == subtool.origin)?.pack.as_ref()
    }

    /// The packs that ship, then the files in the order of the search path, then the human's packs. One whose own keys
    /// have mistakes is left out.
    pub fn files(&self) -> &[DefinitionFile] {
        &self.files
    }

    /// Checks one definition after the other of [`Self::files`]`[file]`. None of them is kept.
    pub fn check_file(&self, file: usize) -> impl Iterator<Item = (&SubtoolName, CheckOutcome)> {
        let index = u32::try_from(file).expect("memory holds fewer files");
        self.files[file]
            .definitions
            .iter()
            .zip(0..)
            .map(move |(found, number)| (&found.name, self.check_definition(DefinitionId { file: index, number })))
    }

    /// Checks one definition after the other of all files. None of them is kept.
    pub fn check(&self) -> impl Iterator<Item = (&SubtoolName, CheckOutcome)> {
        (0..self.files.len()).flat_map(|file| self.check_file(file))
    }

    /// What is wrong with the settings, the folders, and the files as such. Mistakes in definitions are found by
    /// [`Self::check`].
    pub fn problems(&self) -> &[LoadProblem] {
        &self.problems
    }

    /// Checks all definitions, and returns everything that is wrong. What concerns many subtools of a pack is said once.
    pub fn all_problems(&self) -> Vec<LoadProblem> {
        let of_definitions = self.check().flat_map(|(_, checked)| match checked {
            CheckOutcome::Broken(problems) => problems,
            CheckOutcome::Usable(_) | CheckOutcome::Hidden => Vec::new(),
        });
        self.once_per_pack(self.problems.iter().cloned().chain(of_definitions).collect())
    }

    /// Returns what is wrong with the definitions of this name.
    pub fn problems_of(&self, name: &str) -> Vec<LoadProblem> {
        let of_definitions = self.candidates(name).iter().flat_map(|id| match self.check_definition(*id) {
            CheckOutcome::Broken(problems) => problems,
            CheckOutcome::Usable(_) | CheckOutcome::Hidden => Vec::new(),
        });
        let of_files = self.problems.iter().filter(|problem| problem.subtool.as_deref() == Some(name));
        of_files.cloned().chain(of_definitions).collect()
    }

    /// Returns a subtool that a caller with this scope may use.
    pub fn usable(&self, name: &str, tool_scope: &ToolScope) -> Option<Arc<Subtool>> {
        self.get(name).filter(|subtool| self.admits(subtool, tool_scope))
    }

    /// Whether a caller with this scope may use a subtool that callers may use.
    pub fn admits(&self, subtool: &Subtool, tool_scope: &ToolScope) -> bool {
        self.sources.admits(subtool.name.as_str(), &subtool.definition, tool_scope)
    }

    /// The profiles of the configuration.
    pub fn profiles(&self) -> &Profiles {
        self.sources.profiles()
    }

    /// Returns up to three names within `tool_scope` that are most similar to `name`, best first.
    pub fn nearest(&self, name: &str, tool_scope: &ToolScope) -> Vec<String> {
        const MAX_NAMES: usize = 3;
        /// Some may turn out to have mistakes, or to be excluded by what their definitions say.
        const MAX_CANDIDATES: usize = 12;
        let known = self.names().map(SubtoolName::as_str);
        let known =
            known.filter(|known| self.profiles().may_have(tool_scope, known) && self.sources.permits_name(known));
        let found = nearest(name, known, MAX_CANDIDATES);
        found.into_iter().filter(|name| self.usable(name, tool_scope).is_some()).take(MAX_NAMES).collect()
    }
}

/// Groups the definitions whose names differ only in case. `by_name` is ordered by `name`.
fn same_but_for_case<'a>(
    by_name: &[DefinitionId],
    name: impl Fn(DefinitionId) -> &'a str,
) -> BTreeMap<String, Vec<DefinitionId>> {
    let mut groups: BTreeMap<String, Vec<DefinitionId>> = BTreeMap::new();
    // Of two such names, one has an upper-case letter.
    let has_upper = |id: DefinitionId| name(id).bytes().any(|byte| byte.is_ascii_uppercase());
    for id in by_name.iter().copied().filter(|id| has_upper(*id)) {
        groups.entry(name(id).to_ascii_lowercase()).or_default().push(id);
    }
    for (lower, ids) in &mut groups {
        let start = by_name.partition_point(|id| name(*id) < lower.as_str());
        ids.extend(by_name[start..].iter().take_while(|id| name(**id) == lower.as_str()));
    }
    groups.retain(|_, ids| ids.iter().any(|id| name(*id) != name(ids[0])));
    groups
}
