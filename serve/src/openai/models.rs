//! `/v1/models`, for clients of Anthropic and Ollama in their own form: the agent itself; for a client that keeps its history, also the models that it may name; and those that make embeddings.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};

use super::errors::OpenAiError;
use crate::http::ServeState;
use crate::http::model_protocol::{is_anthropic_client, is_ollama_client};
use crate::proxy::AGENT_MODEL;
use crate::proxy::embedding::all_models_for;
use crate::proxy::failure::ProxyFailure;
use crate::proxy::request::client_of;

pub(super) async fn list(State(state): State<Arc<ServeState>>, request: Request) -> Response {
    if is_ollama_client(request.headers()) {
        return crate::ollama::tags(&state, &client_of(&request)).into_response();
    }
    if is_anthropic_client(request.headers()) {
        return crate::anthropic::list(&state, &client_of(&request));
    }
    let models: Vec<_> = all_models_for(&state, &client_of(&request)).iter().map(|name| document(name)).collect();
    Json(json!({"object": "list", "data": models})).into_response()
}

pub(super) async fn one(State(state): State<Arc<ServeState>>, Path(name): Path<String>, request: Request) -> Response {
    let client = client_of(&request);
    if is_anthropic_client(request.headers()) {
        return crate::anthropic::one(&state, &client, &name).into_response();
    }
    let known = all_models_for(&state, &client);
    if !known.contains(&name) {
        return OpenAiError::from(ProxyFailure::unknown_model(&name, &known)).into_response();
    }
    Json(document(&name)).into_response()
}

/// A model. When it was made is not known here, and the field is obligatory.
fn document(name: &str) -> Value {
    json!({"id": name, "object": "model", "created": 0, "owned_by": AGENT_MODEL})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_has_the_fields_of_the_reference() {
        let expected = json!({"id": "sonnet", "object": "model", "created": 0, "owned_by": "agent-magic-tool"});
        assert_eq!(document("sonnet"), expected);
    }
}
