//! Whether what a pack needs is there, and how to get what is not.

use std::collections::BTreeSet;
use std::path::Path;

use globset::Glob;
use ground::config::programs::find;
use ground::config::{Config, DefinitionVariable};
use serde::Serialize;
use serde_json::Value;

use super::manifest::{PackManifest, PackNeed, PackNeeds};

/// One need of a pack on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NeedReport {
    pub kind: &'static str,
    pub name: String,
    pub description: String,
    pub met: bool,
    /// Whether the pack works without it, as a part of it does.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
    /// How to meet it, if it is not met.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub how: Option<String>,
}

impl NeedReport {
    /// Whether the pack does not work because of it.
    pub fn is_issue(&self) -> bool {
        !self.met && !self.optional
    }

    /// What is missing, in one line.
    pub fn missing(&self) -> String {
        let Self { kind, name, .. } = self;
        let what = match *kind {
            "program" => return format!("the program `{name}` is not there"),
            "privilege" => return format!("callers lack the privilege `{name}`"),
            "model" => return "no language model is enabled".to_owned(),
            "database" => "configured",
            _ => "set",
        };
        format!("the {kind} `{name}` is not {what}")
    }
}

impl PackManifest {
    /// What the pack needs under this configuration. `secrets` are the names of those that are set.
    pub fn needs_of(&self, config: &Config, secrets: &BTreeSet<String>) -> Vec<NeedReport> {
        let model = self.needs.model.as_ref().map(|description| {
            let met = config.models.values().any(|model| model.enabled);
            let how = (!met).then(|| "add one under [models] in config.toml".to_owned());
            let (kind, name) = ("model", "any".to_owned());
            NeedReport { kind, name, description: description.clone(), met, optional: false, how }
        });
        let needs = self.needs.all().filter(|(_, _, need)| applies(need, config));
        let needs = needs.map(|(kinds, name, need)| {
            let (kind, met, how) = match kinds {
                "programs" => {
                    let met = find(Path::new(name), config.programs.path.clone()).is_some_and(|found| found.exists());
                    let how = "install it, or add its folder to `path` under [programs] in config.toml";
                    ("program", met, how.to_owned())
                }
                "variables" => {
                    let example = need.example.as_ref().map_or_else(|| "…".to_owned(), |it| format!("{it:?}"));
                    let how = format!("set it under [vars] in config.toml: {name} = {example}");
                    ("variable", config.vars.contains_key(name), how)
                }
                "secrets" => ("secret", secrets.contains(name), format!("agent-magic-tool secret set {name}")),
                "databases" => {
                    let example = need.example.as_ref().map(|example| format!(": {example}")).unwrap_or_default();
                    let how = format!("describe it under [databases.{name}] in config.toml{example}");
                    ("database", config.databases.contains_key(name), how)
                }
                _ => {
                    let granted = config.access.privileges.iter().filter_map(|glob| Glob::new(glob).ok());
                    let met = granted.map(|glob| glob.compile_matcher()).any(|glob| glob.is_match(name));
                    ("privilege", met, "add it to `privileges` under [access] in config.toml".to_owned())
                }
            };
            let how = (!met).then_some(how);
            let description = need.description.clone();
            NeedReport { kind, name: name.to_owned(), description, met, optional: need.optional, how }
        });
        let PackNeeds { files, prompt, definitions, hidden, .. } = &self.needs;
        let own = [("files", files), ("prompt", prompt), ("definitions", definitions), ("hidden", hidden)];
        let own = own.into_iter().filter_map(|(kind, description)| {
            let description = description.clone()?;
            Some(NeedReport { kind, name: "any".to_owned(), description, met: true, optional: false, how: None })
        });
        needs.chain(model).chain(own).collect()
    }
}

/// Whether the variables have the values with which it is needed.
fn applies(need: &PackNeed, config: &Config) -> bool {
    let is_set_to = |(name, wanted): (&String, &String)| match config.vars.get(name).map(DefinitionVariable::value) {
        Some(Value::String(value)) => value == wanted,
        Some(value) => value.to_string().as_str() == wanted,
        None => false,
    };
    need.when.iter().all(is_set_to)
}
