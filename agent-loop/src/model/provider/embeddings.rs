//! Embeddings: the vectors by which a client compares texts. Nothing here uses them; `serve` passes them on.

use genai::Headers;
use genai::adapter::AdapterKind;
use genai::embed::{EmbedOptions, EmbedRequest};
use ground::config::ProviderKind;

use super::ModelFailure;
use super::client::{ModelClient, request_error, token_usage};
use super::request_error::RequestError;
use crate::model::conversation::{ModelTurn, TokenUsage};
use crate::model::{registry, view};

/// The vectors of some texts, in their order, and what they cost.
#[derive(Debug)]
pub struct Embeddings {
    pub vectors: Vec<Vec<f32>>,
    /// Only what was spent: it has no text.
    pub(crate) spent: ModelTurn,
}

impl Embeddings {
    pub fn input_tokens(&self) -> u64 {
        self.spent.usage.input
    }
}

impl ModelClient {
    /// Returns a vector for each text, of `dimensions` numbers if the model can shorten them.
    pub(crate) async fn embed(
        &self,
        texts: Vec<String>,
        dimensions: Option<usize>,
    ) -> Result<Embeddings, ModelFailure> {
        let model = &self.chosen.model;
        let (count, estimate) = (texts.len(), texts.iter().map(|text| view::estimate_tokens(text).max(1)).sum());
        let mut target = self.target.clone();
        if model.provider == ProviderKind::OpenaiResponses {
            target.model.adapter_kind = AdapterKind::OpenAI;
        }
        let mut options = EmbedOptions::new();
        if let Some(dimensions) = dimensions {
            options = options.with_dimensions(dimensions);
        }
        // `genai` sends no key to Ollama.
        if let (ProviderKind::Ollama, Some(_), Ok(key)) = (model.provider, &model.key, target.auth.single_key_value()) {
            options = options.with_headers(Headers::from(("Authorization", format!("Bearer {key}"))));
        }
        let asked = self.genai.exec_embed(target, EmbedRequest::new_batch(texts), Some(&options));
        let answer = tokio::time::timeout(model.timeout.get(), asked).await;
        let answer = match answer {
            Err(_) => return Err(self.failure(&RequestError::timed_out())),
            Ok(answer) => answer.map_err(|error| self.failure(&request_error(&error)))?,
        };
        let usage = token_usage(&answer.usage);
        let usage = if usage.input == 0 { TokenUsage { input: estimate, ..usage } } else { usage };
        let mut embeddings = answer.embeddings;
        embeddings.sort_by_key(|embedding| embedding.index);
        let is_each = embeddings.iter().enumerate().all(|(number, embedding)| embedding.index == number);
        if embeddings.len() != count || !is_each {
            let error = RequestError::bad_answer(&format!("{} vectors for {count} texts", embeddings.len()));
            return Err(self.failure(&error));
        }
        let cost = registry::cost(model.price, usage);
        let vectors = embeddings.into_iter().map(|embedding| embedding.vector).collect();
        Ok(Embeddings {
            vectors,
            spent: ModelTurn { usage, cost, model: self.chosen.name.clone(), ..ModelTurn::default() },
        })
    }
}
