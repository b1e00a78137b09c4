//! `POST /api/chat`.

use std::sync::Arc;

use axum::extract::{Request, State};
use serde_json::json;

use super::format::OllamaFormat;
use super::{OllamaResult, demands, loaded, without_tag};
use crate::http::ServeState;
use crate::proxy::failure::ProxyFailure;
use crate::proxy::format;
use crate::proxy::message;
use crate::proxy::request::ProxyRequest;

pub(super) async fn answer(State(state): State<Arc<ServeState>>, request: Request) -> OllamaResult {
    let mut request = ProxyRequest::read(request, "ollama", "messages").await?;
    let model = model_of(&request)?;
    if let Some(messages) = request.field("messages") {
        request.messages = message::read(messages, "messages")?;
    }
    let format = format(model.clone());
    if request.messages.is_empty() {
        return Ok(loaded(format.document(""), request.field("keep_alive")));
    }
    request.demands = demands::read(&request)?;
    let streams = request.flag("stream")?.unwrap_or(true);
    request.model = Some(without_tag(&model).to_owned());
    Ok(format::answer(&state, &request, format, streams).await?)
}

/// The model as the client names it, which every answer repeats.
pub(super) fn model_of(request: &ProxyRequest) -> Result<String, ProxyFailure> {
    let missing = || ProxyFailure::invalid("model", "`model` is missing; send `agent-magic-tool`");
    request.text("model")?.filter(|name| !name.is_empty()).map(str::to_owned).ok_or_else(missing)
}

/// The documents of a chat.
fn format(model: String) -> OllamaFormat {
    OllamaFormat { model, field: "message", value: |text| json!({"role": "assistant", "content": text}) }
}

#[cfg(test)]
pub(super) mod tests;
