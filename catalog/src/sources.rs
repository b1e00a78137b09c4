//! The sources of the catalog: which packs and files it is loaded from, and whether they changed.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};

use definition::Definition;
use definition::enabled_files::{self, EnabledFiles};
use definition::run::script::Script;
use ground::config::{Config, PackSettings};
use listing::Stamp;
use protocol::access::AccessFilter;
use protocol::command_executor::ForeignCommands;
use protocol::error::ErrorBody;
use protocol::file_state::FileState;
use protocol::paths::Paths;
use protocol::tool_scope::ToolScope;
use protocol::trust::{self, Distrust, untrusted};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::destinations::Destinations;
use super::packs::loaded::{EnabledPack, PackPlace};
use super::packs::{MANIFEST, is_pack_name, shipped};
use super::profiles::{Profiles, constant_requirements, facts};
use super::variables::Variables;
use super::{LoadProblem, privileges};

/// The pack that is added if the shell settings ask a human about whole command lines.
const SHELL_PACK: &str = "shell";

/// The pack that is removed if no model is configured.
const MODELS_PACK: &str = "models";

/// Where definitions are read from, and which of them callers may use.
#[derive(Debug, Clone)]
pub struct Sources {
    packs: Vec<EnabledPack>,
    /// The folder with the human's packs.
    packs_folder: PathBuf,
    /// A pack whose changes are accepted.
    accepted: Option<String>,
    /// Packs that the configuration names, with the key that does. Those must exist.
    named_packs: Vec<(String, String)>,
    folders: Vec<PathBuf>,
    /// Whether the folders were named explicitly. Such a folder must exist; the default one need not.
    named: bool,
    access: AccessFilter,
    /// The settings of `access` as text, for the stamp.
    access_text: String,
    profiles: Profiles,
    variables: Variables,
    destinations: Destinations,
    problems: Vec<LoadProblem>,
}

/// A definition file with its state, if that could be read.
#[derive(Debug)]
pub(super) struct SourceFile {
    pub(super) path: PathBuf,
    pub(super) state: Option<FileState>,
    /// The index of the pack that it belongs to.
    pub(super) pack: Option<usize>,
}

/// The definition files of some sources.
#[derive(Debug, Default)]
pub(super) struct SourceFiles {
    /// Every trusted file, in the order of the search path.
    pub(super) trusted: Vec<SourceFile>,
    /// The manifests of the human's packs.
    pub(super) manifests: Vec<SourceFile>,
    /// What the human's packs were when they were enabled.
    pub(super) enabled: EnabledFiles,
    /// The programs beside the trusted files, which a definition may name.
    pub(super) scripts: Vec<(PathBuf, Option<FileState>)>,
    /// All files of those packs.
    pub(super) pinned: Vec<(PathBuf, Option<FileState>)>,
    /// The links, and what is named itself, also if it is not trusted or is another way to the same file.
    pub(super) outside: Vec<PathBuf>,
    /// The problems of the settings, the folders and the other files.
    pub(super) problems: Vec<LoadProblem>,
}

/// Identifies the state of the sources. A listing is stale if the state of a file, the set of files, the problems, the
/// settings or the program's version changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourcesStamp {
    program: String,
    settings: String,
    problems: Vec<LoadProblem>,
    files: Vec<(PathBuf, Option<FileState>)>,
    /// A listing has what every caller may use, so it is the same for all of them.
    #[serde(skip)]
    profiles: String,
}

impl SourcesStamp {
    /// The stamp of a listing of these sources.
    pub fn digest(&self) -> Stamp {
        Stamp(Sha256::digest(serde_json::to_vec(self).expect("a stamp can be written as JSON")).into())
    }

    /// The digest of what concerns all files: the settings and the program's version.
    pub(super) fn base_digest(&self) -> [u8; 32] {
        Sha256::new().chain_update(&self.program).chain_update([0]).chain_update(&self.settings).finalize().into()
    }
}

impl Sources {
    /// Returns the sources of this user.
    pub fn of(paths: &Paths, config: &Config) -> Self {
        Self::new(config, &paths.config, paths.named_subtools())
    }

    /// `named` is the value of `AGENT_MAGIC_TOOL_SUBTOOLS`: folders or files separated by `:`.
    pub fn new(config: &Config, config_folder: &Path, named: Option<&OsStr>) -> Self {
        let mut problems = Vec::new();
        let packs_folder = config_folder.join("packs");
        let (mut packs, mut named_packs) = (Vec::new(), Vec::new());
        for name in config.enabled_packs() {
            let settings = config.packs.get(name);
            let place = match shipped(name) {
                Some(pack) => PackPlace::Shipped(pack),
                None => PackPlace::Folder(packs_folder.join(name)),
            };
            if matches!(place, PackPlace::Folder(_)) && !is_pack_name(name) {
                let is_listed = config.catalog.packs.iter().any(|listed| listed == name);
                problems.push(no_pack(name, if is_listed { "catalog.packs" } else { "packs" }));
                continue;
            }
            let switches = settings.map(|settings| settings.switches.clone()).unwrap_or_default();
            packs.push(EnabledPack { name: name.to_owned(), place, switches });
        }
        // One that is switched off may be gone.
        let is_wanted = |settings: &PackSettings| settings.enabled == Some(true) || !settings.switches.is_empty();
        let keys = config.packs.iter().filter(|(_, settings)| is_wanted(settings));
        let keys = keys.map(|(name, _)| (name.clone(), format!("packs.{name}")));
        let listed = config.catalog.packs.iter().map(|name| (name.clone(), "catalog.packs".to_owned()));
        for (name, key) in listed.chain(keys).filter(|(name, _)| shipped(name).is_none() && is_pack_name(name)) {
            if named_packs.iter().all(|(known, _)| *known != name) {
                named_packs.push((name, key));
            }
        }
        if !config.models.values().any(|model| model.enabled) {
            packs.retain(|pack| pack.name != MODELS_PACK);
        }
        if config.shell.others == ForeignCommands::Ask
            && packs.iter().all(|pack| pack.name != SHELL_PACK)
            && let Some(pack) = shipped(SHELL_PACK)
        {
            let name = SHELL_PACK.to_owned();
            packs.push(EnabledPack { name, place: PackPlace::Shipped(pack), switches: BTreeMap::new() });
        }
        let folders = match named {
            Some(named) => std::env::split_paths(named).filter(|path| !path.as_os_str().is_empty()).collect(),
            None => config.catalog.folders.iter().map(|folder| config_folder.join(folder)).collect(),
        };
        let access = AccessFilter::new(&config.access).unwrap_or_else(|error| {
            problems.push(LoadProblem {
                file: "config.toml".to_owned(),
                subtool: None,
                place: Some(format!("access.{}", error.place)),
                message: error.to_string(),
                count: None,
            });
            AccessFilter::nothing()
        });
        let variables = config.vars.clone();
        Self {
            packs,
            packs_folder,
            accepted: None,
            named_packs,
            folders,
            named: named.is_some(),
            access,
            access_text: format!("{:?}", config.access),
            profiles: Profiles::of(config),
            variables,
            destinations: Destinations::of(config),
            problems,
        }
    }

    /// Adds files and folders, which must exist. A file that is already among the sources is not loaded twice.
    #[must_use]
    pub fn with(mut self, paths: &[PathBuf]) -> Self {
        self.folders.extend(paths.iter().cloned());
        self
    }

    pub(super) fn packs_folder(&self) -> &Path {
        &self.packs_folder
    }

    /// The same, but this pack is as a human wants it.
    #[must_use]
    pub fn accepting(mut self, name: &str) -> Self {
        self.accepted = Some(name.to_owned());
        self
    }

    pub(super) fn packs(&self) -> &[EnabledPack] {
        &self.packs
    }

    /// The folders whose changes matter.
    pub(super) fn watched(&self) -> Vec<&Path> {
        let folders = self.folders.iter().map(PathBuf::as_path).chain([self.packs_folder.as_path()]);
        folders.chain(self.pack_folders().map(|(_, folder)| folder)).collect()
    }

    /// The folders of the human's packs that are enabled, each with the index of its pack.
    fn pack_folders(&self) -> impl Iterator<Item = (usize, &Path)> {
        self.packs.iter().enumerate().filter_map(|(index, pack)| match &pack.place {
            PackPlace::Folder(folder) => Some((index, folder.as_path())),
            PackPlace::Shipped(_) => None,
        })
    }

    pub(super) fn destinations(&self) -> &Destinations {
        &self.destinations
    }

    pub(super) fn variables(&self) -> &Variables {
        &self.variables
    }

    /// Returns the folders and files of the search path, for display.
    pub fn folders(&self) -> &[PathBuf] {
        &self.folders
    }

    /// Looks for definition files and manifests.
    pub(super) fn files(&self) -> SourceFiles {
        let mut found = SourceFiles { problems: self.problems.clone(), ..SourceFiles::default() };
        let mut known = BTreeSet::new();
        self.look_for_packs(&mut found);
        let enabled = EnabledFiles::read(&self.packs_folder);
        let is_unreadable = enabled.as_ref().err().map(ToString::to_string);
        found.enabled = enabled.unwrap_or_default();
        if let Some(name) = &self.accepted
            && let Err(error) = found.enabled.accept(name, &self.packs_folder.join(name))
        {
            tracing::debug!(%error, "the pack cannot be read, which is said where it is loaded");
        }
        if let Some(error) = &is_unreadable {
            let message = format!("no pack of it is loaded, since what was enabled cannot be read: {error}");
            found.problems.push(problem(&self.packs_folder, message));
        }
        // First, so that a file of a pack is never taken for one of the search path; last, so that no pack takes the
        // name of a subtool of the human's own.
        for (index, folder) in self.pack_folders().filter(|(_, folder)| folder.is_dir() && is_unreadable.is_none()) {
            let paths = enabled_files::paths(folder).unwrap_or_default();
            let state = |path: &PathBuf| FileState::at(path);
            found.pinned.extend(paths.into_iter().map(|path| (path.clone(), state(&path))));
            if let Some(distrust) = enabled_files::distrust_in(folder) {
                found.problems.push(problem(folder, untrusted(&distrust)));
                continue;
            }
            self.look_in(folder, Some(index), &mut known, &mut found);
        }
        let of_packs = std::mem::take(&mut found.trusted);
        for folder in &self.folders {
            self.look_in(folder, None, &mut known, &mut found);
        }
        found.trusted.extend(of_packs);
        found
    }

    /// Reports packs that do not exist, and those that have the name of another one.
    fn look_for_packs(&self, found: &mut SourceFiles) {
        let absent = self.named_packs.iter().filter(|(name, _)| !self.packs_folder.join(name).is_dir());
        found.problems.extend(absent.map(|(name, key)| no_pack(name, key)));
        for entry in fs::read_dir(&self.packs_folder).into_iter().flatten().flatten() {
            if let Some(name) = entry.file_name().to_str().filter(|name| shipped(name).is_some()) {
                found.problems.push(problem(&entry.path(), taken_name(name)));
            }
        }
    }

    /// Adds the files of one folder, which belong to the pack with this index.
    fn look_in(&self, folder: &Path, pack: Option<usize>, known: &mut BTreeSet<PathBuf>, found: &mut SourceFiles) {
        if let Err(distrust) = trust::check(folder)
            && distrust.is_writable_by_others()
        {
            found.problems.push(problem(folder, untrusted(&distrust)));
            return;
        }
        let FolderFiles { definitions, scripts } = match FolderFiles::of(folder) {
            Ok(found) => found,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !self.named => return,
            Err(error) => {
                found.problems.push(problem(folder, format!("failed to read it: {error}")));
                return;
            }
        };
        found.outside.extend(scripts.iter().filter(|path| path.is_symlink()).cloned());
        found.scripts.extend(scripts.into_iter().map(|path| (path.clone(), FileState::at(&path))));
        let canonical_folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
        let manifest = pack.map(|_| folder.join(MANIFEST));
        for path in manifest.iter().cloned().chain(definitions) {
            let metadata = fs::symlink_metadata(&path).ok();
            let is_link = metadata.as_ref().is_none_or(Metadata::is_symlink);
            // Only a link can lead elsewhere.
            let name_in_folder = path.file_name().filter(|_| !is_link && path != *folder);
            let canonical = if let Some(name) = name_in_folder {
                canonical_folder.join(name)
            } else {
                found.outside.push(path.clone());
                path.canonicalize().unwrap_or_else(|_| path.clone())
            };
            if !known.insert(canonical) {
                continue;
            }
            let is_manifest = manifest.as_ref() == Some(&path);
            match metadata.map_or(Ok(None), |metadata| trusted_state(&path, &metadata)) {
                Ok(state) if is_manifest => found.manifests.push(SourceFile { path, state, pack }),
                Ok(state) => found.trusted.push(SourceFile { path, state, pack }),
                Err(distrust) => found.problems.push(problem(&path, untrusted(&distrust))),
            }
        }
    }

    /// Whether the patterns of `[access]` allow the name of a subtool. Its definition may still exclude it.
    pub(super) fn permits_name(&self, name: &str) -> bool {
        self.access.permits_name(name)
    }

    /// Whether callers may use this subtool.
    pub fn permits(&self, name: &str, definition: &Definition) -> bool {
        definition.enabled && self.access.permits(facts(name, definition, &constant_requirements(definition)))
    }

    /// Whether a caller with this scope may use a subtool that callers may use.
    pub fn admits(&self, name: &str, definition: &Definition, scope: &ToolScope) -> bool {
        scope.is_everything() || self.profiles.admit(scope, name, definition)
    }

    /// Whether a caller with this scope may know what is defined under a name, also if that was not loaded.
    pub(super) fn may_know(&self, name: &str, scope: &ToolScope) -> bool {
        self.profiles.may_know(scope, name) && self.permits_name(name)
    }

    /// The profiles of the configuration.
    pub fn profiles(&self) -> &Profiles {
        &self.profiles
    }

    /// Refuses an input for which a caller with this scope lacks a privilege.
    pub fn check_privileges(
        &self,
        definition: &Definition,
        input: &Map<String, Value>,
        scope: &ToolScope,
    ) -> Result<(), ErrorBody> {
        privileges::check(definition, input, |privilege| match self.profiles.lacking(scope, privilege) {
            _ if !self.access.grants(privilege) => Some("access".to_owned()),
            Some(profile) => Some(format!("profiles.{profile}")),
            None => None,
        })
    }

    /// Returns the current state of the sources.
    pub fn stamp(&self) -> SourcesStamp {
        self.stamp_of(&self.files())
    }

    pub(super) fn stamp_of(&self, found: &SourceFiles) -> SourcesStamp {
        let files = found.trusted.iter().chain(&found.manifests).map(|file| (file.path.clone(), file.state));
        let files = files.chain(found.scripts.iter().chain(&found.pinned).cloned()).collect();
        let packs: Vec<_> = self.packs.iter().map(|pack| (&pack.name, pack.shipped_bytes(), &pack.switches)).collect();
        SourcesStamp {
            program: env!("CARGO_PKG_VERSION").to_owned(),
            settings: format!(
                "{packs:?} {:?} {:?} {:?} {:?} {:?} {:?}",
                found.enabled, self.folders, self.named, self.access_text, self.variables, self.destinations
            ),
            problems: found.problems.clone(),
            files,
            profiles: self.profiles.stamp(),
        }
    }
}

fn problem(file: &Path, message: String) -> LoadProblem {
    LoadProblem { file: file.display().to_string(), subtool: None, place: None, message, count: None }
}

/// The problem of a pack that the configuration names with `key` and that does not exist.
fn no_pack(name: &str, key: &str) -> LoadProblem {
    LoadProblem {
        file: "config.toml".to_owned(),
        subtool: None,
        place: Some(key.to_owned()),
        message: format!("no pack named `{name}`; see: agent-magic-tool pack list"),
        count: None,
    }
}

/// What is wrong with a folder of the human's packs that has the name of a shipped one.
pub(super) fn taken_name(name: &str) -> String {
    format!(
        "a pack named `{name}` ships with the program; give this folder and the `name` in its {MANIFEST} another name"
    )
}

/// Whether another user may have changed the file at `path`, whose folder is trusted.
pub(super) fn distrust_of(path: &Path) -> Option<String> {
    // Opening a file that is not accessible reports why.
    let metadata = fs::symlink_metadata(path).ok()?;
    trusted_state(path, &metadata).err().map(|distrust| untrusted(&distrust))
}

/// Returns the state of a file in a trusted folder; `metadata` is of the entry itself. Checks the whole path only if it
/// is a symbolic link.
fn trusted_state(path: &Path, metadata: &Metadata) -> Result<Option<FileState>, Distrust> {
    let is_link = metadata.is_symlink();
    let checked = if is_link { trust::check(path) } else { trust::check_entry(path, metadata) };
    match checked {
        Err(distrust) if distrust.is_writable_by_others() => Err(distrust),
        // Opening the file later reports why it is not accessible.
        _ if is_link => Ok(FileState::at(path)),
        _ => Ok(Some(FileState::of(metadata))),
    }
}

/// What is read of a folder, ordered by name.
#[derive(Debug, Default)]
struct FolderFiles {
    definitions: Vec<PathBuf>,
    scripts: Vec<PathBuf>,
}

impl FolderFiles {
    /// The files of a folder, or `path` itself if it is a file.
    fn of(path: &Path) -> std::io::Result<Self> {
        if fs::metadata(path)?.is_file() {
            return Ok(Self { definitions: vec![path.to_owned()], scripts: Vec::new() });
        }
        let mut found = Self::default();
        for entry in fs::read_dir(path)? {
            let path = entry?.path();
            if is_definition_file(&path) {
                found.definitions.push(path);
            } else if is_script_file(&path) {
                found.scripts.push(path);
            }
        }
        found.definitions.sort();
        found.scripts.sort();
        Ok(found)
    }
}

/// Whether a definition in the same folder may name this file as its program.
pub(super) fn is_script_file(path: &Path) -> bool {
    path.file_name().and_then(OsStr::to_str).is_some_and(Script::is_file_name)
}

/// Whether a file of this name in a folder of the search path is read.
pub(super) fn is_definition_file(path: &Path) -> bool {
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    path.extension() == Some(OsStr::new("json")) && !name.ends_with(".schema.json") && !name.starts_with('.')
}
