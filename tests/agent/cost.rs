//! The token cost of a whole task: one tool against one definition per subtool, as the model counts it.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};

use super::aimock::Model;
use crate::world::World;

/// The rules of the task with one tool (find, run, be woken, read, answer), and with a definition per subtool.
fn rules() -> Value {
    json!([
        {"last": "^Call item 7", "tools": true, "seen": "command_executor", "runs": ["agent-magic-tool list tools --query='number 7' --limit 1"]},
        {"last": "\"status\":\\s*\"pending\"", "says": "It is under way."},
        {"last": "result is final", "runs": ["agent-magic-tool read $ID"]},
        {"last": "\"data\":", "says": "Seven."},
        {"last": "item_7", "runs": ["agent-magic-tool run item_7 --input='{\"text\": \"a\"}'"]},
        {"last": "^seven$", "says": "Seven."},
        {"last": "^Call item 7", "calls": [{"name": "item_7", "arguments": {"text": "a"}}]},
    ])
}

/// Subtools of a typical API, about as large as the ones we ship.
fn catalog(count: usize) -> Value {
    let item = |number: usize| {
        let properties = json!({
            "text": {"type": "string", "description": "The text for the item; any text is valid."},
            "limit": {"type": "integer", "minimum": 1, "maximum": 100, "description": "The most results."},
            "label": {"type": "string", "description": "Only items with this label."},
        });
        (
            format!("item_{number}"),
            json!({
                "description": format!("Calls item number {number} with a text, and returns its answer."),
                "annotations": {"readOnlyHint": true},
                "input": {"type": "object", "properties": properties, "required": ["text"]},
                "run": {"process": {"argv": ["echo", "seven"]}}
            }),
        )
    };
    (1..=count).map(item).collect::<serde_json::Map<_, _>>().into()
}

#[test]
fn the_cost_of_one_tool_does_not_depend_on_the_number_of_subtools() {
    let mut costs = Vec::new();
    for count in [10, 100, 1000] {
        let world = World::new();
        world.define("items.json", &catalog(count));
        let Some(model) = Model::start(&world, &rules(), "") else { return };
        let ran = world.run(&["agent", "--json", "Call item 7"]);
        assert_eq!(ran.json()["answer"], "Seven.", "{ran}");
        let one_tool = ran.json()["usage"]["input_tokens"].as_u64().expect("counted");
        let listed = world.run(&["list", "tools", "--in=items", "--limit", "2000", "--format", "openai"]);
        let tools: Vec<Value> = listed.json().as_array().expect("a list").clone();
        assert_eq!(tools.len(), count);
        let native = native(&model, &tools);
        eprintln!("{count} subtools: {one_tool} input tokens with one tool, {native} with a definition for each");
        costs.push((one_tool, native));
    }
    let (least, most) =
        (costs.iter().map(|(one_tool, _)| one_tool).min(), costs.iter().map(|(one_tool, _)| one_tool).max());
    let (least, most) = (*least.expect("three"), *most.expect("three"));
    assert!(most - least < least / 20, "{costs:?}");
    assert!(costs[1].0 < costs[1].1 && costs[2].0 * 10 < costs[2].1, "{costs:?}");
}

/// Runs the same task with every definition in each request: one call, its result, the answer.
fn native(model: &Model, tools: &[Value]) -> u64 {
    let mut messages = vec![json!({"role": "user", "content": "Call item 7"})];
    let mut tokens = 0;
    loop {
        let answer = model.post(&json!({"model": "m", "messages": messages, "tools": tools}));
        tokens += answer["usage"]["prompt_tokens"].as_u64().expect("counted");
        let message = answer["choices"][0]["message"].clone();
        let Some(call) = message["tool_calls"].as_array().and_then(|calls| calls.first()) else {
            assert_eq!(message["content"], "Seven.", "{answer}");
            return tokens;
        };
        let result = json!({"role": "tool", "tool_call_id": call["id"], "content": "seven"});
        messages.extend([message, result]);
    }
}

impl Model {
    fn post(&self, request: &Value) -> Value {
        let body = request.to_string();
        let mut stream = TcpStream::connect(self.address()).expect("the model listens");
        write!(
            stream,
            "POST /v1/chat/completions HTTP/1.0\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer x\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
    }
}
