//! A pack that is enabled, with what its manifest and the human decide about its subtools.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use definition::enabled_files::PinnedPack;
use definition::run::Run;
use globset::{Glob, GlobSet, GlobSetBuilder};
use protocol::digest;
use protocol::nearest::{did_you_mean, nearest};
use sha2::{Digest as _, Sha256};

use super::declared::ask_about_destruction;
use super::manifest::PackManifest;
use super::{MANIFEST, Pack};
use crate::{LoadProblem, Origin, Subtool};

/// A pack that the configuration enables.
#[derive(Debug, Clone)]
pub(crate) struct EnabledPack {
    pub(crate) name: String,
    pub(crate) place: PackPlace,
    /// The switches in the configuration.
    pub(crate) switches: BTreeMap<String, bool>,
}

/// Where a pack is.
#[derive(Debug, Clone)]
pub(crate) enum PackPlace {
    Shipped(&'static Pack),
    /// A folder of the human.
    Folder(PathBuf),
}

impl EnabledPack {
    /// What the manifest's mistakes are reported as being in.
    pub(crate) fn manifest_file(&self) -> String {
        match &self.place {
            PackPlace::Shipped(pack) => Origin::Pack(pack.name.to_owned()).to_string(),
            PackPlace::Folder(folder) => folder.join(MANIFEST).display().to_string(),
        }
    }

    /// Tells the versions of a shipped pack apart.
    pub(crate) fn shipped_bytes(&self) -> usize {
        match &self.place {
            PackPlace::Shipped(pack) => pack.manifest.len() + pack.text.len(),
            PackPlace::Folder(_) => 0,
        }
    }

    /// A problem of the manifest.
    pub(crate) fn problem(&self, place: Option<String>, message: String) -> LoadProblem {
        LoadProblem { file: self.manifest_file(), subtool: None, place, message, count: None }
    }

    /// Reads the manifest. Without one that is valid, the pack is left out.
    pub(crate) fn load(&self, manifest: &str) -> Result<LoadedPack, Vec<LoadProblem>> {
        let manifest = PackManifest::parse(manifest, &self.name).map_err(|mistakes| {
            mistakes.into_iter().map(|(place, message)| self.problem(place, message)).collect::<Vec<_>>()
        })?;
        if let Some(reason) = manifest.too_new() {
            return Err(vec![self.problem(Some("executor".to_owned()), reason)]);
        }
        let unknown = self.switches.keys().filter(|name| !manifest.switches.contains_key(*name));
        let unknown: Vec<_> = unknown.map(|name| self.unknown_switch(name, &manifest)).collect();
        if !unknown.is_empty() {
            return Err(unknown);
        }
        let is_off = |(name, default): (&str, bool)| !self.switches.get(name).copied().unwrap_or(default);
        let off = manifest.switches.iter().filter(|(name, switch)| is_off((name.as_str(), switch.default)));
        let off = globs(off.flat_map(|(_, switch)| &switch.subtools));
        Ok(LoadedPack { file: self.manifest_file(), manifest: Arc::new(manifest), pinned: None, off })
    }

    /// A switch that does not exist was meant to switch something off: the pack is left out, rather than more allowed
    /// than the human wanted.
    fn unknown_switch(&self, name: &str, manifest: &PackManifest) -> LoadProblem {
        let known = manifest.switches.keys().map(String::as_str);
        let hint = did_you_mean(nearest(name, known, 1)).map(|hint| format!("; {hint}")).unwrap_or_default();
        LoadProblem {
            file: "config.toml".to_owned(),
            subtool: None,
            place: Some(format!("packs.{}.switches.{name}", self.name)),
            message: format!("the pack `{}` has no switch `{name}`, so it is not loaded{hint}", self.name),
            count: None,
        }
    }
}

/// An enabled pack whose manifest is valid.
#[derive(Debug, Clone)]
pub struct LoadedPack {
    /// What problems of the whole pack are reported as being in.
    pub file: String,
    pub manifest: Arc<PackManifest>,
    /// What a human enabled, of a pack that does not ship.
    pub(crate) pinned: Option<Arc<PinnedPack>>,
    off: GlobSet,
}

fn leave_no_bytecode(environment: &mut BTreeMap<String, String>) {
    environment.entry("PYTHONDONTWRITEBYTECODE".to_owned()).or_insert_with(|| "1".to_owned());
}

impl LoadedPack {
    pub fn name(&self) -> &str {
        &self.manifest.name
    }

    /// Whether a switch that is off covers this subtool.
    pub fn switches_off(&self, subtool: &str) -> bool {
        self.off.is_match(subtool)
    }

    /// Applies the switches and limits to a subtool of the pack. `is_confirm_own`: a human set its `confirm`.
    pub(crate) fn apply(&self, subtool: &mut Subtool, is_confirm_own: bool) {
        if let Some(pinned) = &self.pinned {
            // What was approved, or accepted, of other files is not this.
            let hash = Sha256::new().chain_update(&subtool.hash).chain_update(pinned.digest());
            subtool.hash = digest::hex(&hash.finalize());
        }
        let definition = Arc::make_mut(&mut subtool.definition);
        if self.switches_off(subtool.name.as_str()) {
            definition.enabled = false;
        }
        if !is_confirm_own {
            ask_about_destruction(definition);
        }
        match &mut definition.run {
            // What ships is a part of the program.
            _ if self.pinned.is_none() => {}
            Run::Sql(sql) => sql.is_guarded = true,
            // Compiled modules beside its sources would be a change of the pack.
            Run::Process(process) => leave_no_bytecode(&mut process.env),
            Run::Mcp(mcp) => leave_no_bytecode(&mut mcp.server.env),
            _ => {}
        }
        definition.pinned.clone_from(&self.pinned);
        definition.rate_limit = definition.rate_limit.or(self.manifest.limits.of(definition.effect_class()));
    }

    /// What is wrong with the manifest in view of the subtools that the pack defines, which have these `names`.
    pub(crate) fn mistakes(
        &self,
        pack: &EnabledPack,
        names: &[&str],
        is_read_only: impl Fn(&str) -> bool,
    ) -> Vec<LoadProblem> {
        let mut found = Vec::new();
        let none_named = |name: &str| {
            let hint = did_you_mean(nearest(name, names.iter().copied(), 1)).map(|hint| format!("; {hint}"));
            format!("no subtool of the pack matches `{name}`{}", hint.unwrap_or_default())
        };
        for (switch, settings) in &self.manifest.switches {
            for (index, pattern) in settings.subtools.iter().enumerate() {
                let own = globs([pattern]);
                if !names.iter().any(|name| own.is_match(name)) {
                    let place = format!("switches.{switch}.subtools[{index}]");
                    found.push(pack.problem(Some(place), none_named(pattern)));
                }
            }
        }
        if let Some(health) = &self.manifest.health {
            let subtool = health.subtool.as_str();
            let message = if !names.contains(&subtool) {
                Some(none_named(subtool))
            } else if !is_read_only(subtool) {
                let message =
                    "is not read-only, and a check must not change anything; name a subtool with `readOnlyHint`";
                Some(format!("`{subtool}` {message}"))
            } else {
                None
            };
            found.extend(message.map(|message| pack.problem(Some("health.subtool".to_owned()), message)));
        }
        found
    }
}

/// Globs that are known to be valid.
pub(super) fn globs<'a>(patterns: impl IntoIterator<Item = &'a String>) -> GlobSet {
    let mut set = GlobSetBuilder::new();
    for glob in patterns.into_iter().filter_map(|pattern| Glob::new(pattern).ok()) {
        set.add(glob);
    }
    set.build().expect("each of the globs is valid")
}
