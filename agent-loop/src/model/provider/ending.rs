//! How an answer ended, read from what the provider sent: stop reasons, refusals, errors inside an answer.
//!
//! The client library keeps the stop reason but not what stands beside it, such as why a response is incomplete or
//! that the prompt was blocked. The providers use different keys for these, so one reader serves all of them.

use serde_json::Value;

use crate::model::conversation::TurnEnd;

/// What an answer says about its end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Ending {
    /// The provider's own word, like `max_tokens`.
    pub(super) stop_reason: Option<String>,
    /// What the model says instead of an answer.
    pub(super) refusal: String,
    /// The whole prompt was blocked.
    is_blocked: bool,
    /// An error inside the answer.
    pub(super) error: Option<String>,
}

/// What each stop reason of each provider means. A word that is missing here is no reason to throw an answer away: it
/// counts as complete.
const STOP_REASONS: [(&str, TurnEnd); 37] = [
    // OpenAI, chat completions; most servers that speak it, and Ollama.
    ("stop", TurnEnd::Complete),
    ("tool_calls", TurnEnd::Complete),
    ("function_call", TurnEnd::Complete),
    ("length", TurnEnd::Truncated),
    ("model_length", TurnEnd::Truncated),
    ("content_filter", TurnEnd::Refused),
    // OpenAI, responses.
    ("completed", TurnEnd::Complete),
    ("incomplete", TurnEnd::Truncated),
    ("max_output_tokens", TurnEnd::Truncated),
    // Anthropic. A turn that pauses has more to say.
    ("end_turn", TurnEnd::Complete),
    ("stop_sequence", TurnEnd::Complete),
    ("tool_use", TurnEnd::Complete),
    ("max_tokens", TurnEnd::Truncated),
    ("model_context_window_exceeded", TurnEnd::Truncated),
    ("pause_turn", TurnEnd::Truncated),
    ("refusal", TurnEnd::Refused),
    // Gemini.
    ("STOP", TurnEnd::Complete),
    ("FINISH_REASON_UNSPECIFIED", TurnEnd::Truncated),
    ("MAX_TOKENS", TurnEnd::Truncated),
    ("OTHER", TurnEnd::Truncated),
    ("NO_IMAGE", TurnEnd::Truncated),
    ("IMAGE_OTHER", TurnEnd::Truncated),
    ("MALFORMED_FUNCTION_CALL", TurnEnd::Truncated),
    ("UNEXPECTED_TOOL_CALL", TurnEnd::Truncated),
    ("TOO_MANY_TOOL_CALLS", TurnEnd::Truncated),
    ("MISSING_THOUGHT_SIGNATURE", TurnEnd::Truncated),
    ("MALFORMED_RESPONSE", TurnEnd::Truncated),
    ("SAFETY", TurnEnd::Refused),
    ("safety", TurnEnd::Refused),
    ("RECITATION", TurnEnd::Refused),
    ("LANGUAGE", TurnEnd::Refused),
    ("BLOCKLIST", TurnEnd::Refused),
    ("PROHIBITED_CONTENT", TurnEnd::Refused),
    ("SPII", TurnEnd::Refused),
    ("IMAGE_SAFETY", TurnEnd::Refused),
    ("IMAGE_PROHIBITED_CONTENT", TurnEnd::Refused),
    ("IMAGE_RECITATION", TurnEnd::Refused),
];

impl Ending {
    /// Adds what a whole response or one event of a stream says about the end of the answer.
    pub(super) fn read(&mut self, sent: &Value) {
        // The more specific word comes later in this list, and overrides an earlier one.
        const PLACES: [&str; 9] = [
            "/response/status",
            "/choices/0/finish_reason",
            "/stop_reason",
            "/delta/stop_reason",
            "/candidates/0/finishReason",
            "/done_reason",
            "/incomplete_details/reason",
            "/response/incomplete_details/reason",
            "/promptFeedback/blockReason",
        ];
        let text = |pointer: &str| sent.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty());
        if let Some(reason) = PLACES.iter().filter_map(|pointer| text(pointer)).next_back()
            && reason != "in_progress"
            && reason != "queued"
        {
            self.stop_reason = Some(reason.to_owned());
        }
        self.is_blocked |= text("/promptFeedback/blockReason").is_some();
        let pieces = ["/choices/0/message/refusal", "/choices/0/delta/refusal"].into_iter().filter_map(text);
        self.refusal.extend(pieces);
        if sent["type"] == "response.refusal.delta" {
            self.refusal.extend(text("/delta"));
        }
        let output = sent["output"].as_array().into_iter().flatten();
        let parts = output.flat_map(|item| item["content"].as_array().into_iter().flatten());
        self.refusal.extend(parts.filter_map(|part| part["refusal"].as_str()));
        let error = ["/error/message", "/response/error/message", "/error"].into_iter().find_map(text);
        // OpenAI's event of the type `error` has the message beside the type.
        let error = error.or_else(|| text("/message").filter(|_| sent["type"] == "error"));
        self.error = error.map(str::to_owned).or(self.error.take());
    }

    pub(super) fn of(sent: &Value) -> Self {
        let mut ending = Self::default();
        ending.read(sent);
        ending
    }

    /// Whether the model tried something that the provider could not read: there is no answer, and another try may succeed.
    pub(super) fn is_malformed(&self) -> bool {
        const REASONS: [&str; 3] = ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE"];
        self.stop_reason.as_deref().is_some_and(|reason| REASONS.contains(&reason))
    }

    pub(super) fn end(&self) -> TurnEnd {
        if self.is_blocked || !self.refusal.is_empty() {
            return TurnEnd::Refused;
        }
        let known = STOP_REASONS.iter().find(|(reason, _)| self.stop_reason.as_deref() == Some(reason));
        known.map_or(TurnEnd::Complete, |(_, end)| *end)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_providers_words_for_a_cut_or_refused_answer_are_known() {
        let ends = [
            (json!({"choices": [{"finish_reason": "length"}]}), TurnEnd::Truncated),
            (json!({"choices": [{"finish_reason": "content_filter"}]}), TurnEnd::Refused),
            (json!({"choices": [{"finish_reason": "stop", "message": {"refusal": "I can't."}}]}), TurnEnd::Refused),
            (json!({"choices": [{"finish_reason": "stop", "message": {"refusal": null}}]}), TurnEnd::Complete),
            (
                json!({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}),
                TurnEnd::Truncated,
            ),
            (
                json!({"response": {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}}),
                TurnEnd::Refused,
            ),
            (json!({"type": "response.refusal.delta", "delta": "I can't."}), TurnEnd::Refused),
            (json!({"output": [{"content": [{"type": "refusal", "refusal": "No."}]}]}), TurnEnd::Refused),
            (json!({"stop_reason": "max_tokens"}), TurnEnd::Truncated),
            (json!({"type": "message_delta", "delta": {"stop_reason": "refusal"}}), TurnEnd::Refused),
            (json!({"candidates": [{"finishReason": "MAX_TOKENS"}]}), TurnEnd::Truncated),
            (json!({"candidates": [{"finishReason": "SAFETY"}]}), TurnEnd::Refused),
            (json!({"promptFeedback": {"blockReason": "OTHER"}}), TurnEnd::Refused),
            (json!({"done": true, "done_reason": "length"}), TurnEnd::Truncated),
            (json!({"done": true, "done_reason": "stop"}), TurnEnd::Complete),
            (json!({"stop_reason": "tool_use"}), TurnEnd::Complete),
            (json!({"stop_reason": "pause_turn"}), TurnEnd::Truncated),
            (json!({"type": "message_delta", "delta": {"stop_reason": "pause_turn"}}), TurnEnd::Truncated),
            (json!({"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL"}]}), TurnEnd::Truncated),
            (json!({"candidates": [{"finishReason": "UNEXPECTED_TOOL_CALL"}]}), TurnEnd::Truncated),
            (json!({"candidates": [{"finishReason": "OTHER"}]}), TurnEnd::Truncated),
            (json!({"candidates": [{"finishReason": "STOP"}]}), TurnEnd::Complete),
        ];
        for (sent, end) in ends {
            assert_eq!(Ending::of(&sent).end(), end, "{sent}");
        }
    }

    #[test]
    fn an_error_inside_an_answer_is_found() {
        for sent in [
            json!({"error": {"message": "out of memory"}}),
            json!({"error": "out of memory"}),
            json!({"type": "response.failed", "response": {"status": "failed", "error": {"message": "out of memory"}}}),
            json!({"type": "error", "message": "out of memory"}),
        ] {
            assert_eq!(Ending::of(&sent).error.as_deref(), Some("out of memory"), "{sent}");
        }
        assert_eq!(Ending::of(&json!({"error": null})).error, None);
    }
}
