//! `POST /v1/completions`, which has a prompt instead of messages.

use std::sync::Arc;

use axum::extract::{Request, State};
use serde_json::Value;

use super::completion_format::{CompletionFormat, CompletionKind};
use super::{OpenAiResult, demands};
use crate::http::ServeState;
use crate::proxy::failure::ProxyFailure;
use crate::proxy::format::answer;
use crate::proxy::message::ClientText;
use crate::proxy::request::ProxyRequest;

pub(super) async fn complete(State(state): State<Arc<ServeState>>, request: Request) -> OpenAiResult {
    let mut request = ProxyRequest::read(request, "openai", "prompt").await?;
    super::check(&request)?;
    request.messages = vec![ClientText::user("prompt", prompt_of(&request)?)];
    request.model = request.text("model")?.map(str::to_owned);
    request.demands = demands::read(&request)?.without_tools("/v1/chat/completions")?;
    let streams = request.flag("stream")? == Some(true);
    let format = CompletionFormat::new(CompletionKind::Text, &request);
    Ok(answer(&state, &request, format, streams).await?)
}

/// The prompt: one text, or a list of one.
fn prompt_of(request: &ProxyRequest) -> Result<&str, ProxyFailure> {
    let invalid = |message: &str| ProxyFailure::invalid("prompt", message);
    match request.field("prompt") {
        None => Err(invalid("`prompt` is missing; send a text")),
        Some(Value::String(text)) => Ok(text),
        Some(Value::Array(list)) if list.len() == 1 => {
            list[0].as_str().ok_or_else(|| invalid("a prompt of tokens cannot be read here; send a text"))
        }
        Some(_) => Err(invalid("send one prompt, as a text")),
    }
}

#[cfg(test)]
mod tests;
