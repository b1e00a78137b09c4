//! `POST /api/embed`, and `/api/embeddings` of older clients, which has one text.

use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::extract::{Request, State};
use axum::response::IntoResponse as _;
use serde_json::json;

use super::chat::model_of;
use super::{OllamaResult, nanos, without_tag};
use crate::http::ServeState;
use crate::proxy::embedding;
use crate::proxy::request::ProxyRequest;

pub(super) async fn answer(State(state): State<Arc<ServeState>>, request: Request) -> OllamaResult {
    let began = Instant::now();
    let request = ProxyRequest::read(request, "ollama", "input").await?;
    let model = model_of(&request)?;
    let made = embedding::embed(&state, &request, without_tag(&model), "input").await?;
    Ok(Json(json!({
        "model": model,
        "embeddings": made.vectors,
        "total_duration": nanos(began.elapsed()),
        "load_duration": 0,
        "prompt_eval_count": made.input_tokens(),
    }))
    .into_response())
}

pub(super) async fn answer_one(State(state): State<Arc<ServeState>>, request: Request) -> OllamaResult {
    let request = ProxyRequest::read(request, "ollama", "prompt").await?;
    let model = model_of(&request)?;
    let made = embedding::embed(&state, &request, without_tag(&model), "prompt").await?;
    Ok(Json(json!({"embedding": made.vectors.first()})).into_response())
}
