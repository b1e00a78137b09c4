//! Reports on packs: which there are, whether they work here, and what they lack.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use definition::Annotations;
use definition::enabled_files::EnabledFiles;
use ground::config::Config;
use ground::config::secret::{SecretError, Secrets};
use jiff::Timestamp;
use protocol::clock;
use protocol::paths::Paths;
use protocol::regular_file;
use protocol::trust::{self, untrusted};
use serde::{Deserialize as _, Serialize};
use serde_json::{Value, json};
use serde_with_macros::skip_serializing_none;

use super::checks::{PackCheck, PackChecks};
use super::loaded::{EnabledPack, LoadedPack, PackPlace};
use super::manifest::{MAX_MANIFEST_BYTES, PackManifest};
use super::needs::NeedReport;
use super::{MANIFEST, SHIPPED, is_pack_name, shipped};
use crate::sources::taken_name;
use crate::{Catalog, CheckOutcome, LoadProblem, Sources};

/// What can be said of a pack in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PackState {
    /// It is enabled, and nothing is known to be wrong.
    Ready,
    /// It is not enabled, and could be.
    Available,
    /// It is enabled, and something is missing or wrong.
    HasIssues,
    /// It cannot be used here: its manifest has a mistake, or it needs a newer program.
    Unavailable,
}

/// One pack on this machine.
#[skip_serializing_none]
#[derive(Debug, Clone, Serialize)]
pub struct PackReport {
    pub name: String,
    pub state: PackState,
    pub enabled: bool,
    pub version: Option<String>,
    pub description: Option<String>,
    /// The folder of a pack that does not ship.
    pub folder: Option<PathBuf>,
    /// What is wrong or missing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub issues: Vec<String>,
    /// `None` if the pack has no health check.
    pub check: Option<CheckReport>,
    #[serde(skip)]
    pub manifest: Option<Arc<PackManifest>>,
    #[serde(skip)]
    pub needs: Vec<NeedReport>,
}

/// The last health check of a pack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CheckReport {
    /// Whether it was long ago, or never.
    pub due: bool,
    #[serde(flatten)]
    pub last: Option<PackCheck>,
}

impl CheckReport {
    /// What is said of a check that failed.
    pub fn failure(&self, pack: &str) -> Option<String> {
        let last = self.last.as_ref().filter(|last| !last.passed)?;
        let reason = last.message.as_deref().unwrap_or("it gave no reason");
        Some(format!("its last check failed: {reason}; again: agent-magic-tool pack check {pack}"))
    }
}

/// A subtool of a pack.
#[derive(Debug, Clone, Serialize)]
pub struct PackSubtool {
    pub name: String,
    pub state: SubtoolState,
    /// Why callers cannot use it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Whether callers may use a subtool of a pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SubtoolState {
    Usable,
    /// A switch of the pack, its definition or `[access]` takes it from callers.
    Off,
    /// Its definition has a mistake, or lacks something.
    Broken,
}

/// Everything that reports on packs are made of.
#[derive(Debug)]
pub struct PackSurvey {
    paths: Paths,
    config: Config,
    catalog: Catalog,
    problems: Vec<LoadProblem>,
    secrets: BTreeSet<String>,
    checks: PackChecks,
    now: Timestamp,
}

impl PackSurvey {
    pub fn new(paths: &Paths, config: &Config) -> Result<Self, SecretError> {
        Self::of_sources(paths, config, &Sources::of(paths, config))
    }

    fn of_sources(paths: &Paths, config: &Config, sources: &Sources) -> Result<Self, SecretError> {
        let catalog = Catalog::load(sources);
        let problems = catalog.all_problems();
        Self::of_catalog(paths, config, catalog, problems)
    }

    /// Of a catalog that was loaded, and everything that is wrong with it.
    pub fn of_catalog(
        paths: &Paths,
        config: &Config,
        catalog: Catalog,
        problems: Vec<LoadProblem>,
    ) -> Result<Self, SecretError> {
        Ok(Self {
            paths: paths.clone(),
            config: config.clone(),
            problems,
            catalog,
            secrets: Secrets::of(paths, config).names()?.into_iter().map(|(name, _)| name).collect(),
            checks: PackChecks::read(&paths.state),
            now: clock::now(),
        })
    }

    /// The same as if the pack was enabled as it is now.
    pub fn with_accepted(&self, name: &str) -> Result<Self, SecretError> {
        let mut config = self.config.clone();
        config.packs.entry(name.to_owned()).or_default().enabled = Some(true);
        Self::of_sources(&self.paths, &config, &Sources::of(&self.paths, &config).accepting(name))
    }

    /// What of a pack is not as it was when a human enabled it.
    pub fn changes(&self, name: &str) -> Vec<String> {
        let folder = self.folder();
        let pinned = EnabledFiles::read(&folder).map(|enabled| enabled.pack(name, &folder.join(name)));
        let changes = pinned.and_then(|pinned| pinned.map_or_else(|| Ok(Vec::new()), |pinned| pinned.changes()));
        changes.unwrap_or_else(|error| vec![error.to_string()])
    }

    /// Whether the pack is enabled and valid, so that its subtools are known.
    pub fn is_loaded(&self, name: &str) -> bool {
        self.catalog.packs().iter().any(|pack| pack.name() == name)
    }

    /// What the definitions of a pack do, also those that callers may not use now, with the variables that are set.
    pub fn runs(&self, name: &str) -> Vec<Value> {
        let definitions = self.catalog.definitions_of_pack(name).into_iter();
        definitions.map(|(_, mut definition)| definition["run"].take()).collect()
    }

    /// The subtools of a pack that run without asking a human, and what each of them is: also those that still lack
    /// something.
    pub fn unasked(&self, name: &str) -> Vec<Value> {
        let definitions = self.catalog.definitions_of_pack(name).into_iter();
        let usable = definitions.filter(|(name, _)| !self.catalog.is_hidden(name));
        usable.filter_map(|(name, written)| unasked(&name, &written, self.catalog.is_confirm_own(&name))).collect()
    }

    /// The names of all packs: those that ship, and the folders of the human, in alphabetical order.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = SHIPPED.iter().map(|pack| pack.name.to_owned()).collect();
        for entry in fs::read_dir(self.folder()).into_iter().flatten().flatten() {
            if entry.path().is_dir()
                && let Some(name) = entry.file_name().to_str().filter(|name| !name.starts_with('.'))
            {
                names.push(name.to_owned());
            }
        }
        names.sort();
        names.dedup();
        names
    }

    /// The folder with the packs of the human.
    pub fn folder(&self) -> PathBuf {
        self.paths.config.join("packs")
    }

    /// Reports on the pack of this name, if there is one.
    pub fn report(&self, name: &str) -> Option<PackReport> {
        let folder = Some(self.folder().join(name)).filter(|folder| is_pack_name(name) && folder.is_dir());
        let place = match (shipped(name), &folder) {
            (Some(pack), _) => PackPlace::Shipped(pack),
            (None, Some(folder)) => PackPlace::Folder(folder.clone()),
            (None, None) => return self.misnamed(name),
        };
        let enabled =
            self.catalog.packs().iter().any(|pack| pack.name() == name) || self.config.enabled_packs().contains(&name);
        let switches = self.config.packs.get(name).map(|settings| settings.switches.clone()).unwrap_or_default();
        let pack = EnabledPack { name: name.to_owned(), place, switches };
        let loaded = self.loaded(&pack);
        let manifest = loaded.as_ref().ok().map(|loaded| Arc::clone(&loaded.manifest));
        let needs =
            manifest.as_ref().map(|manifest| manifest.needs_of(&self.config, &self.secrets)).unwrap_or_default();
        let check = manifest.as_ref().and_then(|manifest| self.check_of(manifest));
        let mut issues = match &loaded {
            Ok(_) => self.issues(&pack, &needs, check.as_ref()),
            Err(problems) => problems.iter().map(ToString::to_string).collect(),
        };
        // With the name of a shipped pack, whose own report this is.
        if let (Some(folder), PackPlace::Shipped(_)) = (&folder, &pack.place) {
            issues.push(format!("{}: {}", folder.display(), taken_name(name)));
        }
        let state = match (&loaded, enabled) {
            (Err(_), _) => PackState::Unavailable,
            (Ok(_), false) => PackState::Available,
            (Ok(_), true) if issues.is_empty() => PackState::Ready,
            (Ok(_), true) => PackState::HasIssues,
        };
        Some(PackReport {
            name: name.to_owned(),
            state,
            enabled,
            version: manifest.as_ref().map(|manifest| manifest.version.clone()),
            description: manifest.as_ref().map(|manifest| manifest.description.clone()),
            folder: folder.filter(|_| matches!(pack.place, PackPlace::Folder(_))),
            issues,
            check,
            manifest,
            needs,
        })
    }

    /// Whether callers may use this subtool, and it changes nothing.
    pub fn is_read_only(&self, subtool: &str) -> bool {
        self.catalog.get(subtool).is_some_and(|found| found.definition.runs_in_read_only_sessions())
    }

    /// Why a subtool is not loaded.
    pub fn problem_of(&self, subtool: &str) -> Option<String> {
        self.catalog.problems_of(subtool).into_iter().next().map(|problem| problem.message)
    }

    /// The subtools of an enabled pack.
    pub fn subtools(&self, name: &str) -> Vec<PackSubtool> {
        let mut subtools = Vec::new();
        for (number, file) in self.catalog.files().iter().enumerate() {
            let Some(pack) = file.pack.as_ref().filter(|pack| pack.name() == name) else { continue };
            subtools.extend(self.catalog.check_file(number).map(|(name, checked)| {
                let (state, reason) = match checked {
                    CheckOutcome::Usable(_) => (SubtoolState::Usable, None),
                    CheckOutcome::Hidden if pack.switches_off(name.as_str()) => {
                        (SubtoolState::Off, Some("a switch of the pack is off".to_owned()))
                    }
                    CheckOutcome::Hidden => {
                        (SubtoolState::Off, Some("its definition or [access] takes it from callers".to_owned()))
                    }
                    CheckOutcome::Broken(problems) => {
                        (SubtoolState::Broken, problems.into_iter().next().map(|problem| problem.message))
                    }
                };
                PackSubtool { name: name.as_str().to_owned(), state, reason }
            }));
        }
        subtools.sort_by(|one, other| one.name.cmp(&other.name));
        subtools
    }

    /// A folder whose name no pack can have.
    fn misnamed(&self, name: &str) -> Option<PackReport> {
        let is_component = OsStr::new(name) == PathBuf::from(name).file_name()?;
        let folder = self.folder().join(name);
        (is_component && folder.is_dir()).then(|| PackReport {
            name: name.to_owned(),
            state: PackState::Unavailable,
            enabled: false,
            version: None,
            description: None,
            folder: Some(folder),
            issues: vec!["a pack is named with 1 to 64 of the characters a-z 0-9 _ -; rename the folder".to_owned()],
            check: None,
            manifest: None,
            needs: Vec::new(),
        })
    }

    /// Reads a pack. One that is enabled was judged together with its subtools.
    fn loaded(&self, pack: &EnabledPack) -> Result<Arc<LoadedPack>, Vec<LoadProblem>> {
        if let Some(known) = self.catalog.packs().iter().find(|known| known.name() == pack.name) {
            return Ok(Arc::clone(known));
        }
        let known = self.problems_of(pack);
        if !known.is_empty() {
            return Err(known);
        }
        let folder = match &pack.place {
            PackPlace::Shipped(shipped) => return pack.load(shipped.manifest).map(Arc::new),
            PackPlace::Folder(folder) => folder,
        };
        for path in [folder.clone(), folder.join(MANIFEST)] {
            if let Err(distrust) = trust::check(&path)
                && distrust.is_writable_by_others()
            {
                return Err(vec![pack.problem(None, untrusted(&distrust))]);
            }
        }
        match regular_file::read_text(&folder.join(MANIFEST), MAX_MANIFEST_BYTES) {
            Ok(manifest) => pack.load(&manifest).map(Arc::new),
            Err(error) => Err(vec![pack.problem(None, format!("failed to read it: {error}"))]),
        }
    }

    /// The problems that the catalog has with a pack that is enabled.
    fn problems_of(&self, pack: &EnabledPack) -> Vec<LoadProblem> {
        let own = self.catalog.files().iter();
        let own = own.filter(|file| file.pack.as_ref().is_some_and(|owner| owner.name() == pack.name));
        let mut files: BTreeSet<_> = own.map(|file| file.origin.to_string()).collect();
        files.insert(pack.manifest_file());
        let folder = match &pack.place {
            PackPlace::Folder(folder) => Some(folder.clone()),
            PackPlace::Shipped(_) => None,
        };
        let setting = format!("packs.{}.", pack.name);
        let is_own = |problem: &&LoadProblem| {
            files.contains(&problem.file)
                || folder.as_ref().is_some_and(|folder| PathBuf::from(&problem.file).starts_with(folder))
                || problem.place.as_ref().is_some_and(|place| place.starts_with(&setting))
        };
        self.problems.iter().filter(is_own).cloned().collect()
    }

    fn issues(&self, pack: &EnabledPack, needs: &[NeedReport], check: Option<&CheckReport>) -> Vec<String> {
        let missing = needs.iter().filter(|need| need.is_issue()).map(NeedReport::missing);
        let problems = self.problems_of(pack).into_iter();
        // A variable is among the needs.
        let is_need = |place: &String| place.starts_with("needs.variables.");
        let problems = problems.filter(|problem| !problem.place.as_ref().is_some_and(is_need));
        let failed = check.and_then(|check| check.failure(&pack.name));
        missing.chain(problems.map(|problem| problem.to_string())).chain(failed).collect()
    }

    fn check_of(&self, manifest: &PackManifest) -> Option<CheckReport> {
        let health = manifest.health.as_ref()?;
        let last = self.checks.of(&manifest.name, &manifest.version).cloned();
        let is_due = |check: &PackCheck| {
            let age = Duration::try_from(self.now.duration_since(check.at)).unwrap_or_default();
            age > health.every.get()
        };
        Some(CheckReport { due: last.as_ref().is_none_or(is_due), last })
    }
}

/// What is said of a subtool of a pack that is `written` so that it runs without asking a human. `is_confirm_own`: a
/// human set its `confirm`.
fn unasked(name: &str, written: &Value, is_confirm_own: bool) -> Option<Value> {
    let annotations = written.get("annotations").map_or_else(|| Ok(Annotations::default()), Annotations::deserialize);
    let confirm = written.get("confirm");
    let is_unasked = match (&annotations, confirm) {
        // A variable will say what it does.
        (Err(_), confirm) => confirm.is_none_or(|confirm| confirm != "always"),
        (Ok(annotations), None) => annotations.read_only_hint,
        (Ok(annotations), Some(confirm)) => confirm != "always" && (is_confirm_own || !annotations.is_destructive()),
    };
    let changes = !annotations.is_ok_and(|annotations| annotations.read_only_hint);
    is_unasked.then(|| json!({"name": name, "changes": changes, "confirm": confirm, "run": written.get("run")}))
}
