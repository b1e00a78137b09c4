//! Anthropic's clients: what only their protocol has, with the official SDK for Python. What every protocol has is in
//! `openai.rs` and `demands.rs`.

use serde_json::{Value, json};

use super::{Server, sdk, world_with_model};

/// The header with which each request of these clients says what it speaks.
const VERSION: &str = "anthropic-version: 2023-06-01\r\n";

fn user(content: &Value) -> Value {
    json!({"role": "user", "content": content})
}

fn text(text: &str) -> Value {
    json!([{"type": "text", "text": text}])
}

#[test]
fn a_session_takes_blocks_and_the_name_of_the_user() {
    let Some(sdk) = sdk::anthropic() else { return };
    let Some((world, model)) = world_with_model("") else { return };
    let server = Server::start(&world);
    let messages =
        json!([user(&text("hi")), {"role": "assistant", "content": text("Hello.")}, user(&text("echo one"))]);
    let thinking = json!({"type": "enabled", "budget_tokens": 2000});
    let requests = json!([
        {"api": "messages", "messages": messages, "more": {"system": text("You are a pirate."), "thinking": thinking,
            "metadata": {"user_id": "anna"}, "max_tokens": 4000}},
        {"api": "count", "message": "one two three four"},
    ]);
    let answers = sdk.run(&server.url(), "none", &requests);
    assert_eq!(answers[0]["answer"]["finish"], "end_turn", "{}", answers[0]);
    assert!(answers[0]["answer"]["text"].as_str().is_some_and(|text| text.starts_with("one one")), "{}", answers[0]);
    assert!(!json!(model.asked()).to_string().contains("pirate"), "a session has a prompt of its own");
    assert_eq!(answers[1]["answer"]["tokens"], 4, "{}", answers[1]);
    let listed = server.get("/api/v1/sessions").json();
    assert_eq!(listed["sessions"][0]["client"], "llama-127.0.0.1@anna", "{listed}");
}

#[test]
fn a_client_with_its_own_history_gives_instructions_and_limits() {
    let Some(sdk) = sdk::anthropic() else { return };
    let Some((world, model)) = world_with_model("") else { return };
    let made = world.run(&["serve", "key", "create", "own", "--history=client"]);
    let key = made.json()["key"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
    let server = Server::start(&world);
    // This SDK has no argument for a temperature any more.
    let more = json!({"system": "You are a pirate.", "extra_body": {"temperature": 0.25}, "stop_sequences": ["END"],
        "max_tokens": 77});
    let requests = json!([
        {"api": "messages", "stream": true, "model": "openai", "message": "echo one", "more": more},
        {"api": "count", "model": "anthropic", "message": "echo one"},
        {"api": "messages", "model": "openai", "message": "echo one", "more": {"extra_body": {"top_k": 5}}},
    ]);
    let answers = sdk.run(&server.url(), &key, &requests);
    assert_eq!(answers[0]["answer"]["text"], "one one one one one one one one", "{}", answers[0]);
    let asked = json!(model.asked().last().expect("asked")).to_string();
    for given in ["pirate", "0.25", "END", "77"] {
        assert!(asked.contains(given), "{given}: {asked}");
    }
    let tokens = answers[1]["answer"]["tokens"].as_u64().expect("counted");
    assert!(tokens > 500, "our own prompt counts too: {tokens}");
    assert_eq!(answers[2]["error"]["status"], 400, "{}", answers[2]);
}

#[test]
fn errors_have_the_form_of_the_protocol() {
    let Some(sdk) = sdk::anthropic() else { return };
    let Some((world, _model)) = world_with_model("") else { return };
    let server = Server::start(&world);
    let pdf =
        json!([{"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBE"}}]);
    let asks = |more: Value| {
        let mut request = json!({"api": "messages", "message": "echo x"});
        request.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        request
    };
    let requests = json!([
        asks(json!({"messages": [user(&pdf)]})),
        asks(json!({"more": {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}})),
        asks(json!({"more": {"thinking": {"type": "deep"}}})),
        asks(json!({"more": {"extra_body": {"mcp_servers": [{"name": "x"}]}}})),
    ]);
    let answers = sdk.run(&server.url(), "none", &requests);
    let expected = [
        (400, "invalid_request_error", "`document` cannot be read"),
        (400, "invalid_request_error", "provider's own"),
        (400, "invalid_request_error", "thinking"),
        (400, "invalid_request_error", "`mcp_servers`"),
    ];
    for (answer, (status, kind, words)) in answers.iter().zip(expected) {
        let error = &answer["error"];
        assert_eq!((error["status"].as_u64(), error["type"].as_str()), (Some(status), Some(kind)), "{answer}");
        assert!(error["message"].as_str().is_some_and(|message| message.contains(words)), "{answer}");
    }
    let wrong = sdk.run(&server.url(), "amt_wrong", &json!([asks(json!({}))])).remove(0);
    assert_eq!(
        (&wrong["error"]["kind"], &wrong["error"]["type"]),
        (&json!("AuthenticationError"), &json!("authentication_error"))
    );
    let large = json!({"messages": [user(&json!("x".repeat(4 << 20)))]}).to_string();
    for (method, path, body, status, kind) in [
        ("POST", "/v1/messages", "{\"messages\": []}", 400, "invalid_request_error"),
        ("POST", "/v1/messages", "{}", 400, "invalid_request_error"),
        ("POST", "/v1/messages", large.as_str(), 413, "request_too_large"),
        ("GET", "/v1/models/claude-9", "", 404, "not_found_error"),
        ("GET", "/v1/messages", "", 405, "invalid_request_error"),
        ("POST", "/v1/messages/batches", "{}", 404, "not_found_error"),
        ("POST", "/v1/complete", "{}", 404, "not_found_error"),
    ] {
        let reply = server.request(method, path, VERSION, body);
        assert_eq!(
            (reply.status, reply.json()["error"]["type"].as_str()),
            (status, Some(kind)),
            "{path}: {}",
            reply.body
        );
        assert_eq!(reply.headers["request-id"], reply.json()["request_id"], "{path}");
    }
    // The same path is OpenAI's without the header.
    assert_eq!(server.get("/v1/models").json()["object"], "list");
}
