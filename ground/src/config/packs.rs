//! `[packs.NAME]`: which packs are enabled, and what of them is switched off or on.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::Config;

/// What a human decided about one pack.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PackSettings {
    /// Whether its subtools are loaded; `None` if `catalog.packs` decides.
    #[serde(default)]
    pub enabled: Option<bool>,
    /// The switches of its manifest that are not as by default.
    #[serde(default)]
    pub switches: BTreeMap<String, bool>,
}

impl Config {
    /// The packs that are enabled, those of `catalog.packs` first.
    pub fn enabled_packs(&self) -> Vec<&str> {
        let enabled = |name: &str| self.packs.get(name).and_then(|settings| settings.enabled);
        let listed = self.catalog.packs.iter().map(String::as_str);
        let listed: Vec<_> = listed.filter(|name| enabled(name) != Some(false)).collect();
        let others = self.packs.keys().map(String::as_str);
        let others = others.filter(|name| enabled(name) == Some(true) && !listed.contains(name));
        listed.iter().copied().chain(others).collect()
    }
}
