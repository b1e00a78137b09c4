//! The shapes of chat completions.

use std::time::Duration;

use agent_loop::model::conversation::StopReason;
use serde_json::{Value, json};

use super::*;
use crate::proxy::answer::AnswerEnd;
use crate::proxy::format::AnswerFormat as _;
use crate::proxy::tests::{events_of, outcome};

fn format(includes_usage: bool) -> CompletionFormat {
    CompletionFormat::of_id(CompletionKind::Chat, "chatcmpl-1", includes_usage)
}

pub(in crate::openai) fn end(reason: StopReason) -> AnswerEnd {
    let outcome = outcome("Hello.", reason);
    AnswerEnd { outcome, thinking: Duration::from_millis(3), total: Duration::from_millis(5) }
}

pub(in crate::openai) fn used() -> Value {
    json!({
        "prompt_tokens": 20, "completion_tokens": 10, "total_tokens": 30,
        "prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0,
            "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0},
    })
}

#[test]
fn a_completion_has_the_fields_of_the_reference() {
    let expected = json!({
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 7,
        "model": "agent-magic-tool",
        "choices": [{
            "index": 0,
            "message": {"role": "assistant", "content": "Hello.", "refusal": null, "annotations": []},
            "logprobs": null,
            "finish_reason": "stop",
        }],
        "system_fingerprint": null,
        "usage": used(),
    });
    assert_eq!(format(false).whole("Hello.", &end(StopReason::Completed)), expected);
}

#[test]
fn a_stream_begins_with_the_role_and_ends_with_the_reason() {
    let chunk = |delta: Value, reason: Value| {
        json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 7, "model": "agent-magic-tool",
            "choices": [{"index": 0, "delta": delta, "logprobs": null, "finish_reason": reason}],
            "system_fingerprint": null})
    };
    let mut format = format(false);
    let sent =
        format.begin() + &format.text("Hello.") + &format.keep_alive() + &format.end(&end(StopReason::Completed));
    let expected = [
        chunk(json!({"role": "assistant", "content": "", "refusal": null}), Value::Null),
        chunk(json!({"content": "Hello."}), Value::Null),
        chunk(json!({}), json!("stop")),
    ];
    let (events, rest) = events_of(&sent);
    assert_eq!(events, expected);
    assert_eq!(rest, [": keep-alive", "data: [DONE]"]);
}

#[test]
fn usage_is_streamed_if_it_was_asked_for() {
    let mut format = format(true);
    let (begun, _) = events_of(&format.begin());
    assert_eq!(begun[0]["usage"], Value::Null);
    assert!(begun[0].as_object().expect("an object").contains_key("usage"));
    let (events, _) = events_of(&format.end(&end(StopReason::MaxIterations)));
    assert_eq!(events[0]["choices"][0]["finish_reason"], "length");
    assert_eq!((&events[1]["choices"], &events[1]["usage"]), (&json!([]), &used()));
}

#[test]
fn a_stream_that_fails_has_the_error_as_an_event() {
    let failure = ProxyFailure::new(axum::http::StatusCode::BAD_GATEWAY, "model-failed", "it broke");
    let (events, _) = events_of(&format(false).fail(&failure));
    let error = json!({"message": "it broke", "type": "server_error", "param": null, "code": "model-failed"});
    assert_eq!(events, [json!({ "error": error })]);
}
