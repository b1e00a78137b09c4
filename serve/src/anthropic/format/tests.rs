//! The message and its events, compared as wholes.

use std::time::Duration;

use super::*;
use crate::proxy::tests::{events_of, outcome};

fn format() -> MessageFormat {
    MessageFormat::new("msg_1".to_owned(), "agent-magic-tool".to_owned())
}

fn end(reason: StopReason, calls: &[ToolCall]) -> AnswerEnd {
    let mut outcome = outcome("Hello.", reason);
    outcome.calls = calls.to_vec();
    AnswerEnd { outcome, thinking: Duration::ZERO, total: Duration::ZERO }
}

fn call() -> ToolCall {
    ToolCall { id: "call_1".to_owned(), name: "f".to_owned(), arguments: json!({"a": 1}) }
}

fn used() -> Value {
    json!({"input_tokens": 16, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 4, "output_tokens": 10})
}

#[test]
fn a_message_has_texts_and_calls() {
    let whole = format().whole("Hello.", &end(StopReason::CallsClient, &[call()]));
    let expected = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "agent-magic-tool",
        "content": [
            {"type": "text", "text": "Hello."},
            {"type": "tool_use", "id": "call_1", "name": "f", "input": {"a": 1}},
        ],
        "stop_reason": "tool_use", "stop_sequence": null, "usage": used(),
    });
    assert_eq!(whole, expected);
    let reason = |reason| format().whole("", &end(reason, &[]))["stop_reason"].clone();
    assert_eq!(reason(StopReason::Completed), "end_turn");
    assert_eq!(reason(StopReason::BudgetExhausted), "max_tokens");
    assert_eq!(reason(StopReason::Refused), "refusal");
}

#[test]
fn a_stream_has_the_events_of_the_reference_in_their_order() {
    let mut format = format();
    let sent = format.begin()
        + &format.text("Hel")
        + &format.text("lo.")
        + &format.end(&end(StopReason::CallsClient, &[call()]));
    let (events, names) = events_of(&sent);
    let kinds: Vec<_> = events.iter().map(|event| event["type"].as_str().expect("a type")).collect();
    let expected = [
        "message_start",
        "ping",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ];
    assert_eq!(kinds, expected);
    assert_eq!(names, expected.map(|name| format!("event: {name}")));
    let indexes: Vec<_> = events.iter().filter_map(|event| event["index"].as_u64()).collect();
    assert_eq!(indexes, [0, 0, 0, 0, 1, 1, 1]);
    assert_eq!(events[7]["delta"], json!({"type": "input_json_delta", "partial_json": "{\"a\":1}"}));
    assert_eq!(events[9]["usage"], used());
    assert_eq!(events[9]["delta"]["stop_reason"], "tool_use");
}

#[test]
fn a_failure_in_a_stream_is_an_event() {
    let failure = ProxyFailure::invalid("messages", "so");
    let expected = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"messages: so (invalid-input)\"}}\n\n";
    assert_eq!(format().fail(&failure), expected);
}
