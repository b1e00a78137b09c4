//! Answers of a model that cannot be read.

use serde_json::json;

use super::stub::{Stub, StubAnswer};
use crate::world::World;

#[test]
fn a_call_of_gemini_that_cannot_be_read_is_tried_again_and_then_an_error() {
    for reason in ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE"] {
        for parts in [json!([]), json!([{"text": "I call it."}])] {
            let body = json!({"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": reason}]});
            let malformed = || StubAnswer::Raw { status: 200, body: body.to_string() };
            let ask = |script: Vec<StubAnswer>| {
                let world = World::new();
                let stub = Stub::start(&world, script, "");
                world.configure(&stub.configuration("retries = 1", ""));
                let ran = world.run(&["agent", "--json", "--no-stream", "--model", "gemini", "Count"]);
                (ran, stub.received().len())
            };
            let (ran, requests) = ask(vec![malformed(), StubAnswer::says("Done.")]);
            assert_eq!((&ran.json()["answer"], requests), (&json!("Done."), 2), "{reason}: {ran}");
            let (ran, requests) = ask(vec![malformed()]);
            assert!(ran.exit != 0 && requests == 2, "{reason}, {requests}: {ran}");
            assert!(!ran.stdout.contains("completed"), "{reason}: {ran}");
        }
    }
}
