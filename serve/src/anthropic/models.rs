//! `/v1/models` as Anthropic's clients read it: the agent itself; for a client that keeps its history, also the models that
//! it may name.

use axum::Json;
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};

use super::AnthropicResult;
use crate::http::{HttpClient, ServeState};
use crate::proxy::failure::ProxyFailure;
use crate::proxy::question::models_for;

/// When a model was made. Nothing here knows it, and the field is obligatory.
const CREATED_AT: &str = "1970-01-01T00:00:00Z";

/// All of them are one page.
pub(crate) fn list(state: &ServeState, client: &HttpClient) -> Response {
    let names = models_for(state, client);
    let models: Vec<_> = names.iter().map(|name| document(name)).collect();
    Json(json!({"data": models, "has_more": false, "first_id": names.first(), "last_id": names.last()})).into_response()
}

pub(crate) fn one(state: &ServeState, client: &HttpClient, name: &str) -> AnthropicResult {
    let known = models_for(state, client);
    if known.iter().any(|known| known == name) {
        return Ok(Json(document(name)).into_response());
    }
    Err(ProxyFailure::unknown_model(name, &known).into())
}

fn document(name: &str) -> Value {
    json!({
        "type": "model",
        "id": name,
        "display_name": name,
        "created_at": CREATED_AT,
        "lifecycle": "active",
    })
}
