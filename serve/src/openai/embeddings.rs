//! `POST /v1/embeddings`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::response::IntoResponse as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::OpenAiResult;
use crate::http::ServeState;
use crate::proxy::embedding::embed;
use crate::proxy::failure::ProxyFailure;
use crate::proxy::request::ProxyRequest;

pub(super) async fn create(State(state): State<Arc<ServeState>>, request: Request) -> OpenAiResult {
    let request = ProxyRequest::read(request, "openai", "input").await?;
    let Some(model) = request.text("model")? else {
        return Err(ProxyFailure::invalid("model", "`model` is missing; send the name of a model").into());
    };
    let encode = match request.text("encoding_format")? {
        None | Some("float") => numbers,
        Some("base64") => bytes,
        Some(other) => {
            let message = format!("`encoding_format` is `float` or `base64`, not `{other}`");
            return Err(ProxyFailure::invalid("encoding_format", message).into());
        }
    };
    let embeddings = embed(&state, &request, model, "input").await?;
    let tokens = embeddings.input_tokens();
    let one = |(index, vector): (usize, &Vec<f32>)| json!({"object": "embedding", "index": index, "embedding": encode(vector)});
    let data: Vec<_> = embeddings.vectors.iter().enumerate().map(one).collect();
    let usage = json!({"prompt_tokens": tokens, "total_tokens": tokens});
    Ok(Json(json!({"object": "list", "data": data, "model": model, "usage": usage})).into_response())
}

fn numbers(vector: &[f32]) -> Value {
    json!(vector)
}

/// 32-bit numbers, the lowest byte first, which is what OpenAI's SDKs ask for.
fn bytes(vector: &[f32]) -> Value {
    let bytes: Vec<u8> = vector.iter().flat_map(|number| number.to_le_bytes()).collect();
    STANDARD.encode(bytes).into()
}
