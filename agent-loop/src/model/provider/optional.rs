//! Optional fields of a request: which ones a model has refused, so that they are left out.
//!
//! Models of one provider differ in what they accept, and say so with status 400 and the field's name. What was
//! learned holds for this process; nothing is stored.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use ground::config::{ModelSettings, ProviderKind};

/// The `max_tokens` of a provider that requires one, if it refuses ours and does not say how many it takes.
const FALLBACK_MAX_TOKENS: u32 = 4096;

/// A field, or a group of fields, that a request can do without.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum OptionalField {
    /// Asks for the model's reasoning.
    Reasoning,
    /// How much the model should reason.
    Effort,
    /// Asks for the token counts of a stream.
    StreamUsage,
    /// Where the provider should cache the conversation.
    CacheMark,
    /// The size of the context, for Ollama.
    ContextSize,
    Temperature,
    MaxTokens,
}

impl OptionalField {
    const ALL: [Self; 7] = [
        Self::Reasoning,
        Self::Effort,
        Self::StreamUsage,
        Self::CacheMark,
        Self::ContextSize,
        Self::Temperature,
        Self::MaxTokens,
    ];

    /// The names under which providers complain about the field.
    fn names(self) -> &'static [&'static str] {
        match self {
            Self::Reasoning => &[
                "reasoning.summary",
                "reasoning.encrypted_content",
                "reasoning",
                "include",
                "includeThoughts",
                "include_thoughts",
                "thinkingConfig",
                "thinking_config",
                "think",
                "thinking",
            ],
            Self::Effort => &[
                "reasoning_effort",
                "reasoning.effort",
                "output_config",
                "effort",
                "thinkingBudget",
                "thinking_budget",
                "thinkingLevel",
                "thinking_level",
                "think",
                "thinking",
            ],
            Self::StreamUsage => &["stream_options", "include_usage"],
            Self::CacheMark => &["cache_control"],
            Self::ContextSize => &["num_ctx"],
            Self::Temperature => &["temperature"],
            Self::MaxTokens => &["max_tokens", "max_output_tokens", "maxOutputTokens", "num_predict"],
        }
    }

    /// Whether a request to this model contains the field.
    fn is_used(self, model: &ModelSettings, streams: bool) -> bool {
        let provider = model.provider;
        match self {
            Self::Reasoning => {
                model.reasoning
                    && matches!(
                        provider,
                        ProviderKind::OpenaiResponses
                            | ProviderKind::Anthropic
                            | ProviderKind::Gemini
                            | ProviderKind::Ollama
                    )
            }
            Self::Effort => model.effort.is_some(),
            Self::StreamUsage => streams && provider == ProviderKind::Openai,
            Self::CacheMark => provider == ProviderKind::Anthropic,
            Self::ContextSize => provider == ProviderKind::Ollama,
            Self::Temperature => model.temperature.is_some(),
            Self::MaxTokens => model.max_tokens.is_some() || provider == ProviderKind::Anthropic,
        }
    }
}

/// What a model has refused so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Refusals {
    fields: BTreeSet<OptionalField>,
    /// The most output tokens that the provider says it accepts.
    most_tokens: Option<u32>,
}

/// A field that was refused, as the provider named it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RefusedField {
    pub(super) field: OptionalField,
    pub(super) name: &'static str,
}

/// By the URL and the provider's name of the model.
static REFUSALS: Mutex<BTreeMap<(String, String), Refusals>> = Mutex::new(BTreeMap::new());

impl Refusals {
    /// Returns what this model has refused since the process started.
    pub(super) fn of(url: &str, id: &str) -> Self {
        let known = REFUSALS.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&(url.to_owned(), id.to_owned())).cloned().unwrap_or_default()
    }

    /// Remembers that the model refused a field, with the message that says so.
    pub(super) fn remember(url: &str, id: &str, refused: RefusedField, message: &str) {
        let mut known = REFUSALS.lock().unwrap_or_else(PoisonError::into_inner);
        let refusals = known.entry((url.to_owned(), id.to_owned())).or_default();
        refusals.fields.insert(refused.field);
        if refused.field == OptionalField::MaxTokens {
            refusals.most_tokens = Some(most_tokens(message).unwrap_or(FALLBACK_MAX_TOKENS));
        }
    }

    pub(super) fn contains(&self, field: OptionalField) -> bool {
        self.fields.contains(&field)
    }

    /// For a provider that requires a number of tokens.
    pub(super) fn most_tokens(&self) -> Option<u32> {
        self.most_tokens
    }

    /// Returns the field that `message` complains about, if the request contained one of that name. Of several
    /// names, the longest counts: `reasoning.effort` is not about `reasoning`.
    pub(super) fn refused_field(&self, model: &ModelSettings, streams: bool, message: &str) -> Option<RefusedField> {
        let used =
            OptionalField::ALL.into_iter().filter(|field| field.is_used(model, streams) && !self.contains(*field));
        let named = used.flat_map(|field| field.names().iter().map(move |name| RefusedField { field, name }));
        named.filter(|refused| contains_word(message, refused.name)).max_by_key(|refused| refused.name.len())
    }
}

/// Whether `name` stands in `text` as a word of its own.
fn contains_word(text: &str, name: &str) -> bool {
    let is_part = |character: char| character.is_alphanumeric() || character == '_';
    text.match_indices(name).any(|(start, _)| {
        let before = text[..start].chars().next_back();
        let after = text[start + name.len()..].chars().next();
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

/// Returns the limit in a message like `max_tokens: 64000 > 8192, which is the maximum`.
fn most_tokens(message: &str) -> Option<u32> {
    let (_, after) = message.split_once("> ")?;
    let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok().filter(|number| *number > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(more: &str) -> ModelSettings {
        toml::from_str(&format!("provider = \"openai_responses\"\n{more}")).expect("a model")
    }

    #[test]
    fn the_most_specific_field_that_was_sent_is_the_refused_one() {
        let refused = |model: &ModelSettings, message: &str| {
            Refusals::default().refused_field(model, true, message).map(|refused| (refused.field, refused.name))
        };
        let both = model("reasoning = true\neffort = \"high\"\n");
        let message = "Unsupported parameter: 'reasoning.effort' is not supported with this model.";
        assert_eq!(refused(&both, message), Some((OptionalField::Effort, "reasoning.effort")));
        let message = "Your organization must be verified to generate reasoning summaries (reasoning.summary).";
        assert_eq!(refused(&both, message), Some((OptionalField::Reasoning, "reasoning.summary")));
        assert_eq!(refused(&model(""), message), None, "it was not sent");
        let temperature = model("temperature = 0.2\n");
        assert_eq!(refused(&temperature, "the temperatures of a day"), None);
        assert_eq!(refused(&temperature, "`temperature`?"), Some((OptionalField::Temperature, "temperature")));
    }

    #[test]
    fn a_limit_of_tokens_is_taken_from_the_message() {
        let message = "max_tokens: 64000 > 8192, which is the maximum allowed number of output tokens for m";
        assert_eq!(most_tokens(message), Some(8192));
        assert_eq!(most_tokens("max_tokens is too large"), None);
    }
}
