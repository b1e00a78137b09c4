//! `POST /v1/completions`, which has a prompt instead of messages.

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
use crate::proxy::message::ClientText;
use crate::proxy::request::ProxyRequest;

const OBJECT: &str = "text_completion";

pub(super) async fn complete(State(state): State<Arc<ServeState>>, request: Request) -> OpenAiResult {
    let mut request = ProxyRequest::read(request, "openai", "prompt").await?;
    super::check(&request)?;
    request.messages = vec![ClientText::user("prompt", prompt_of(&request)?)];
    request.model = request.text("model")?.map(str::to_owned);
    let streams = request.flag("stream")? == Some(true);
    let format = CompletionFormat(CompletionHead::new("cmpl-", &request));
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

/// A text completion, or the chunks of one.
#[derive(Debug)]
struct CompletionFormat(CompletionHead);

impl CompletionFormat {
    fn choice(text: &str, finish_reason: Option<&str>) -> Value {
        json!([{"text": text, "index": 0, "logprobs": null, "finish_reason": finish_reason}])
    }
}

impl AnswerFormat for CompletionFormat {
    fn begin(&mut self) -> String {
        // Nothing that a client could take for text: there is no role to tell.
        self.keep_alive()
    }

    fn text(&mut self, text: &str) -> String {
        event(&self.0.document(OBJECT, &Self::choice(text, None), None))
    }

    fn end(&mut self, end: &AnswerEnd) -> String {
        let last = self.0.document(OBJECT, &Self::choice("", Some(finish_reason(end.outcome.stop_reason))), None);
        event(&last) + &self.0.last_events(OBJECT, end)
    }

    fn fail(&mut self, failure: &ProxyFailure) -> String {
        event(&errors::document(failure))
    }

    fn refusal(&self, failure: ProxyFailure) -> Response {
        errors::OpenAiError::from(failure).into_response()
    }

    fn whole(&mut self, text: &str, end: &AnswerEnd) -> Value {
        let reason = finish_reason(end.outcome.stop_reason);
        self.0.document(OBJECT, &Self::choice(text, Some(reason)), Some(usage(end.outcome.usage)))
    }
}

#[cfg(test)]
mod tests;
