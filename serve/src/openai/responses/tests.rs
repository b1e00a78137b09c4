//! The shapes and the order of the events of responses.

use super::*;
use crate::openai::chat::tests::end;
use crate::proxy::tests::events_of;

fn format() -> ResponseFormat {
    let given = json!({"instructions": null, "metadata": {}, "previous_response_id": "resp_0",
        "prompt_cache_key": null, "safety_identifier": null, "user": "anna"});
    ResponseFormat {
        id: "resp_1".to_owned(),
        message_id: "msg_1".to_owned(),
        created: 7,
        model: "agent-magic-tool".to_owned(),
        given: given.as_object().expect("an object").clone(),
        sequence: 0,
        text: String::new(),
        keeper: None,
    }
}

fn response(status: &str, output: &Value) -> Value {
    json!({
        "id": "resp_1", "object": "response", "created_at": 7, "status": status, "background": false, "error": null,
        "incomplete_details": null, "max_output_tokens": null, "max_tool_calls": null, "model": "agent-magic-tool",
        "output": output, "parallel_tool_calls": true, "reasoning": {"effort": null, "summary": null},
        "service_tier": "default", "temperature": null, "text": {"format": {"type": "text"}}, "tool_choice": "auto",
        "tools": [], "top_logprobs": 0, "top_p": null, "truncation": "disabled", "usage": null, "instructions": null,
        "metadata": {}, "previous_response_id": "resp_0", "prompt_cache_key": null, "safety_identifier": null,
        "user": "anna",
    })
}

fn message(status: &str) -> Value {
    let part = json!({"type": "output_text", "annotations": [], "logprobs": [], "text": "Hello."});
    json!([{"id": "msg_1", "type": "message", "status": status, "role": "assistant", "content": [part]}])
}

fn used() -> Value {
    json!({"input_tokens": 20, "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
        "output_tokens": 10, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 30})
}

#[test]
fn a_response_has_the_fields_of_the_reference() {
    let mut whole = format().whole("Hello.", &end(StopReason::Completed));
    let completed_at = whole.as_object_mut().expect("an object").shift_remove("completed_at");
    assert!(completed_at.is_some_and(|at| at.is_i64()));
    let mut expected = response("completed", &message("completed"));
    expected["usage"] = used();
    assert_eq!(whole, expected);
    let cut = format().whole("Hello.", &end(StopReason::Truncated));
    assert_eq!(
        (&cut["status"], &cut["incomplete_details"]["reason"]),
        (&json!("incomplete"), &json!("max_output_tokens"))
    );
}

#[test]
fn the_events_come_in_the_order_of_the_reference() {
    let mut format = format();
    let sent = format.begin() + &format.text("Hel") + &format.text("lo.") + &format.end(&end(StopReason::Completed));
    let (events, names) = events_of(&sent);
    let kinds: Vec<_> = events.iter().map(|event| event["type"].as_str().expect("a type")).collect();
    let expected = [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ];
    assert_eq!(kinds, expected);
    let expected: Vec<_> = expected.iter().map(|name| format!("event: {name}")).collect();
    assert_eq!(names, expected, "each event is named in the stream as well");
    assert!(events.iter().enumerate().all(|(number, event)| event["sequence_number"] == number));
    assert_eq!(events[0]["response"], response("in_progress", &json!([])));
    assert_eq!(
        events[4],
        json!({"type": "response.output_text.delta", "sequence_number": 4, "item_id": "msg_1", "output_index": 0,
            "content_index": 0, "delta": "Hel", "logprobs": []})
    );
    assert_eq!(events[6]["text"], "Hello.");
    assert_eq!(events[7]["part"], message("")[0]["content"][0]);
    assert_eq!(events[8]["item"], message("completed")[0]);
    assert_eq!((&events[9]["response"]["output"], &events[9]["response"]["usage"]), (&message("completed"), &used()));
}

#[test]
fn a_response_that_fails_says_so_in_its_own_event() {
    let failure = ProxyFailure::new(StatusCode::BAD_GATEWAY, "model-failed", "it broke");
    let (events, _) = events_of(&format().fail(&failure));
    assert_eq!(events[0]["type"], "response.failed");
    assert_eq!(events[0]["response"]["error"], json!({"code": "server_error", "message": "it broke"}));
    assert_eq!(events[0]["response"]["status"], "failed");
}
