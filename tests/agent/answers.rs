//! What the providers' answers mean: how they end, what they refuse, what their errors say.

use serde_json::json;

use super::aimock::PROVIDERS;
use super::stub::{AnswerEnd, Stub, StubAnswer};
use crate::world::{Transcript, World};

/// Runs a question with and without streaming, and returns both outcomes.
fn both_ways(world: &World, provider: &str, question: &str) -> [Transcript; 2] {
    [&["agent", "--json"][..], &["agent", "--json", "--no-stream"]]
        .map(|words| world.run(&[words, &["--model", provider, question]].concat()))
}

#[test]
fn an_answer_that_was_cut_is_truncated_and_a_refusal_is_not_an_answer() {
    for provider in PROVIDERS {
        let world = World::new();
        let cut = Stub::start(&world, vec![StubAnswer::ends("Half of", AnswerEnd::Cut)], "");
        for ran in both_ways(&world, provider, "Tell me") {
            assert_eq!(ran.exit, 6, "{provider}: {ran}");
            let outcome = ran.json();
            assert_eq!(
                (&outcome["answer"], &outcome["termination"], &outcome["truncated"]),
                (&json!("Half of"), &json!("truncated"), &json!(true)),
                "{provider}: {ran}"
            );
        }
        assert_eq!(cut.received().len(), 2, "{provider}: it is not asked again");
        if provider == "ollama" {
            continue;
        }
        let world = World::new();
        let refused = Stub::start(&world, vec![StubAnswer::ends("", AnswerEnd::Refused)], "");
        for ran in both_ways(&world, provider, "Tell me") {
            assert_eq!((ran.exit, &ran.json()["termination"]), (5, &json!("refused")), "{provider}: {ran}");
            assert_eq!(
                ran.json()["answer"],
                "[Stopped: the model or its provider refused to answer.]",
                "{provider}: {ran}"
            );
        }
        assert_eq!(refused.received().len(), 2, "{provider}: a refusal is not asked again");
    }
}

#[test]
fn a_refusal_in_words_and_a_blocked_prompt_end_as_refused() {
    let openai = json!({"id": "c", "model": "m", "choices": [{"index": 0, "finish_reason": "stop",
        "message": {"role": "assistant", "content": null, "refusal": "I cannot help with that."}}]});
    let gemini = json!({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {}});
    for (provider, body, says) in
        [("openai", openai, "I cannot help with that."), ("gemini", gemini, "[Stopped: the model")]
    {
        let world = World::new();
        Stub::start(&world, vec![StubAnswer::Raw { status: 200, body: body.to_string() }], "");
        let ran = world.run(&["agent", "--json", "--no-stream", "--model", provider, "Tell me"]);
        assert_eq!((ran.exit, &ran.json()["termination"]), (5, &json!("refused")), "{provider}: {ran}");
        assert!(ran.json()["answer"].as_str().expect("a text").starts_with(says), "{provider}: {ran}");
    }
}

#[test]
fn an_empty_answer_is_asked_for_once_more_by_every_provider() {
    for provider in PROVIDERS {
        let world = World::new();
        let stub = Stub::start(&world, vec![StubAnswer::says(""), StubAnswer::says("Here.")], "");
        let ran = world.run(&["agent", "--json", "--model", provider, "Tell me"]);
        assert_eq!(ran.json()["answer"], "Here.", "{provider}: {ran}");
        assert_eq!(ran.json()["usage"]["requests"], 2, "{provider}: {ran}");
        assert!(stub.bodies(1)[0].to_string().contains("Your answer was empty"), "{provider}");
    }
}

/// A server that rejects each request whose body contains `field`.
fn refusing(field: &'static str, message: &'static str) -> Stub {
    Stub::answering(move |request, _| {
        let body = String::from_utf8_lossy(&request.body);
        if body.contains(&format!("\"{field}\"")) {
            StubAnswer::error(400, message)
        } else if body.contains("echo one") {
            StubAnswer::says("Done.")
        } else {
            StubAnswer::runs("", &["echo one"])
        }
    })
}

#[test]
fn a_field_that_a_model_refuses_is_left_out_from_then_on_and_the_user_is_told() {
    let cases = [
        ("openai", "", "stream_options", "Unrecognized request argument supplied: stream_options"),
        ("openai", "temperature = 0.2", "temperature", "Unsupported value: 'temperature' does not support 0.2"),
        (
            "openai",
            "max_tokens = 100",
            "max_tokens",
            "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens'.",
        ),
        ("openai_responses", "reasoning = true", "summary", "Unsupported parameter: 'reasoning.summary'"),
        ("openai_responses", "effort = \"high\"", "effort", "Unsupported parameter: 'reasoning.effort'"),
        ("anthropic", "", "cache_control", "messages.0.cache_control: Extra inputs are not permitted"),
        ("gemini", "reasoning = true", "includeThoughts", "Unable to submit request because thinking is not supported"),
        ("ollama", "reasoning = true", "think", "\"m\" does not support thinking: think"),
    ];
    for (provider, setting, field, message) in cases {
        let world = World::new();
        let stub = refusing(field, message);
        world.configure(&stub.configuration("", setting));
        let ran = world.run(&["agent", "--json", "--model", provider, "Count"]);
        assert_eq!(ran.json()["answer"], "Done.", "{provider} {field}: {ran}");
        assert_eq!(stub.received().len(), 3, "{provider} {field}: one refusal, then both turns without the field");
        assert!(ran.stderr.contains(&format!("the model `{provider}` refused `")), "{provider} {field}: {ran}");
    }
}

#[test]
fn anthropics_limit_of_tokens_is_taken_from_its_message() {
    let world = World::new();
    let message = "max_tokens: 9000 > 8192, which is the maximum allowed number of output tokens for m";
    let stub = Stub::answering(move |request, _| match request.json()["max_tokens"].as_u64() {
        Some(9000) => StubAnswer::error(400, message),
        _ => StubAnswer::says("Done."),
    });
    world.configure(&stub.configuration("", "max_tokens = 9000"));
    let ran = world.run(&["agent", "--json", "--model", "anthropic", "Count"]);
    assert_eq!((ran.json()["answer"].as_str(), stub.bodies(1)[0]["max_tokens"].as_u64()), (Some("Done."), Some(8192)));
}

#[test]
fn a_rejected_request_that_names_no_optional_field_is_not_repeated() {
    let world = World::new();
    let stub = Stub::start(&world, vec![StubAnswer::error(400, "messages: roles must alternate")], "");
    let ran = world.run(&["agent", "--json", "Count"]);
    assert_eq!((ran.exit, stub.received().len()), (1, 1), "{ran}");
    assert_eq!(
        ran.error()["message"],
        "the model `openai` rejected the request with status 400: messages: roles must alternate"
    );
}

#[test]
fn what_a_local_server_says_about_itself_reaches_the_user() {
    let message = "model requires more system memory (5.6 GiB) than is available (3.1 GiB)";
    let body = json!({ "error": message }).to_string();
    for (provider, streaming) in [("ollama", "--json"), ("ollama", "--no-stream"), ("openai", "--json")] {
        let world = World::new();
        let stub = Stub::start(&world, vec![StubAnswer::Raw { status: 500, body: body.clone() }], "");
        world.configure(&stub.configuration("retries = 0\n", ""));
        let ran = world.run(&["agent", streaming, "--model", provider, "Hello"]);
        assert_eq!(ran.exit, 1, "{ran}");
        assert_eq!(
            ran.error()["message"],
            format!("the model `{provider}` failed with status 500: {message}"),
            "{provider}"
        );
    }
    let world = World::new();
    let inside = format!("{}\n{body}\n", json!({"message": {"role": "assistant", "content": "Hal"}, "done": false}));
    let stub = Stub::start(&world, vec![StubAnswer::Raw { status: 200, body: inside }], "");
    world.configure(&stub.configuration("retries = 0\n", ""));
    let ran = world.run(&["agent", "--json", "--model", "ollama", "Hello"]);
    assert_eq!(ran.error()["message"], format!("the model `ollama` failed in the middle of its answer: {message}"));
}

#[test]
fn a_call_after_prose_and_a_wrong_name_are_understood_from_a_model_that_writes_its_calls() {
    let world = World::new();
    let call = json!({"name": "command_executor", "arguments": {"command": "echo hello"}});
    let wrong = json!({"name": "gmail_send_message", "arguments": {"to": "a"}});
    let script = vec![
        StubAnswer::says(&format!("I will look at it first.\n\n```json\n{call}\n```")),
        StubAnswer::says(&format!("Now the mail.\n<tool_call>{wrong}</tool_call>")),
        StubAnswer::says("Both done."),
    ];
    let stub = Stub::start(&world, script, "");
    let ran = world.run(&["agent", "--json", "--model", "text", "Do both"]);
    assert_eq!(ran.json()["answer"], "Both done.", "{ran}");
    let bodies = stub.bodies(0);
    assert!(bodies[1].to_string().contains("<tool_response>\\nhello"), "{}", bodies[1]);
    assert!(bodies[2].to_string().contains("agent-magic-tool run gmail_send_message"), "{}", bodies[2]);
}

#[test]
fn a_question_that_cannot_start_leaves_no_session_and_a_number_is_never_reused() {
    let world = World::new();
    let missing = world.run(&["agent", "Hello"]);
    assert_eq!(missing.error()["code"], "no-model", "{missing}");
    assert_eq!(world.run(&["agent", "--sessions"]).json(), json!([]));
    Stub::start(&world, vec![StubAnswer::says("Hello.")], "");
    assert_eq!(world.run(&["agent", "--json", "Hello"]).json()["session"], 101);
    assert_eq!(world.run(&["agent", "--delete", "101"]).exit, 0);
    assert_eq!(world.run(&["agent", "--json", "Hello"]).json()["session"], 102);
}
