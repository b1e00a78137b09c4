//! What callers may use and lack something for: a subtool that it needs, or a privilege. Allowing one subtool allows no other.

use std::collections::BTreeSet;

use catalog::{Catalog, Subtool, relatives};
use definition::run::Run;
use ground::config::Config;
use ground::task::name::SubtoolName;
use protocol::tool_scope::ToolScope;
use protocol::wording::quoted;

/// Something that is allowed and cannot work as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RightsGap {
    /// The place in the configuration that allows it, like `profiles.support.allow`.
    pub path: String,
    pub message: String,
}

/// The names of the subtools that a subtool needs, also those that its program calls.
fn needed(subtool: &Subtool) -> BTreeSet<SubtoolName> {
    let calls = match &subtool.definition.run {
        Run::Script(script) => script.calls.clone().unwrap_or_default(),
        _ => Vec::new(),
    };
    let calls = calls.iter().filter_map(|name| name.parse().ok());
    relatives(&subtool.definition).into_iter().chain(calls).collect()
}

/// The gaps of one subtool for callers with a profile: what it needs and they do not have.
pub fn of_subtool(profile: &str, subtool: &Subtool, catalog: &Catalog) -> Vec<String> {
    ToolScope::default()
        .within_profile(profile)
        .map(|scope| lacking(&needed(subtool), &scope, catalog))
        .unwrap_or_default()
}

fn lacking(needed: &BTreeSet<SubtoolName>, scope: &ToolScope, catalog: &Catalog) -> Vec<String> {
    let lacks = |name: &SubtoolName| catalog.get(name.as_str()).is_some_and(|other| !catalog.admits(&other, scope));
    needed.iter().filter(|name| lacks(name)).map(ToString::to_string).collect()
}

/// The gaps of `[access]` and of each profile, in the order of the subtools.
pub fn of(config: &Config, catalog: &Catalog) -> Vec<RightsGap> {
    let mut gaps = Vec::new();
    let scope = |name: &String| ToolScope::default().within_profile(name).ok();
    let scopes: Vec<_> = config.profiles.keys().filter_map(|name| Some((name, scope(name)?))).collect();
    for subtool in catalog.subtools() {
        let needed = needed(&subtool);
        let hidden: Vec<_> = needed.iter().filter(|name| catalog.is_hidden(name.as_str())).collect();
        if !hidden.is_empty() {
            gaps.push(gap("access", &subtool, &quoted(hidden.iter())));
        }
        for (profile, scope) in &scopes {
            if catalog.admits(&subtool, scope) {
                let lacking = lacking(&needed, scope, catalog);
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
