//! The documents of an answer. They differ by path only in the field that holds the text.

use agent_loop::model::conversation::ToolCall;
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};

use super::{LINES, errors, finish, head, line};
use crate::proxy::answer::AnswerEnd;
use crate::proxy::failure::ProxyFailure;
use crate::proxy::format::AnswerFormat;

/// Writes an answer in NDJSON, or as one document.
#[derive(Debug)]
pub(super) struct OllamaFormat {
    /// The model as the client names it.
    pub(super) model: String,
    /// The field with the text.
    pub(super) field: &'static str,
    /// The value of that field.
    pub(super) value: fn(&str) -> Value,
}

impl OllamaFormat {
    pub(super) fn document(&self, text: &str) -> Value {
        let mut document = head(&self.model);
        document[self.field] = (self.value)(text);
        document["done"] = false.into();
        document
    }

    /// Adds the calls of the client's tools, which only a chat can have.
    fn add_calls(&self, document: &mut Value, calls: &[ToolCall]) {
        if calls.is_empty() {
            return;
        }
        let call =
            |call: &ToolCall| json!({"id": call.id, "function": {"name": call.name, "arguments": call.arguments}});
        document[self.field]["tool_calls"] = calls.iter().map(call).collect();
    }
}

impl AnswerFormat for OllamaFormat {
    fn stream_type(&self) -> &'static str {
        LINES
    }

    fn begin(&mut self) -> String {
        // Sends the headers; a blank line would be no document.
        self.keep_alive()
    }

    fn text(&mut self, text: &str) -> String {
        line(&self.document(text))
    }

    fn keep_alive(&mut self) -> String {
        line(&self.document(""))
    }

    fn end(&mut self, end: &AnswerEnd) -> String {
        let mut lines = String::new();
        if !end.outcome.calls.is_empty() {
            let mut document = self.document("");
            self.add_calls(&mut document, &end.outcome.calls);
            lines += &line(&document);
        }
        let mut last = self.document("");
        finish(&mut last, end);
        lines + &line(&last)
    }

    fn fail(&mut self, failure: &ProxyFailure) -> String {
        line(&errors::document(failure))
    }

    fn refusal(&self, failure: ProxyFailure) -> Response {
        errors::OllamaError::from(failure).into_response()
    }

    fn whole(&mut self, text: &str, end: &AnswerEnd) -> Value {
        let mut document = self.document(text);
        self.add_calls(&mut document, &end.outcome.calls);
        finish(&mut document, end);
        document
    }
}
