//! `POST /api/generate`, which has a prompt instead of messages.

use std::sync::Arc;

use axum::extract::{Request, State};

use super::chat::model_of;
use super::format::OllamaFormat;
use super::{OllamaResult, loaded, without_tag};
use crate::http::ServeState;
use crate::proxy::format::respond;
use crate::proxy::message::ClientText;
use crate::proxy::question::{Prompt, ask};
use crate::proxy::request::ProxyRequest;

pub(super) async fn answer(State(state): State<Arc<ServeState>>, request: Request) -> OllamaResult {
    let request = ProxyRequest::read(request).await?;
    let model = model_of(&request)?;
    let prompt = request.text("prompt")?.unwrap_or_default();
    let format = format(model.clone());
    if prompt.is_empty() {
        return Ok(loaded(format.document(""), request.field("keep_alive")));
    }
    let mut message = ClientText::user("prompt", prompt);
    message.foreign_part = request.has_list("images").then(|| "images".to_owned());
    let system = request.text("system")?.map(str::to_owned);
    let streams = request.flag("stream")?.unwrap_or(true);
    let model = Some(without_tag(&model).to_owned());
    let prompt = Prompt { interface: "ollama", system, messages: vec![message], field: "prompt", model };
    let answer = Box::pin(ask(&state, &request, prompt)).await?;
    Ok(Box::pin(respond(answer, format, streams)).await)
}

/// The documents of a generated text.
fn format(model: String) -> OllamaFormat {
    OllamaFormat { model, field: "response", value: |text| text.into() }
}

#[cfg(test)]
mod tests;
