//! `[agent]` and `[models]`: our own loop, and the models that it and the `llm` subtools may use.

use std::collections::BTreeMap;

use protocol::duration::PositiveDuration;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::config::secret::SecretName;

/// How the loop works, whatever the model.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentSettings {
    /// The model's name in `[models]`; empty where none is chosen.
    pub model: String,
    /// How many requests one question may take; a last one without tools comes after them.
    pub steps: u32,
    /// After how many calls in a row the model is asked to look at what it has; 0 is never.
    pub reflect_after: u32,
    /// Whether a model that was told of an error is first asked, without tools, what went wrong.
    pub diagnose: bool,
    /// How often a request that failed for a passing reason is repeated.
    pub retries: u32,
    /// How many tokens one question may take, in and out; 0 is no limit.
    pub tokens: u64,
    /// How much one question may cost, in the currency of the prices; 0 is no limit.
    pub cost: f64,
    /// How deep agents may call agents: 1 is that an agent may, and one that it calls may not.
    pub depth: u8,
    /// Whether answers come piece by piece.
    pub stream: bool,
    /// How many characters of a tool's result a person is shown; 0 is all. The model gets all of it anyway.
    pub preview: usize,
}

/// One model.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelSettings {
    pub provider: ProviderKind,
    /// The provider's name for it; the name in `[models]` if absent.
    #[serde(default)]
    pub model: Option<String>,
    /// Where it is served, if not at the provider's own address.
    #[serde(default)]
    pub url: Option<Url>,
    #[serde(default)]
    pub key: Option<SecretName>,
    /// A model that is not enabled is as good as absent.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Whether it can call tools; one that cannot is asked to write its calls as text.
    #[serde(default = "yes")]
    pub tools: bool,
    /// How many messages it is given at most.
    #[serde(default = "many_messages")]
    pub max_context: usize,
    /// How many tokens it takes in, roughly.
    #[serde(default = "window")]
    pub window: u64,
    /// How many tokens it may answer with.
    #[serde(default)]
    pub max_tokens: Option<u32>,
    #[serde(default)]
    pub temperature: Option<f64>,
    #[serde(default = "patience")]
    pub timeout: PositiveDuration,
    /// Stands before everything else in its system prompt.
    #[serde(default)]
    pub system: Option<String>,
    #[serde(default)]
    pub price: ModelPrice,
    #[serde(default)]
    pub description: Option<String>,
}

/// Whose way of speaking a model has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProviderKind {
    /// `/chat/completions`, which most servers speak.
    Openai,
    /// The newer `/responses` of `OpenAI`.
    OpenaiResponses,
    Anthropic,
    Gemini,
    Ollama,
}

/// For a million tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelPrice {
    pub input: f64,
    pub output: f64,
    /// What the provider had seen before; as `input` if absent.
    #[serde(default)]
    pub cached: Option<f64>,
}

/// What is wrong between `[agent]` and `[models]`, if anything is.
pub(super) fn check(agent: &AgentSettings, models: &BTreeMap<String, ModelSettings>) -> Result<(), String> {
    if let Some(name) = models.keys().find(|name| name.is_empty() || name.contains(char::is_whitespace)) {
        return Err(format!("`[models]`: `{name}` is no name; it has no spaces and is not empty"));
    }
    match models.get(&agent.model) {
        _ if agent.model.is_empty() => Ok(()),
        Some(model) if model.enabled => Ok(()),
        Some(_) => Err(format!("`agent.model` names `{}`, which is not enabled", agent.model)),
        None => Err(format!("`agent.model` names `{}`, which is not in `[models]`", agent.model)),
    }
}

fn yes() -> bool {
    true
}

fn many_messages() -> usize {
    400
}

fn window() -> u64 {
    120_000
}

fn patience() -> PositiveDuration {
    PositiveDuration::from_secs(120)
}

#[cfg(test)]
mod tests {
    use crate::config::Config;
    use crate::config::DEFAULTS;

    fn read(text: &str) -> Result<Config, String> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("config.toml");
        std::fs::write(&path, text).expect("written");
        Config::load(&path).map_err(|error| error.to_string())
    }

    #[test]
    fn a_model_is_an_entry_and_a_key() {
        let config = read("[models.quick]\nprovider = \"anthropic\"\nkey = \"secret:anthropic\"\n").expect("it loads");
        let quick = &config.models["quick"];
        assert!(quick.enabled && quick.tools && quick.url.is_none());
        assert!(!DEFAULTS.is_empty() && config.agent.model.is_empty());
    }

    #[test]
    fn the_chosen_model_cannot_be_disabled_or_absent() {
        let disabled = "[agent]\nmodel = \"a\"\n[models.a]\nprovider = \"ollama\"\nenabled = false\n";
        assert!(read(disabled).expect_err("disabled").ends_with("`agent.model` names `a`, which is not enabled"));
        let absent = "[agent]\nmodel = \"a\"\n";
        assert!(read(absent).expect_err("absent").ends_with("`agent.model` names `a`, which is not in `[models]`"));
    }
}
