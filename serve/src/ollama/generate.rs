//! `POST /api/generate`, which has a prompt instead of messages.

use std::sync::Arc;

use axum::extract::{Request, State};

use super::chat::model_of;
use super::format::OllamaFormat;
use super::{OllamaResult, demands, loaded, without_tag};
use crate::http::ServeState;
use crate::proxy::format;
use crate::proxy::message;
use crate::proxy::request::ProxyRequest;

pub(super) async fn answer(State(state): State<Arc<ServeState>>, request: Request) -> OllamaResult {
    let mut request = ProxyRequest::read(request, "ollama", "prompt").await?;
    let model = model_of(&request)?;
    let prompt = request.text("prompt")?.unwrap_or_default();
    let format = format(model.clone());
    if prompt.is_empty() {
        return Ok(loaded(format.document(""), request.field("keep_alive")));
    }
    let message = message::prompt("prompt", prompt, request.field("images"));
    request.system = request.text("system")?.map(str::to_owned);
    request.demands = demands::read(&request)?.without_tools("/api/chat")?;
    let streams = request.flag("stream")?.unwrap_or(true);
    request.model = Some(without_tag(&model).to_owned());
    request.messages = vec![message];
    Ok(format::answer(&state, &request, format, streams).await?)
}

/// The documents of a generated text.
fn format(model: String) -> OllamaFormat {
    OllamaFormat { model, field: "response", value: |text| text.into() }
}

#[cfg(test)]
mod tests;
