//! `POST /v1/messages`, and how many tokens one would have.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::response::IntoResponse as _;
use serde_json::json;

use super::format::MessageFormat;
use super::{AnthropicResult, blocks, demands};
use crate::http::ServeState;
use crate::proxy::failure::ProxyFailure;
use crate::proxy::format::answer;
use crate::proxy::question::{self, answering_model};
use crate::proxy::request::ProxyRequest;

pub(super) async fn create(State(state): State<Arc<ServeState>>, request: Request) -> AnthropicResult {
    let request = read(request).await?;
    let streams = request.flag("stream")? == Some(true);
    let id = format!("msg_{}", uuid::Uuid::now_v7().simple());
    let format = MessageFormat::new(id, answering_model(&request));
    Ok(answer(&state, &request, format, streams).await?)
}

/// An estimate: each provider counts in its own way, and none is asked.
pub(super) async fn count_tokens(State(state): State<Arc<ServeState>>, request: Request) -> AnthropicResult {
    let tokens = question::estimate_tokens(&state, &read(request).await?)?;
    Ok(Json(json!({"input_tokens": tokens})).into_response())
}

async fn read(request: Request) -> Result<ProxyRequest, ProxyFailure> {
    let mut request = ProxyRequest::read(request, "anthropic", "messages").await?;
    let missing = || ProxyFailure::invalid("messages", "`messages` is missing; send a list of messages");
    request.messages = blocks::read(request.field("messages").ok_or_else(missing)?)?;
    request.system = request.field("system").map(blocks::system).transpose()?;
    request.model = request.text("model")?.map(str::to_owned);
    request.demands = demands::read(&request)?;
    Ok(request)
}
