//! Embeddings for a client: its texts go to a model of the configuration, and the vectors come back. No session, and nothing
//! of ours, has a part in it.

use agent_loop::model::provider::embeddings::Embeddings;
use serde_json::Value;

use super::failure::ProxyFailure;
use super::question::models_for;
use super::request::ProxyRequest;
use crate::http::{HttpClient, ServeState};

/// The most texts of one request, as OpenAI has it.
const MAX_TEXTS: usize = 2048;

/// The models that make embeddings for this client. A key that one model answers has none.
pub(crate) fn embedders_for(state: &ServeState, client: &HttpClient) -> Vec<String> {
    if client.model.is_some() { Vec::new() } else { state.service.embedders() }
}

/// The models that a client may name: those that answer, then those that make embeddings.
pub(crate) fn all_models_for(state: &ServeState, client: &HttpClient) -> Vec<String> {
    [models_for(state, client), embedders_for(state, client)].concat()
}

/// Has the model `name` make a vector for each text of the field `field`.
pub(crate) async fn embed(
    state: &ServeState,
    request: &ProxyRequest,
    name: &str,
    field: &str,
) -> Result<Embeddings, ProxyFailure> {
    let known = embedders_for(state, &request.client);
    if !known.iter().any(|known| known == name) {
        return Err(ProxyFailure::unknown_embedder(name, &known));
    }
    let texts = texts(request, field)?;
    let wrong = || ProxyFailure::invalid("dimensions", "`dimensions` is not a whole number of at least 1");
    let at_least_one =
        |value: &Value| value.as_u64().and_then(|count| usize::try_from(count).ok()).filter(|count| *count > 0);
    let dimensions = request.field("dimensions").map(|value| at_least_one(value).ok_or_else(wrong)).transpose()?;
    let asker = request.client.asker(request.interface, request.client.own_session("embeddings"));
    Ok(state.service.embed(&asker, name, texts, dimensions).await?)
}

fn texts(request: &ProxyRequest, field: &str) -> Result<Vec<String>, ProxyFailure> {
    let invalid = |message: String| Err(ProxyFailure::invalid(field, message));
    let is_tokens =
        |value: &Value| value.is_number() || value.as_array().is_some_and(|list| list.iter().all(Value::is_number));
    let texts = match request.field(field) {
        None => return invalid(format!("`{field}` is missing; send a text, or a list of texts")),
        Some(Value::String(text)) => vec![text.clone()],
        Some(Value::Array(list)) => match list.iter().map(|text| text.as_str().map(str::to_owned)).collect() {
            Some(texts) => texts,
            None if list.iter().all(is_tokens) => {
                return invalid(format!(
                    "`{field}` has tokens, which only their own model can read; send texts (`check_embedding_ctx_length=False` \
                     in LangChain)"
                ));
            }
            None => return invalid(format!("`{field}` is not a list of texts")),
        },
        Some(_) => return invalid(format!("`{field}` is neither a text nor a list of texts")),
    };
    match texts.len() {
        0 => invalid(format!("`{field}` is empty; send at least one text")),
        count if count > MAX_TEXTS => invalid(format!("`{field}` has {count} texts; send at most {MAX_TEXTS} at once")),
        _ => Ok(texts),
    }
}
