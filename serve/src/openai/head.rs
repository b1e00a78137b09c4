//! What chat completions, text completions and their chunks begin with.

use serde_json::{Value, json};

use super::{event, usage};
use crate::proxy::answer::AnswerEnd;
use crate::proxy::question::answering_model;
use crate::proxy::request::ProxyRequest;
use crate::proxy::unix_seconds;

/// The fields that all chunks of one completion share.
#[derive(Debug)]
pub(super) struct CompletionHead {
    id: String,
    created: i64,
    model: String,
    /// Whether a stream ends with a chunk that says what was used.
    includes_usage: bool,
}

impl CompletionHead {
    pub(super) fn new(prefix: &str, request: &ProxyRequest) -> Self {
        Self {
            id: super::new_id(prefix),
            created: unix_seconds(),
            model: answering_model(request),
            includes_usage: request.field("stream_options").is_some_and(|options| options["include_usage"] == true),
        }
    }

    /// The head of a test's completion.
    #[cfg(test)]
    pub(super) fn of_id(id: &str, includes_usage: bool) -> Self {
        Self { id: id.to_owned(), created: 7, model: "agent-magic-tool".to_owned(), includes_usage }
    }

    /// In a stream, only the last chunk says what was used; in the others the field is null, if it was asked for.
    pub(super) fn document(&self, object: &str, choices: &Value, used: Option<Value>) -> Value {
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

    /// What a stream ends with, after the chunk that says why.
    pub(super) fn last_events(&self, object: &str, end: &AnswerEnd) -> String {
        let mut events = String::new();
        if self.includes_usage {
            events = event(&self.document(object, &json!([]), Some(usage(end.outcome.usage))));
        }
        events + "data: [DONE]\n\n"
    }
}
