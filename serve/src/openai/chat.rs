//! `POST /v1/chat/completions`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};

use super::head::CompletionHead;
use super::{OpenAiResult, errors, event, finish_reason, usage};
use crate::http::ServeState;
use crate::proxy::answer::AnswerEnd;
use crate::proxy::failure::ProxyFailure;
use crate::proxy::format::{AnswerFormat, answer};
use crate::proxy::message;
use crate::proxy::request::ProxyRequest;

const CHUNK: &str = "chat.completion.chunk";

pub(super) async fn complete(State(state): State<Arc<ServeState>>, request: Request) -> OpenAiResult {
    let mut request = ProxyRequest::read(request, "openai", "messages").await?;
    super::check(&request)?;
    let missing = || ProxyFailure::invalid("messages", "`messages` is missing; send a list of messages");
    request.messages = message::read(request.field("messages").ok_or_else(missing)?, "messages")?;
    request.model = request.text("model")?.map(str::to_owned);
    let streams = request.flag("stream")? == Some(true);
    let format = ChatFormat(CompletionHead::new("chatcmpl-", &request));
    Ok(answer(&state, &request, format, streams).await?)
}

/// A chat completion, or the chunks of one.
#[derive(Debug)]
struct ChatFormat(CompletionHead);

impl ChatFormat {
    fn chunk(&self, delta: &Value, finish_reason: Option<&str>) -> String {
        let choice = json!({"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish_reason});
        event(&self.0.document(CHUNK, &json!([choice]), None))
    }
}

impl AnswerFormat for ChatFormat {
    fn begin(&mut self) -> String {
        self.chunk(&json!({"role": "assistant", "content": "", "refusal": null}), None)
    }

    fn text(&mut self, text: &str) -> String {
        self.chunk(&json!({"content": text}), None)
    }

    fn end(&mut self, end: &AnswerEnd) -> String {
        let last = self.chunk(&json!({}), Some(finish_reason(end.outcome.stop_reason)));
        last + &self.0.last_events(CHUNK, end)
    }

    fn fail(&mut self, failure: &ProxyFailure) -> String {
        event(&errors::document(failure))
    }

    fn refusal(&self, failure: ProxyFailure) -> Response {
        errors::OpenAiError::from(failure).into_response()
    }

    fn whole(&mut self, text: &str, end: &AnswerEnd) -> Value {
        let message = json!({"role": "assistant", "content": text, "refusal": null, "annotations": []});
        let reason = finish_reason(end.outcome.stop_reason);
        let choice = json!({"index": 0, "message": message, "logprobs": null, "finish_reason": reason});
        self.0.document("chat.completion", &json!([choice]), Some(usage(end.outcome.usage)))
    }
}

#[cfg(test)]
pub(super) mod tests;
