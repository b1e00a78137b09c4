//! What a caller wants of the answers of a model, beside the messages. Each provider has fields of its own for it
//! (`provider/wire.rs`, `provider/ollama.rs`); what a provider has no field for is refused before it is asked.

use ground::config::{ModelSettings, ProviderKind, ReasoningEffort};
use serde_json::Value;

/// What the answers should be like. The default is what the configuration of the model says.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AnswerOptions {
    pub tool_choice: ToolChoice,
    /// Whether the model makes one call in a turn at most.
    pub one_call: bool,
    pub format: Option<OutputFormat>,
    /// The most tokens of one answer; it only lowers what the configuration says.
    pub max_tokens: Option<u32>,
    pub temperature: Option<f64>,
    pub top_p: Option<f64>,
    /// Among how many of the likeliest tokens the model chooses.
    pub top_k: Option<u32>,
    /// Texts before which an answer ends.
    pub stop: Vec<String>,
    /// Whether the model is asked for its reasoning.
    pub reasoning: Option<bool>,
    pub effort: Option<ReasoningEffort>,
}

/// Whether the model has to call a tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ToolChoice {
    #[default]
    Auto,
    /// Any of the offered tools.
    Required,
    /// The tool of this name.
    Named(String),
}

/// A form of the answer that the provider itself enforces.
#[derive(Debug, Clone, PartialEq)]
pub enum OutputFormat {
    /// Any JSON.
    Json,
    /// JSON that a schema allows.
    Schema(OutputSchema),
}

/// The schema of an answer, as the client gave it.
#[derive(Debug, Clone, PartialEq)]
pub struct OutputSchema {
    pub name: String,
    pub description: Option<String>,
    pub schema: Value,
    /// Whether the answer certainly keeps to it, for which OpenAI demands a schema of a narrower form; `None` if the client
    /// left that to the provider.
    pub strict: Option<bool>,
}

impl AnswerOptions {
    /// The settings of the model for a request with these options.
    pub(super) fn applied_to(&self, model: &ModelSettings) -> ModelSettings {
        let mut settings = model.clone();
        let most = settings.max_tokens.unwrap_or(u32::MAX);
        settings.max_tokens = self.max_tokens.map(|tokens| tokens.min(most)).or(settings.max_tokens);
        settings.temperature = self.temperature.or(settings.temperature);
        settings.reasoning = self.reasoning.unwrap_or(settings.reasoning);
        settings.effort = self.effort.or(settings.effort);
        settings
    }

    /// The name of a wanted option that the API of this provider has no field for.
    pub fn unknown_to(&self, provider: ProviderKind) -> Option<&'static str> {
        let is_schema = matches!(self.format, Some(OutputFormat::Schema(_)));
        match provider {
            ProviderKind::Anthropic if self.format.is_some() && !is_schema => Some("JSON without a schema"),
            ProviderKind::Ollama if self.tool_choice != ToolChoice::Auto => Some("a choice of tools"),
            ProviderKind::OpenaiResponses if !self.stop.is_empty() => Some("stop texts"),
            ProviderKind::Openai | ProviderKind::OpenaiResponses | ProviderKind::Gemini if self.top_k.is_some() => {
                Some("`top_k`")
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_provider_has_no_field_for_is_named() {
        let json = AnswerOptions { format: Some(OutputFormat::Json), ..AnswerOptions::default() };
        let forced = AnswerOptions { tool_choice: ToolChoice::Required, ..AnswerOptions::default() };
        let stopped = AnswerOptions { stop: vec!["END".to_owned()], ..AnswerOptions::default() };
        assert_eq!(json.unknown_to(ProviderKind::Anthropic), Some("JSON without a schema"));
        assert_eq!(json.unknown_to(ProviderKind::Openai), None);
        assert_eq!(forced.unknown_to(ProviderKind::Ollama), Some("a choice of tools"));
        assert_eq!(stopped.unknown_to(ProviderKind::OpenaiResponses), Some("stop texts"));
        let likeliest = AnswerOptions { top_k: Some(5), ..AnswerOptions::default() };
        assert_eq!(likeliest.unknown_to(ProviderKind::Openai), Some("`top_k`"));
        assert_eq!(likeliest.unknown_to(ProviderKind::Anthropic), None);
        assert_eq!(AnswerOptions::default().unknown_to(ProviderKind::Ollama), None);
    }

    #[test]
    fn a_wanted_number_of_tokens_only_lowers_the_configured_one() {
        let model: ModelSettings = toml::from_str("provider = \"openai\"\nmax_tokens = 100").expect("settings");
        let of = |tokens| AnswerOptions { max_tokens: Some(tokens), ..AnswerOptions::default() };
        assert_eq!(of(7).applied_to(&model).max_tokens, Some(7));
        assert_eq!(of(700).applied_to(&model).max_tokens, Some(100));
        assert_eq!(AnswerOptions::default().applied_to(&model).max_tokens, Some(100));
    }
}
