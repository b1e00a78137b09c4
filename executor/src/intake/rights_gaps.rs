//! What callers may use and lack something for: a subtool that it needs, or a privilege. Allowing one subtool allows no other.

use std::collections::BTreeMap;

use catalog::{Catalog, Subtool, relatives};
use ground::config::Config;
use protocol::tool_scope::ToolScope;
use protocol::wording::quoted;

/// Something that is allowed and cannot work as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RightsGap {
    /// The place in the configuration that allows it, like `profiles.support.allow`.
    pub path: String,
    pub message: String,
}

/// The gaps of `[access]` and of each profile, in the order of the subtools.
pub fn of(config: &Config, catalog: &Catalog) -> Vec<RightsGap> {
    let mut gaps = Vec::new();
    let names: Vec<_> = config.profiles.keys().map(String::as_str).collect();
    let scopes: BTreeMap<_, _> =
        names.iter().filter_map(|name| Some((*name, ToolScope::default().within_profile(name).ok()?))).collect();
    for subtool in catalog.subtools() {
        let needed = relatives(&subtool.definition);
        let hidden: Vec<_> = needed.iter().filter(|name| catalog.is_hidden(name.as_str())).collect();
        if !hidden.is_empty() {
            gaps.push(gap("access", &subtool, &quoted(hidden.iter())));
        }
        for (profile, scope) in &scopes {
            if catalog.admits(&subtool, scope) {
                let lacks = |name: &&ground::task::name::SubtoolName| {
                    catalog.get(name.as_str()).is_some_and(|needed| !catalog.admits(&needed, scope))
                };
                let lacking: Vec<_> = needed.iter().filter(lacks).collect();
                if !lacking.is_empty() {
                    gaps.push(gap(&format!("profiles.{profile}"), &subtool, &quoted(lacking.iter())));
                }
            } else if let Some(privilege) = catalog.profiles().named_and_lacking(profile, &subtool) {
                let message = format!(
                    "it names `{}`, which needs the privilege `{privilege}`, and `privileges` does not have that",
                    subtool.name
                );
                gaps.push(RightsGap { path: format!("profiles.{profile}.allow"), message });
            }
        }
    }
    gaps
}

fn gap(section: &str, subtool: &Subtool, lacking: &str) -> RightsGap {
    let message = format!("`{}` is allowed, and needs {lacking}, which is not; allow it too", subtool.name);
    RightsGap { path: format!("{section}.allow"), message }
}
