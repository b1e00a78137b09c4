//! `POST /v1/chat/completions`.

use std::sync::Arc;

use axum::extract::{Request, State};

use super::completion_format::{CompletionFormat, CompletionKind};
use super::{OpenAiResult, demands};
use crate::http::ServeState;
use crate::proxy::failure::ProxyFailure;
use crate::proxy::format::answer;
use crate::proxy::message;
use crate::proxy::request::ProxyRequest;

pub(super) async fn complete(State(state): State<Arc<ServeState>>, request: Request) -> OpenAiResult {
    let mut request = ProxyRequest::read(request, "openai", "messages").await?;
    super::check(&request)?;
    let missing = || ProxyFailure::invalid("messages", "`messages` is missing; send a list of messages");
    request.messages = message::read(request.field("messages").ok_or_else(missing)?, "messages")?;
    request.model = request.text("model")?.map(str::to_owned);
    request.demands = demands::read(&request)?;
    let streams = request.flag("stream")? == Some(true);
    let format = CompletionFormat::new(CompletionKind::Chat, &request);
    Ok(answer(&state, &request, format, streams).await?)
}

#[cfg(test)]
pub(super) mod tests;
