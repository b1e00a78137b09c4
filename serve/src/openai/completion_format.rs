//! Chat completions and text completions, and the chunks of both: they differ in their names and in where the text is.

use agent_loop::model::conversation::ToolCall;
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};

use super::{errors, event, finish_reason, usage};
use crate::proxy::answer::AnswerEnd;
use crate::proxy::failure::ProxyFailure;
use crate::proxy::format::AnswerFormat;
use crate::proxy::question::answering_model;
use crate::proxy::request::ProxyRequest;
use crate::proxy::unix_seconds;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CompletionKind {
    Chat,
    Text,
}

/// Writes one completion, or its chunks.
#[derive(Debug)]
pub(super) struct CompletionFormat {
    kind: CompletionKind,
    id: String,
    created: i64,
    model: String,
    /// Whether a stream ends with a chunk that says what was used.
    includes_usage: bool,
}

impl CompletionFormat {
    pub(super) fn new(kind: CompletionKind, request: &ProxyRequest) -> Self {
        let prefix = if kind == CompletionKind::Chat { "chatcmpl-" } else { "cmpl-" };
        Self {
            kind,
            id: super::new_id(prefix),
            created: unix_seconds(),
            model: answering_model(request),
            includes_usage: request.field("stream_options").is_some_and(|options| options["include_usage"] == true),
        }
    }

    /// The completion of a test.
    #[cfg(test)]
    pub(super) fn of_id(kind: CompletionKind, id: &str, includes_usage: bool) -> Self {
        Self { kind, id: id.to_owned(), created: 7, model: "agent-magic-tool".to_owned(), includes_usage }
    }

    /// In a stream, only the last chunk says what was used; in the others the field is null, if it was asked for.
    fn document(&self, object: &str, choices: &Value, used: Option<Value>) -> Value {
        let mut document = json!({
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": self.model,
            "choices": choices,
            "system_fingerprint": null,
        });
        if self.includes_usage || used.is_some() {
            document["usage"] = used.into();
        }
        document
    }

    fn chunk(&self, choices: &Value, used: Option<Value>) -> String {
        let object = if self.kind == CompletionKind::Chat { "chat.completion.chunk" } else { "text_completion" };
        event(&self.document(object, choices, used))
    }

    /// A chunk with this text, or with the reason why the text ends.
    fn text_chunk(&self, text: Option<&str>, reason: Option<&str>) -> String {
        let choice = match (self.kind, text) {
            (CompletionKind::Chat, Some(text)) => chat_choice("delta", &json!({"content": text}), reason),
            (CompletionKind::Chat, None) => chat_choice("delta", &json!({}), reason),
            (CompletionKind::Text, text) => text_choice(text.unwrap_or_default(), reason),
        };
        self.chunk(&choice, None)
    }
}

fn chat_choice(field: &str, message: &Value, reason: Option<&str>) -> Value {
    json!([{"index": 0, field: message, "logprobs": null, "finish_reason": reason}])
}

fn text_choice(text: &str, reason: Option<&str>) -> Value {
    json!([{"text": text, "index": 0, "logprobs": null, "finish_reason": reason}])
}

/// The calls of the client's tools.
fn tool_calls(calls: &[ToolCall]) -> Vec<Value> {
    let call = |call: &ToolCall| {
        let function = json!({"name": call.name, "arguments": call.arguments.to_string()});
        json!({"id": call.id, "type": "function", "function": function})
    };
    calls.iter().map(call).collect()
}

impl AnswerFormat for CompletionFormat {
    fn begin(&mut self) -> String {
        match self.kind {
            CompletionKind::Chat => {
                let role = json!({"role": "assistant", "content": "", "refusal": null});
                self.chunk(&chat_choice("delta", &role, None), None)
            }
            // Nothing that a client could take for text: there is no role to tell.
            CompletionKind::Text => self.keep_alive(),
        }
    }

    fn text(&mut self, text: &str) -> String {
        self.text_chunk(Some(text), None)
    }

    fn end(&mut self, end: &AnswerEnd) -> String {
        let mut events = String::new();
        if !end.outcome.calls.is_empty() {
            let mut calls = tool_calls(&end.outcome.calls);
            for (number, call) in calls.iter_mut().enumerate() {
                call["index"] = number.into();
            }
            events += &self.chunk(&chat_choice("delta", &json!({"tool_calls": calls}), None), None);
        }
        events += &self.text_chunk(None, Some(finish_reason(end.outcome.stop_reason)));
        if self.includes_usage {
            events += &self.chunk(&json!([]), Some(usage(end.outcome.usage)));
        }
        events + "data: [DONE]\n\n"
    }

    fn fail(&mut self, failure: &ProxyFailure) -> String {
        event(&errors::document(failure))
    }

    fn refusal(&self, failure: ProxyFailure) -> Response {
        errors::OpenAiError::from(failure).into_response()
    }

    fn whole(&mut self, text: &str, end: &AnswerEnd) -> Value {
        let reason = Some(finish_reason(end.outcome.stop_reason));
        let (object, choice) = match self.kind {
            CompletionKind::Chat => {
                let mut message = json!({"role": "assistant", "content": text, "refusal": null, "annotations": []});
                if !end.outcome.calls.is_empty() {
                    message["tool_calls"] = tool_calls(&end.outcome.calls).into();
                }
                ("chat.completion", chat_choice("message", &message, reason))
            }
            CompletionKind::Text => ("text_completion", text_choice(text, reason)),
        };
        self.document(object, &choice, Some(usage(end.outcome.usage)))
    }
}
