//! The enabled models of the configuration, found by name.

use std::collections::BTreeMap;

use ground::config::secret::SecretName;
use ground::config::{Config, ModelPrice, ModelSettings};
use protocol::code::Code;
use protocol::error::ErrorBody;
use protocol::nearest::{did_you_mean, nearest};
use url::Url;

use super::conversation::TokenUsage;
use super::provider::client::base_url;

/// One enabled model and its name in `[models]`.
#[derive(Debug, Clone)]
pub struct ChosenModel {
    pub name: String,
    pub model: ModelSettings,
}

impl ChosenModel {
    /// Its key, if it has one, and where that is sent.
    pub fn sent_key(&self) -> Option<(SecretName, Url)> {
        let key = self.model.key.clone()?;
        Some((key, base_url(self.model.url.as_ref(), self.model.provider)))
    }

    /// Returns the provider's name for the model.
    pub fn id(&self) -> &str {
        self.model.model.as_deref().unwrap_or(&self.name)
    }
}

/// The enabled models.
#[derive(Debug, Clone)]
pub struct ModelRegistry {
    models: BTreeMap<String, ModelSettings>,
    /// Those that make embeddings and answer no questions.
    embedders: BTreeMap<String, ModelSettings>,
    default: String,
}

impl ModelRegistry {
    pub fn new(config: &Config) -> Self {
        let enabled = config.models.iter().filter(|(_, model)| model.enabled);
        let enabled = enabled.map(|(name, model)| (name.clone(), model.clone()));
        let (embedders, models) = enabled.partition(|(_, model)| model.embeddings);
        Self { models, embedders, default: config.agent.model.clone() }
    }

    /// Returns the model with this name, or the default model if `name` is `None`.
    pub fn choose(&self, name: Option<&str>) -> Result<ChosenModel, ErrorBody> {
        let wanted = name.unwrap_or(&self.default);
        if wanted.is_empty() {
            return Err(ErrorBody::new(Code::NoModel, "no model is configured").hint(
                "set `[agent] model = \"NAME\"` and add `[models.NAME]` to the configuration; to see both: agent-magic-tool doctor --settings",
            ));
        }
        if let Some(model) = self.models.get(wanted) {
            return Ok(ChosenModel { name: wanted.to_owned(), model: model.clone() });
        }
        let names = self.names();
        let hint = if self.embedders.contains_key(wanted) {
            "it makes embeddings and answers no questions; name another one".to_owned()
        } else if names.is_empty() {
            "no models are configured: add `[models.NAME]` to the configuration".to_owned()
        } else {
            did_you_mean(nearest(wanted, names.iter().copied(), 3))
                .unwrap_or_else(|| format!("available models: {}", names.join(", ")))
        };
        Err(ErrorBody::new(Code::NoModel, format!("no model named `{wanted}`")).hint(hint))
    }

    /// Returns the model of this name that makes embeddings.
    pub fn choose_embedder(&self, name: &str) -> Result<ChosenModel, ErrorBody> {
        if let Some(model) = self.embedders.get(name) {
            return Ok(ChosenModel { name: name.to_owned(), model: model.clone() });
        }
        let names = self.embedders();
        let hint = match names.as_slice() {
            [] => "no model makes any: set `embeddings = true` under [models.NAME] of one that does".to_owned(),
            names => format!("those that do: {}", names.join(", ")),
        };
        Err(ErrorBody::new(Code::NoModel, format!("no model named `{name}` makes embeddings")).hint(hint))
    }

    /// Returns the names of the models that make embeddings.
    pub fn embedders(&self) -> Vec<&str> {
        self.embedders.keys().map(String::as_str).collect()
    }

    /// Like [`Self::choose`], for a model or agent that delegates to this one.
    pub fn choose_for_delegation(&self, name: Option<&str>) -> Result<ChosenModel, ErrorBody> {
        let chosen = self.choose(name)?;
        if chosen.model.delegate {
            return Ok(chosen);
        }
        let others: Vec<_> = self.listed().filter(|(_, model)| model.delegate).map(|(name, _)| name).collect();
        let hint = if others.is_empty() {
            "no model is available for delegation: do it yourself".to_owned()
        } else {
            format!("models that it is switched on for: {}", others.join(", "))
        };
        let message = format!("delegation to the model `{}` is switched off", chosen.name);
        Err(ErrorBody::new(Code::NoModel, message).hint(hint))
    }

    /// Returns the names of all enabled models that answer questions.
    pub fn names(&self) -> Vec<&str> {
        self.models.keys().map(String::as_str).collect()
    }

    /// Returns each model and its name, the default model first.
    pub fn listed(&self) -> impl Iterator<Item = (&str, &ModelSettings)> {
        let is_default = |name: &&String| **name == self.default;
        let default = self.models.iter().filter(move |(name, _)| is_default(name));
        let others = self.models.iter().filter(move |(name, _)| !is_default(name));
        default.chain(others).map(|(name, model)| (name.as_str(), model))
    }
}

/// Returns what `usage` costs; prices are per million tokens.
#[expect(clippy::cast_precision_loss, reason = "token counts stay far below 2^52, and the cost is an estimate")]
pub fn cost(price: ModelPrice, usage: TokenUsage) -> f64 {
    let cached = usage.cached.min(usage.input);
    let fresh = usage.input - cached;
    let sum = fresh as f64 * price.input
        + cached as f64 * price.cached.unwrap_or(price.input)
        + usage.output as f64 * price.output;
    rounded_cost(sum / 1_000_000.0)
}

/// Returns a cost without the digits that only come from adding binary fractions, such as 0.0029999999999999996.
pub fn rounded_cost(cost: f64) -> f64 {
    const DIGITS: f64 = 1e10;
    (cost * DIGITS).round() / DIGITS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cached_token_has_its_own_price() {
        let price = ModelPrice { input: 3.0, output: 15.0, cached: Some(0.3) };
        let usage = TokenUsage { input: 1_000_000, output: 100_000, cached: 400_000 };
        assert!((cost(price, usage) - (1.8 + 0.12 + 1.5)).abs() < 1e-9);
        assert_eq!(rounded_cost(0.001 + 0.001 + 0.001 - f64::EPSILON).to_string(), "0.003");
    }

    #[test]
    fn a_misspelled_model_name_gets_a_suggestion() {
        let config: Config = toml::from_str(&ground::config::DEFAULTS.replace(
            "[models]\n",
            "[models]\n[models.sonnet]\nprovider = \"anthropic\"\n[models.off]\nprovider = \"ollama\"\nenabled = false\n",
        ))
        .expect("a configuration");
        let models = ModelRegistry::new(&config);
        assert_eq!(models.names(), ["sonnet"]);
        let error = models.choose(Some("sonet")).expect_err("no such model");
        assert_eq!(error.hint.as_deref(), Some("did you mean `sonnet`?"));
        assert_eq!(models.choose(None).expect_err("no model is configured").message, "no model is configured");
    }
}
