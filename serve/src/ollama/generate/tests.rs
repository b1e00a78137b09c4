//! The shapes of generated texts.

use agent_loop::model::conversation::StopReason;
use serde_json::json;

use super::*;
use crate::ollama::chat::tests::{end, lines, timeless};
use crate::proxy::format::AnswerFormat as _;

#[test]
fn a_text_has_the_fields_of_the_reference() {
    let mut format = format("agent-magic-tool".to_owned());
    let expected = json!({
        "model": "agent-magic-tool",
        "response": "Hello.",
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
    let streamed = lines(&(format.text("Hello.") + &format.keep_alive()));
    let piece = |text: &str| json!({"model": "agent-magic-tool", "response": text, "done": false});
    assert_eq!(streamed, [piece("Hello."), piece("")]);
}
