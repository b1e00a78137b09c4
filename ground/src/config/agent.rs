//! `[agent]` and `[models]`: the agent loop, and the models that it and the `llm` subtools may use.

use std::collections::BTreeMap;

use protocol::data_class::DataClass;
use protocol::duration::PositiveDuration;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::config::secret::SecretName;

/// Settings of the agent loop, for every model.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentSettings {
    /// The model's name in `[models]`. If the file names none, it is the only one that is enabled; empty if there are several.
    pub model: String,
    /// The most requests per question; one last request without tools may follow them.
    pub steps: u32,
    /// After this many tool calls in a row the model is asked to review what it has; 0 means never.
    pub reflect_after: u32,
    /// Whether a model whose tool call failed is first asked, without tools, what went wrong.
    pub diagnose: bool,
    /// How many times a request is retried after a temporary failure.
    pub retries: u32,
    /// The most input and output tokens per question; 0 means no limit.
    pub tokens: u64,
    /// The highest cost per question, in the currency of the prices; 0 means no limit.
    pub cost: f64,
    /// The most calls of subtools per question, by whatever makes them; 0 means no limit.
    pub calls: u32,
    /// The most tokens of a user per day, over all sessions and tasks; 0 means no limit.
    pub tokens_per_day: u64,
    /// The highest cost of a user per day; 0 means no limit.
    pub cost_per_day: f64,
    /// How deeply agents may call agents; 1: an agent may call agents, which may not call further ones.
    pub depth: u8,
    /// Whether answers are streamed.
    pub stream: bool,
    /// Whether none of the calls of one turn runs before a human has decided, if one of them needs that.
    pub hold_turns: bool,
    /// How many characters of a tool result are shown to the user; 0 means all. The model always gets all of it.
    pub preview: usize,
}

/// Settings of one model.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a setting of its own")]
pub struct ModelSettings {
    pub provider: ProviderKind,
    /// The provider's name of the model; defaults to the name in `[models]`.
    #[serde(default)]
    pub model: Option<String>,
    /// The base URL, if not the provider's own.
    #[serde(default)]
    pub url: Option<Url>,
    #[serde(default)]
    pub key: Option<SecretName>,
    /// A disabled model is treated as absent.
    #[serde(default = "default_true")]
    pub enabled: bool,
    /// Whether other models and agents may delegate to it.
    #[serde(default = "default_true")]
    pub delegate: bool,
    /// The most sensitive data that the model may get. Absent: `secret` for a server in our own network, otherwise
    /// `confidential`.
    #[serde(default)]
    pub trust: Option<DataClass>,
    /// Whether the model can call tools; one that cannot is asked to write its calls as text.
    #[serde(default = "default_true")]
    pub tools: bool,
    /// Whether the model takes images. Absent: those of a provider of images do, and those at a `url` of their own do not.
    #[serde(default)]
    pub images: Option<bool>,
    /// Whether the model makes embeddings, which `serve` passes on, and answers no questions.
    #[serde(default)]
    pub embeddings: bool,
    /// The most messages in one request.
    #[serde(default = "default_max_context")]
    pub max_context: usize,
    /// The approximate number of tokens that fit in one request, if not the provider's usual one.
    #[serde(default)]
    pub window: Option<u64>,
    /// The most tokens in one answer.
    #[serde(default)]
    pub max_tokens: Option<u32>,
    #[serde(default)]
    pub temperature: Option<f64>,
    /// Whether to ask for the model's reasoning and send it back in the next request. Many models refuse to be asked.
    #[serde(default)]
    pub reasoning: bool,
    /// How much the model should reason; absent: nothing is sent.
    #[serde(default)]
    pub effort: Option<ReasoningEffort>,
    #[serde(default = "default_timeout")]
    pub timeout: PositiveDuration,
    /// Text placed before the rest of the system prompt.
    #[serde(default)]
    pub system: Option<String>,
    #[serde(default)]
    pub price: ModelPrice,
    #[serde(default)]
    pub description: Option<String>,
}

impl ModelSettings {
    /// Whether the model takes images, as configured. Most models of the large providers do; most of a local server do not.
    pub fn takes_images(&self) -> bool {
        let is_of_a_large_provider = match self.provider {
            ProviderKind::Openai | ProviderKind::OpenaiResponses => self.url.is_none(),
            ProviderKind::Anthropic | ProviderKind::Gemini => true,
            ProviderKind::Ollama => false,
        };
        self.images.unwrap_or(is_of_a_large_provider)
    }

    /// The number of tokens that fit in one request. Ollama reserves memory for all of them, so its default is small.
    pub fn window(&self) -> u64 {
        const OLLAMA: u64 = 16_384;
        const OTHERS: u64 = 120_000;
        self.window.unwrap_or(if self.provider == ProviderKind::Ollama { OLLAMA } else { OTHERS })
    }
}

/// How much a model should reason before it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningEffort {
    None,
    Minimal,
    Low,
    Medium,
    High,
    Xhigh,
    Max,
}

/// The API that a model is called through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProviderKind {
    /// The `/chat/completions` API of `OpenAI`, which most servers support.
    Openai,
    /// The `/responses` API of `OpenAI`.
    OpenaiResponses,
    Anthropic,
    Gemini,
    Ollama,
}

/// Prices per million tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelPrice {
    pub input: f64,
    pub output: f64,
    /// Price of cached input tokens; defaults to `input`.
    #[serde(default)]
    pub cached: Option<f64>,
}

/// Checks that `agent.model` names an enabled entry of `[models]`.
pub(super) fn check(agent: &AgentSettings, models: &BTreeMap<String, ModelSettings>) -> Result<(), String> {
    if let Some(name) = models.keys().find(|name| name.is_empty() || name.contains(char::is_whitespace)) {
        return Err(format!("`[models]`: `{name}` is not a valid name; it must not be empty or contain whitespace"));
    }
    let has_none = |model: &ModelSettings| model.embeddings && model.provider == ProviderKind::Anthropic;
    if let Some((name, _)) = models.iter().find(|(_, model)| has_none(model)) {
        return Err(format!("`[models.{name}]`: the provider `anthropic` makes no embeddings"));
    }
    match models.get(&agent.model) {
        _ if agent.model.is_empty() => Ok(()),
        Some(model) if model.embeddings => {
            Err(format!("`agent.model` names `{}`, which makes embeddings and answers no questions", agent.model))
        }
        Some(model) if model.enabled => Ok(()),
        Some(_) => Err(format!("`agent.model` names `{}`, which is not enabled", agent.model)),
        None => Err(format!("`agent.model` names `{}`, which is not in `[models]`", agent.model)),
    }
}

/// Without a chosen model, the only one that is enabled is the default.
pub(super) fn choose_the_only_model(agent: &mut AgentSettings, models: &BTreeMap<String, ModelSettings>) {
    let mut enabled = models.iter().filter(|(_, model)| model.enabled && !model.embeddings).map(|(name, _)| name);
    if agent.model.is_empty()
        && let (Some(only), None) = (enabled.next(), enabled.next())
    {
        agent.model.clone_from(only);
    }
}

fn default_true() -> bool {
    true
}

fn default_max_context() -> usize {
    400
}

fn default_timeout() -> PositiveDuration {
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
    fn a_model_needs_only_a_provider_and_a_key() {
        let config = read("[models.quick]\nprovider = \"anthropic\"\nkey = \"secret:anthropic\"\n").expect("it loads");
        let quick = &config.models["quick"];
        assert!(quick.enabled && quick.tools && quick.url.is_none());
        assert!(!DEFAULTS.is_empty() && config.agent.model == "quick", "the only one is the default");
    }

    #[test]
    fn of_several_models_one_has_to_be_chosen() {
        let two = "[models.a]\nprovider = \"ollama\"\n[models.b]\nprovider = \"ollama\"\n";
        assert_eq!(read(two).expect("it loads").agent.model, "");
        let one_enabled = format!("{two}enabled = false\n");
        assert_eq!(read(&one_enabled).expect("it loads").agent.model, "a");
        let one_answers = format!("{two}embeddings = true\n");
        assert_eq!(read(&one_answers).expect("it loads").agent.model, "a");
        let error = read(&format!("[agent]\nmodel = \"b\"\n{one_answers}")).expect_err("no answers");
        assert!(error.ends_with("`agent.model` names `b`, which makes embeddings and answers no questions"), "{error}");
        let none = read("[models.a]\nprovider = \"anthropic\"\nembeddings = true\n").expect_err("no embeddings");
        assert!(none.ends_with("`[models.a]`: the provider `anthropic` makes no embeddings"), "{none}");
    }

    #[test]
    fn the_chosen_model_cannot_be_disabled_or_absent() {
        let disabled = "[agent]\nmodel = \"a\"\n[models.a]\nprovider = \"ollama\"\nenabled = false\n";
        assert!(read(disabled).expect_err("disabled").ends_with("`agent.model` names `a`, which is not enabled"));
        let absent = "[agent]\nmodel = \"a\"\n";
        assert!(read(absent).expect_err("absent").ends_with("`agent.model` names `a`, which is not in `[models]`"));
    }
}
