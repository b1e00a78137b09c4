//! Where definitions lead by the configuration: other endpoints than they name, and databases and models by their names.
//!
//! What a human approves is bound to all of this, because it is part of the hash of each definition that uses it.

use std::collections::BTreeMap;

use ground::config::Config;
use serde_json::{Value, json};

/// The settings that say where requests, statements and questions go.
#[derive(Debug, Clone, Default)]
pub(super) struct Destinations {
    endpoints: BTreeMap<String, String>,
    /// The addresses of the databases.
    databases: BTreeMap<String, String>,
    /// The provider, the address and the provider's name of each model.
    models: BTreeMap<String, Value>,
}

impl Destinations {
    pub(super) fn of(config: &Config) -> Self {
        let databases = config.databases.iter().map(|(name, database)| (name.clone(), database.url.clone()));
        let models = config.models.iter().map(|(name, model)| {
            let provider = format!("{:?}", model.provider);
            (name.clone(), json!([provider, model.url, model.model]))
        });
        Self { endpoints: config.http.endpoints.clone(), databases: databases.collect(), models: models.collect() }
    }

    /// What the `run` of a definition uses of them, as a text; empty if the definition itself says all of it.
    pub(super) fn used_by(&self, run: &Value) -> String {
        let has = |runner: &str| run.get(runner).is_some();
        let endpoints = (has("http") || has("agent")).then_some(&self.endpoints).filter(|used| !used.is_empty());
        let models = (has("llm") || has("agent")).then_some(&self.models).filter(|used| !used.is_empty());
        let database = run["sql"]["database"].as_str().and_then(|name| self.databases.get(name));
        if endpoints.is_none() && models.is_none() && database.is_none() {
            return String::new();
        }
        json!({"endpoints": endpoints, "models": models, "database": database}).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_runner_uses_what_leads_it_elsewhere() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("config.toml");
        let config = |text: &str| {
            std::fs::write(&path, text).expect("written");
            Destinations::of(&Config::load(&path).expect("it loads"))
        };
        let none = config("");
        let some = config(
            "[http.endpoints]\n\"https://a.example\" = \"https://b.example\"\n[databases.shop]\nurl = \"sqlite:///shop.db\"\n\
             [models.small]\nprovider = \"openai\"\nurl = \"http://127.0.0.1:1\"\n",
        );
        for (run, uses) in [
            (json!({"http": {"base_url": "https://a.example"}}), vec!["b.example"]),
            (json!({"agent": {"url": "https://a.example"}}), vec!["b.example", "127.0.0.1:1"]),
            (json!({"llm": {"model": "small"}}), vec!["127.0.0.1:1"]),
            (json!({"sql": {"database": "shop"}}), vec!["shop.db"]),
            (json!({"sql": {"database": "other"}}), vec![]),
            (json!({"process": {"argv": ["true"]}}), vec![]),
        ] {
            assert_eq!(none.used_by(&run), "");
            let used = some.used_by(&run);
            assert_eq!(used.is_empty(), uses.is_empty(), "{run}");
            for part in uses {
                assert!(used.contains(part), "{run}: {used}");
            }
        }
    }
}
