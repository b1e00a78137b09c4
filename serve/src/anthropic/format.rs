//! A message, and the events of one.

use agent_loop::model::conversation::{StopReason, ToolCall};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};

use super::{errors, event};
use crate::proxy::answer::AnswerEnd;
use crate::proxy::failure::ProxyFailure;
use crate::proxy::format::AnswerFormat;
use crate::service::turn::TurnUsage;

/// Writes one message, or its events.
#[derive(Debug)]
pub(super) struct MessageFormat {
    id: String,
    model: String,
    /// The number of the next block.
    next_block: u64,
    /// Whether the last block is a text that may go on.
    is_open: bool,
}

impl MessageFormat {
    pub(super) fn new(id: String, model: String) -> Self {
        Self { id, model, next_block: 0, is_open: false }
    }

    fn message(&self, content: &[Value], stop_reason: Option<&str>, used: TurnUsage) -> Value {
        json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": content,
            "stop_reason": stop_reason,
            "stop_sequence": null,
            "usage": usage(used),
        })
    }

    /// The beginning of the next block.
    fn start(&mut self, block: &Value) -> String {
        let started = event(&json!({"type": "content_block_start", "index": self.next_block, "content_block": block}));
        self.next_block += 1;
        started
    }

    /// A piece of the last block.
    fn delta(&self, delta: &Value) -> String {
        event(&json!({"type": "content_block_delta", "index": self.next_block - 1, "delta": delta}))
    }

    /// The end of the last block.
    fn stop(&self) -> String {
        event(&json!({"type": "content_block_stop", "index": self.next_block - 1}))
    }
}

impl AnswerFormat for MessageFormat {
    fn begin(&mut self) -> String {
        let message = self.message(&[], None, TurnUsage::default());
        event(&json!({"type": "message_start", "message": message})) + &self.keep_alive()
    }

    fn text(&mut self, text: &str) -> String {
        let started = if self.is_open { String::new() } else { self.start(&text_block("")) };
        self.is_open = true;
        started + &self.delta(&json!({"type": "text_delta", "text": text}))
    }

    fn keep_alive(&mut self) -> String {
        event(&json!({"type": "ping"}))
    }

    fn end(&mut self, end: &AnswerEnd) -> String {
        let mut events = String::new();
        if std::mem::take(&mut self.is_open) {
            events += &self.stop();
        }
        for call in &end.outcome.calls {
            let mut block = tool_use(call);
            block["input"] = json!({});
            events += &self.start(&block);
            events += &self.delta(&json!({"type": "input_json_delta", "partial_json": input(call).to_string()}));
            events += &self.stop();
        }
        let delta = json!({"stop_reason": stop_reason(end.outcome.stop_reason), "stop_sequence": null});
        let usage = usage(end.outcome.usage);
        events += &event(&json!({"type": "message_delta", "delta": delta, "usage": usage}));
        events + &event(&json!({"type": "message_stop"}))
    }

    fn fail(&mut self, failure: &ProxyFailure) -> String {
        event(&errors::document(failure))
    }

    fn refusal(&self, failure: ProxyFailure) -> Response {
        errors::AnthropicError::from(failure).into_response()
    }

    fn whole(&mut self, text: &str, end: &AnswerEnd) -> Value {
        let text = Some(text).filter(|text| !text.is_empty()).map(text_block);
        let content: Vec<_> = text.into_iter().chain(end.outcome.calls.iter().map(tool_use)).collect();
        self.message(&content, Some(stop_reason(end.outcome.stop_reason)), end.outcome.usage)
    }
}

fn text_block(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn tool_use(call: &ToolCall) -> Value {
    json!({"type": "tool_use", "id": call.id, "name": call.name, "input": input(call)})
}

/// The input of a call, which is an object for these clients whatever the model wrote.
fn input(call: &ToolCall) -> Value {
    if call.arguments.is_object() { call.arguments.clone() } else { json!({"not_an_object": call.arguments}) }
}

fn stop_reason(reason: StopReason) -> &'static str {
    match reason {
        StopReason::CallsClient => "tool_use",
        StopReason::Refused => "refusal",
        reason if reason.is_truncated() => "max_tokens",
        _ => "end_turn",
    }
}

/// Anthropic counts tokens from a cache apart.
fn usage(used: TurnUsage) -> Value {
    json!({
        "input_tokens": used.input_tokens.saturating_sub(used.cached_tokens),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": used.cached_tokens,
        "output_tokens": used.output_tokens,
    })
}

#[cfg(test)]
mod tests;
