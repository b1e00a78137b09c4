//! The shapes of chats.

use std::time::Duration;

use agent_loop::model::conversation::StopReason;
use serde_json::Value;

use super::*;
use crate::proxy::answer::AnswerEnd;
use crate::proxy::format::AnswerFormat as _;
use crate::proxy::tests::outcome;

pub(in crate::ollama) fn end(reason: StopReason) -> AnswerEnd {
    let outcome = outcome("Hello.", reason);
    AnswerEnd { outcome, thinking: Duration::from_millis(3), total: Duration::from_millis(5) }
}

/// The document without its time, which must be one.
pub(in crate::ollama) fn timeless(mut document: Value) -> Value {
    let at = document.as_object_mut().expect("an object").shift_remove("created_at").expect("a time");
    at.as_str().expect("a text").parse::<jiff::Timestamp>().expect("a time");
    document
}

/// The documents of a stream.
pub(in crate::ollama) fn lines(sent: &str) -> Vec<Value> {
    sent.lines().map(|line| timeless(serde_json::from_str(line).expect("JSON"))).collect()
}

#[test]
fn a_chat_has_the_fields_of_the_reference() {
    let mut format = format("agent-magic-tool".to_owned());
    let expected = json!({
        "model": "agent-magic-tool",
        "message": {"role": "assistant", "content": "Hello."},
        "done": true,
        "done_reason": "stop",
        "total_duration": 5_000_000,
        "load_duration": 0,
        "prompt_eval_count": 20,
        "prompt_eval_duration": 3_000_000,
        "eval_count": 10,
        "eval_duration": 2_000_000,
    });
    assert_eq!(timeless(format.whole("Hello.", &end(StopReason::Completed))), expected);
}

#[test]
fn a_stream_has_one_document_in_each_line() {
    let mut format = format("agent-magic-tool:latest".to_owned());
    let sent =
        format.begin() + &format.text("Hel\nlo.") + &format.keep_alive() + &format.end(&end(StopReason::MaxIterations));
    let lines = lines(&sent);
    let expected = json!({"model": "agent-magic-tool:latest", "message": {"role": "assistant", "content": "Hel\nlo."}, "done": false});
    assert_eq!(lines[1], expected);
    assert_eq!((&lines[0]["message"]["content"], &lines[0]["done"]), (&json!(""), &json!(false)));
    assert_eq!(lines[0], lines[2], "what keeps the connection open is an empty piece");
    assert_eq!((lines.len(), &lines[3]["done_reason"], &lines[3]["done"]), (4, &json!("length"), &json!(true)));
    let failure = ProxyFailure::new(axum::http::StatusCode::BAD_GATEWAY, "model-failed", "it broke");
    assert_eq!(format.fail(&failure), "{\"error\":\"it broke\"}\n");
}
