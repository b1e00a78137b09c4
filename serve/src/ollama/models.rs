//! The models: the agent itself; for a client that keeps its history, also those that it may name; and those that make embeddings.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::response::IntoResponse as _;
use protocol::digest;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{OllamaResult, without_tag};
use crate::http::{HttpClient, ServeState};
use crate::proxy::AGENT_MODEL;
use crate::proxy::embedding::{all_models_for, embedders_for};
use crate::proxy::failure::ProxyFailure;
use crate::proxy::question::models_for;
use crate::proxy::request::{ProxyRequest, client_of};

/// When a model changed. Nothing here knows it, and the field is expected.
const MODIFIED_AT: &str = "1970-01-01T00:00:00Z";
/// When a model is unloaded: never.
const EXPIRES_AT: &str = "9999-12-31T23:59:59Z";

pub(super) async fn list(State(state): State<Arc<ServeState>>, request: Request) -> Json<Value> {
    tags(&state, &client_of(&request))
}

/// The list of models in Ollama's form.
pub(crate) fn tags(state: &ServeState, client: &HttpClient) -> Json<Value> {
    let models: Vec<_> = all_models_for(state, client).iter().map(|name| listed(name)).collect();
    Json(json!({ "models": models }))
}

/// The models that are loaded: all of them, always.
pub(super) async fn running(State(state): State<Arc<ServeState>>, request: Request) -> Json<Value> {
    let models = models_for(&state, &client_of(&request)).into_iter().map(|name| {
        let mut model = listed(&name);
        if let Value::Object(model) = &mut model {
            model.shift_remove("modified_at");
        }
        model["expires_at"] = EXPIRES_AT.into();
        model["size_vram"] = 0.into();
        model["context_length"] = window(&state, &name).into();
        model
    });
    Json(json!({"models": models.collect::<Vec<_>>()}))
}

pub(super) async fn show(State(state): State<Arc<ServeState>>, request: Request) -> OllamaResult {
    let request = ProxyRequest::read(request, "ollama", "messages").await?;
    // Older clients say `name`.
    let name = request.text("model")?.or(request.text("name")?);
    let name = name.ok_or_else(|| ProxyFailure::invalid("model", "`model` is missing; send the name of a model"))?;
    let name = without_tag(name);
    let embedders = embedders_for(&state, &request.client);
    if embedders.iter().any(|known| known == name) {
        return Ok(Json(shown(name, 0, "embedding")).into_response());
    }
    let known = all_models_for(&state, &request.client);
    if !known.iter().any(|known| known == name) {
        return Err(ProxyFailure::unknown_model(name, &known).into());
    }
    Ok(Json(shown(name, window(&state, name), "completion")).into_response())
}

/// The context window of a model; the agent's is that of its default model.
fn window(state: &ServeState, name: &str) -> u64 {
    let models = state.service.models();
    let is_it = |model: &&crate::service::ModelInfo| model.name == name || (name == AGENT_MODEL && model.is_default);
    models.iter().find(is_it).map_or(0, |model| model.window)
}

fn listed(name: &str) -> Value {
    let full = format!("{name}:latest");
    json!({
        "name": full,
        "model": full,
        "modified_at": MODIFIED_AT,
        "size": 0,
        "digest": digest::hex(&Sha256::digest(full.as_bytes())),
        "details": details(),
    })
}

fn shown(name: &str, window: u64, capability: &str) -> Value {
    json!({
        "modelfile": format!("FROM {name}\n"),
        "parameters": "",
        "template": "",
        "details": details(),
        "model_info": {"general.architecture": "agent", "general.basename": name, "agent.context_length": window},
        "capabilities": [capability],
        "modified_at": MODIFIED_AT,
    })
}

fn details() -> Value {
    json!({
        "parent_model": "",
        "format": "",
        "family": "agent",
        "families": ["agent"],
        "parameter_size": "",
        "quantization_level": "",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_has_the_fields_of_the_reference() {
        let model = listed("agent-magic-tool");
        let fields: Vec<_> = model.as_object().expect("an object").keys().map(String::as_str).collect();
        assert_eq!(fields, ["name", "model", "modified_at", "size", "digest", "details"]);
        assert_eq!(model["name"], "agent-magic-tool:latest");
        assert_eq!(model["digest"].as_str().expect("a digest").len(), 64);
        let shown = shown("sonnet", 200_000, "completion");
        assert_eq!(shown["model_info"]["agent.context_length"], 200_000);
        assert_eq!(shown["capabilities"], json!(["completion"]));
    }
}
