//! What a client that keeps its history says of its tools, forms and results reaches the provider as it was said.

use serde_json::{Value, json};

use super::demands::PNG;
use super::{Reply, Server};
use crate::agent::stub::{Stub, StubAnswer};
use crate::world::World;

/// A server, the key of a client that keeps its history, and the model behind it, which every provider of the stub has.
struct Passage {
    world: World,
    server: Server,
    stub: Stub,
    key: String,
}

impl Passage {
    fn new(answer: StubAnswer) -> Self {
        let world = World::new();
        let stub = Stub::start(&world, vec![answer], "images = true\n");
        let made = world.run(&["serve", "key", "create", "own", "--history=client"]);
        let key = made.json()["key"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
        let server = Server::start(&world);
        Self { world, server, stub, key }
    }

    /// Asks with the key, or as a program of this machine without one.
    fn ask(&self, path: &str, body: &Value, has_key: bool) -> Reply {
        let header = if has_key { format!("Authorization: Bearer {}\r\n", self.key) } else { String::new() };
        self.server.request("POST", path, &header, &body.to_string())
    }

    /// What the provider got for this request.
    fn sent(&self, path: &str, body: &Value) -> Value {
        let reply = self.ask(path, body, true);
        assert_eq!(reply.status, 200, "{path} {body}: {}", reply.body);
        self.stub.received().pop().expect("it was asked").json()
    }
}

#[test]
fn schemas_are_as_strict_as_the_client_has_them_and_calls_as_many() {
    let passage = Passage::new(StubAnswer::says("{}"));
    let free = json!({"type": "object", "properties": {"city": {"type": "string"},
        "tags": {"type": "object", "additionalProperties": {"type": "string"}}}, "required": ["city"]});
    let exact = json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": false});
    let tool = json!({"name": "f", "description": "F.", "parameters": exact, "strict": true});
    let mut in_responses = tool.clone();
    in_responses["type"] = "function".into();
    for provider in ["openai", "openai_responses", "anthropic"] {
        let form = json!({"name": "w", "description": "The weather.", "schema": free, "strict": false});
        let chat = json!({"model": provider, "messages": [{"role": "user", "content": "Fill"}], "parallel_tool_calls": false,
            "tools": [{"type": "function", "function": tool}], "response_format": {"type": "json_schema", "json_schema": form}});
        let mut format = form.clone();
        format["type"] = "json_schema".into();
        let response = json!({"model": provider, "input": "Fill", "parallel_tool_calls": false, "tools": [in_responses],
            "text": {"format": format}});
        for (path, body) in [("/v1/chat/completions", chat), ("/v1/responses", response)] {
            let sent = passage.sent(path, &body);
            let tools = sent["tools"].as_array().expect("tools");
            let (own, theirs) = (&tools[0], &tools[1]);
            let (passed, found) = match provider {
                "openai" => (&sent["response_format"]["json_schema"], &theirs["function"]),
                "openai_responses" => (&sent["text"]["format"], theirs),
                _ => (&Value::Null, theirs),
            };
            let place = format!("{provider} by {path}: {sent:#}");
            assert_eq!((&found["name"], &found["strict"]), (&json!("f"), &json!(true)), "{place}");
            assert_ne!(own["function"]["strict"].as_bool().or(own["strict"].as_bool()), Some(true), "{place}");
            if provider == "anthropic" {
                assert_eq!(sent["tool_choice"], json!({"type": "auto", "disable_parallel_tool_use": true}), "{place}");
                continue;
            }
            assert_eq!(sent["parallel_tool_calls"], false, "{place}");
            assert_eq!((&passed["schema"], &passed["strict"]), (&free, &json!(false)), "{place}");
            assert_eq!((&passed["name"], &passed["description"]), (&json!("w"), &json!("The weather.")), "{place}");
        }
        // A protocol whose own models always keep to the schema.
        let messages = json!({"model": provider, "max_tokens": 99, "messages": [{"role": "user", "content": "Fill"}],
            "output_config": {"format": {"type": "json_schema", "schema": exact}}});
        let sent = passage.sent("/v1/messages", &messages);
        assert!(sent.to_string().contains("additionalProperties"), "{provider}: {sent:#}");
        assert!(sent.get("parallel_tool_calls").is_none() && sent.get("tool_choice").is_none(), "{provider}: {sent:#}");
        let is_strict =
            sent["response_format"]["json_schema"]["strict"].as_bool().or(sent["text"]["format"]["strict"].as_bool());
        let mut likeliest = messages;
        likeliest["top_k"] = 5.into();
        if provider == "anthropic" {
            assert_eq!(passage.sent("/v1/messages", &likeliest)["top_k"], 5);
        } else {
            let refused = passage.ask("/v1/messages", &likeliest, true);
            assert!(refused.status == 400 && refused.body.contains("has no field for `top_k`"), "{}", refused.body);
        }
        assert_eq!(is_strict, (provider != "anthropic").then_some(true), "{provider}: {sent:#}");
    }
}

#[test]
fn images_in_results_are_images_for_the_model() {
    let passage = Passage::new(StubAnswer::says("A dot."));
    let url = format!("data:image/png;base64,{PNG}");
    let parameters = json!({"type": "object", "properties": {}});
    let call = json!({"id": "call_1", "type": "function", "function": {"name": "photo", "arguments": "{}"}});
    let chat = json!({"tools": [{"type": "function", "function": {"name": "photo", "parameters": parameters}}], "messages": [
        {"role": "user", "content": "photo?"}, {"role": "assistant", "content": null, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1",
            "content": [{"type": "text", "text": "here"}, {"type": "image_url", "image_url": {"url": url}}]}]});
    let output = json!([{"type": "input_text", "text": "here"}, {"type": "input_image", "image_url": url}]);
    let response = json!({"tools": [{"type": "function", "name": "photo", "parameters": parameters}], "input": [
        {"role": "user", "content": "photo?"},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "function_call", "call_id": "call_1", "name": "photo", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": output}]});
    let image = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}});
    let messages = json!({"max_tokens": 99, "tools": [{"name": "photo", "input_schema": parameters}], "messages": [
        {"role": "user", "content": "photo?"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "call_1", "name": "photo", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_1",
            "content": [{"type": "text", "text": "here"}, image]}]}]});
    for (path, mut body) in [("/v1/chat/completions", chat), ("/v1/responses", response), ("/v1/messages", messages)] {
        body["model"] = "openai".into();
        let sent = passage.sent(path, &body);
        let said = sent["messages"].as_array().expect("messages");
        let [.., result, image] = said.as_slice() else { panic!("{path}: {sent:#}") };
        assert_eq!(
            (&result["role"], &result["content"]),
            (&json!("tool"), &json!("here\n(The image follows.)")),
            "{path}"
        );
        assert_eq!(image["role"], "user", "{path}: {sent:#}");
        assert!(image["content"].to_string().contains(&url), "{path}: {sent:#}");
    }
}

#[test]
fn a_request_that_the_provider_rejects_is_the_clients_to_mend() {
    let passage = Passage::new(StubAnswer::error(400, "the schema is not accepted"));
    let chat = json!({"model": "openai", "messages": [{"role": "user", "content": "Fill"}]});
    let messages = json!({"model": "openai", "max_tokens": 9, "messages": [{"role": "user", "content": "Fill"}]});
    for (path, body) in [("/v1/chat/completions", &chat), ("/v1/messages", &messages), ("/api/chat", &chat)] {
        let reply = passage.ask(path, body, true);
        assert_eq!(reply.status, 400, "{path}: {}", reply.body);
        assert!(reply.body.contains("the schema is not accepted"), "{path}: {}", reply.body);
        if path != "/api/chat" {
            assert_eq!(reply.json()["error"]["type"], "invalid_request_error", "{path}: {}", reply.body);
        }
    }
    let hint = json!({"model": "x", "max_tokens": 9, "top_k": 5, "messages": [{"role": "user", "content": "hi"}]});
    let reply = passage.ask("/v1/messages", &hint, false);
    assert!(reply.body.contains("the schema is not accepted"), "a hint is no reason to refuse: {}", reply.body);
}

#[test]
fn an_item_is_known_by_its_id_where_it_is_stored() {
    let passage = Passage::new(StubAnswer::says("Hello Anna."));
    let first = passage.ask("/v1/responses", &json!({"input": "My name is Anna"}), false).json();
    let id = &first["output"][0]["id"];
    let ask = |id: &Value, has_key| {
        let input = json!([{"role": "user", "content": "My name is Anna"}, {"type": "item_reference", "id": id},
            {"role": "user", "content": "What is my name?"}]);
        passage.ask("/v1/responses", &json!({"input": input}), has_key)
    };
    assert_eq!(ask(id, false).status, 200);
    let sent = passage.stub.received().pop().expect("asked").json();
    let said: Vec<_> =
        sent["messages"].as_array().expect("a list").iter().filter(|one| one["role"] != "system").collect();
    assert_eq!(said.len(), 3, "it is one conversation: {sent:#}");
    assert!(said[1].to_string().contains("Hello Anna."), "{sent:#}");
    let sessions = passage.server.get("/api/v1/sessions").json();
    assert_eq!(sessions["sessions"].as_array().map(Vec::len), Some(1), "{sessions}");
    for (id, has_key) in [(id, true), (&json!("msg_of_others"), false), (&Value::Null, false)] {
        let reply = ask(id, has_key);
        let error = &reply.json()["error"];
        assert_eq!((reply.status, &error["param"]), (400, &json!("input.1")), "{}", reply.body);
        assert!(error["message"].as_str().is_some_and(|it| it.contains("set `store` to false")), "{}", reply.body);
    }
    drop(passage.world);
}
