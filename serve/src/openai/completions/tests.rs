//! The shapes of text completions.

use agent_loop::model::conversation::StopReason;
use serde_json::json;

use super::*;
use crate::openai::chat::tests::{end, used};
use crate::proxy::format::AnswerFormat as _;
use crate::proxy::tests::events_of;

fn format(includes_usage: bool) -> CompletionFormat {
    CompletionFormat::of_id(CompletionKind::Text, "cmpl-1", includes_usage)
}

#[test]
fn a_completion_has_the_fields_of_the_reference() {
    let expected = json!({
        "id": "cmpl-1",
        "object": "text_completion",
        "created": 7,
        "model": "agent-magic-tool",
        "choices": [{"text": "Hello.", "index": 0, "logprobs": null, "finish_reason": "stop"}],
        "system_fingerprint": null,
        "usage": used(),
    });
    assert_eq!(format(false).whole("Hello.", &end(StopReason::Completed)), expected);
}

#[test]
fn a_stream_is_of_the_same_documents() {
    let mut format = format(true);
    assert_eq!(format.begin(), ": keep-alive\n\n");
    let sent = format.text("Hello.") + &format.end(&end(StopReason::Refused));
    let (events, rest) = events_of(&sent);
    let expected = json!({"id": "cmpl-1", "object": "text_completion", "created": 7, "model": "agent-magic-tool",
        "choices": [{"text": "Hello.", "index": 0, "logprobs": null, "finish_reason": null}],
        "system_fingerprint": null, "usage": null});
    assert_eq!(events[0], expected);
    assert_eq!(events[1]["choices"][0]["finish_reason"], "content_filter");
    assert_eq!(events[2]["usage"], used());
    assert_eq!(rest, ["data: [DONE]"]);
}
