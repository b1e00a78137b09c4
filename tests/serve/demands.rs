//! What clients demand beside their messages, over all protocols of language models: their own tools, images, a form of the
//! answer. It is done, or refused with a reason.

use serde_json::{Value, json};

use super::{Reply, Server, sdk, subtools};
use crate::agent::aimock::{Model, PROVIDERS};
use crate::agent::stub::{Stub, StubAnswer};
use crate::world::World;

/// A picture of one pixel.
pub(super) const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// Where a client asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Chat,
    Responses,
    Ollama,
    Messages,
}

const PROTOCOLS: [Protocol; 4] = [Protocol::Chat, Protocol::Responses, Protocol::Ollama, Protocol::Messages];

impl Protocol {
    fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Responses => "/v1/responses",
            Self::Ollama => "/api/chat",
            Self::Messages => "/v1/messages",
        }
    }

    /// A request that is not streamed.
    fn body(self, messages: &[Value], more: &Value) -> Value {
        let field = if self == Self::Responses { "input" } else { "messages" };
        let mut body = json!({"model": "agent-magic-tool", "stream": false, "max_tokens": 1000, field: messages});
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        body
    }

    fn tools(self, name: &str) -> Value {
        let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}});
        let function = json!({"name": name, "description": "Says the weather.", "parameters": schema});
        match self {
            Self::Chat | Self::Ollama => json!([{"type": "function", "function": function}]),
            Self::Responses => json!([{"type": "function", "name": name, "parameters": schema}]),
            Self::Messages => json!([{"name": name, "description": "Says the weather.", "input_schema": schema}]),
        }
    }

    /// Demands an answer with this schema.
    fn form(self, schema: &Value) -> Value {
        match self {
            Self::Chat => {
                json!({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}})
            }
            Self::Responses => json!({"text": {"format": {"type": "json_schema", "name": "n", "schema": schema}}}),
            Self::Ollama => json!({ "format": schema }),
            Self::Messages => json!({"output_config": {"format": {"type": "json_schema", "schema": schema}}}),
        }
    }

    /// Demands a call of `weather`; Ollama's clients cannot.
    fn choice(self) -> Option<Value> {
        match self {
            Self::Chat => Some(json!({"tool_choice": {"type": "function", "function": {"name": "weather"}}})),
            Self::Responses => Some(json!({"tool_choice": {"type": "function", "name": "weather"}})),
            Self::Ollama => None,
            Self::Messages => Some(json!({"tool_choice": {"type": "tool", "name": "weather"}})),
        }
    }

    /// A question with a picture.
    fn picture(self) -> Value {
        let url = format!("data:image/png;base64,{PNG}");
        let content = match self {
            Self::Chat => {
                json!([{"type": "text", "text": "echo it"}, {"type": "image_url", "image_url": {"url": url}}])
            }
            Self::Responses => {
                json!([{"type": "input_text", "text": "echo it"}, {"type": "input_image", "image_url": url}])
            }
            Self::Ollama => return json!({"role": "user", "content": "echo it", "images": [PNG]}),
            Self::Messages => json!([{"type": "text", "text": "echo it"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}]),
        };
        json!({"role": "user", "content": content})
    }

    fn text(self, reply: &Value) -> String {
        let texts =
            |list: &Value| list.as_array().map(|all| all.iter().filter_map(|one| one["text"].as_str()).collect());
        match self {
            Self::Chat => reply["choices"][0]["message"]["content"].as_str().map(str::to_owned),
            Self::Responses => texts(&reply["output"][0]["content"]),
            Self::Ollama => reply["message"]["content"].as_str().map(str::to_owned),
            Self::Messages => texts(&reply["content"]),
        }
        .unwrap_or_else(|| panic!("{self:?}: no text in {reply}"))
    }

    /// The calls in an answer as name and arguments, and the messages that go on after their results.
    fn calls(self, reply: &Value, result: &str) -> (Vec<(String, Value)>, Vec<Value>) {
        let written = |text: &Value| serde_json::from_str(text.as_str().expect("text")).expect("JSON");
        let name = |value: &Value| value.as_str().expect("a name").to_owned();
        let of = |list: &Value, kind: &str| -> Vec<Value> {
            let all = list.as_array().cloned().unwrap_or_default();
            all.into_iter().filter(|one| kind.is_empty() || one["type"] == kind).collect()
        };
        match self {
            Self::Chat => {
                let message = &reply["choices"][0]["message"];
                let calls = of(&message["tool_calls"], "");
                let results =
                    calls.iter().map(|call| json!({"role": "tool", "tool_call_id": call["id"], "content": result}));
                let more = [message.clone()].into_iter().chain(results).collect();
                let call = |call: &Value| (name(&call["function"]["name"]), written(&call["function"]["arguments"]));
                (calls.iter().map(call).collect(), more)
            }
            Self::Responses => {
                let calls = of(&reply["output"], "function_call");
                let results = calls
                    .iter()
                    .map(|call| json!({"type": "function_call_output", "call_id": call["call_id"], "output": result}));
                let more = calls.iter().cloned().chain(results).collect();
                (calls.iter().map(|call| (name(&call["name"]), written(&call["arguments"]))).collect(), more)
            }
            Self::Ollama => {
                let mut message = reply["message"].clone();
                // Many clients do not know the id.
                for call in message["tool_calls"].as_array_mut().into_iter().flatten() {
                    call.as_object_mut().expect("an object").remove("id");
                }
                let calls = of(&message["tool_calls"], "");
                let results = calls.iter().map(|_| json!({"role": "tool", "tool_name": "weather", "content": result}));
                let more = [message.clone()].into_iter().chain(results).collect();
                let call = |call: &Value| (name(&call["function"]["name"]), call["function"]["arguments"].clone());
                (calls.iter().map(call).collect(), more)
            }
            Self::Messages => {
                let calls = of(&reply["content"], "tool_use");
                let results: Vec<_> = calls
                    .iter()
                    .map(|call| json!({"type": "tool_result", "tool_use_id": call["id"], "content": result}))
                    .collect();
                let said = json!({"role": "assistant", "content": reply["content"]});
                (
                    calls.iter().map(|call| (name(&call["name"]), call["input"].clone())).collect(),
                    vec![said, json!({"role": "user", "content": results})],
                )
            }
        }
    }

    fn error(self, reply: &Reply) -> String {
        let error = &reply.json()["error"];
        error["message"].as_str().or(error.as_str()).unwrap_or_else(|| panic!("{self:?}: {}", reply.body)).to_owned()
    }
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

/// A world with a model that calls the client's `weather`, and the key of a client that keeps its history.
fn world() -> Option<(World, Model, String)> {
    let world = World::new();
    world.define("tests.json", &subtools());
    let weather = json!({"name": "weather", "arguments": {"city": "Bonn"}});
    let count = json!({"name": "command_executor",
        "arguments": {"command": "agent-magic-tool run count_words --wait --input='{\"text\": \"a b c\"}'"}});
    let rules = json!([
        {"last": "^Weather", "says": "I look.", "calls": [weather]},
        {"last": "^Count first", "calls": [count]},
        {"last": "^Both", "calls": [count, weather]},
        {"last": "Not called", "says": "One at a time."},
        {"last": "\"data\":\\s*\"?(\\d+)", "seen": "Count first", "calls": [weather]},
        {"last": "sunny", "says": "It is sunny in Bonn."},
        {"last": "^echo (\\S+)", "says": "$1"},
        {"last": "", "says": "Hello."},
    ]);
    let model = Model::start(&world, &rules, "")?;
    let made = world.run(&["serve", "key", "create", "own", "--history=client"]);
    let key = made.json()["key"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
    Some((world, model, key))
}

fn post(server: &Server, key: &str, protocol: Protocol, body: &Value) -> Reply {
    let headers = if key.is_empty() { String::new() } else { format!("Authorization: Bearer {key}\r\n") };
    server.request("POST", protocol.path(), &headers, &body.to_string())
}

/// Asks, has `weather` called, and goes on with its result.
fn weather_is_asked(server: &Server, key: &str, protocol: Protocol, question: &str) {
    let tools = json!({"tools": protocol.tools("weather")});
    let reply = post(server, key, protocol, &protocol.body(&[user(question)], &tools));
    assert_eq!(reply.status, 200, "{protocol:?}: {}", reply.body);
    let (calls, more) = protocol.calls(&reply.json(), "sunny");
    assert_eq!(calls, [("weather".to_owned(), json!({"city": "Bonn"}))], "{protocol:?}: {}", reply.body);
    let messages: Vec<_> = [user(question)].into_iter().chain(more).collect();
    let reply = post(server, key, protocol, &protocol.body(&messages, &tools));
    assert_eq!(reply.status, 200, "{protocol:?}: {}", reply.body);
    assert_eq!(protocol.text(&reply.json()), "It is sunny in Bonn.", "{protocol:?}: {}", reply.body);
}

#[test]
fn a_client_with_its_own_history_performs_its_own_tools() {
    let Some((world, model, key)) = world() else { return };
    let server = Server::start(&world);
    for protocol in PROTOCOLS {
        weather_is_asked(&server, &key, protocol, "Weather in Bonn?");
        let asked = json!(model.asked().last().expect("asked")).to_string();
        assert!(asked.contains("command_executor") && asked.contains("I look."), "{protocol:?}: {asked}");
        // Beside ours in one turn, theirs has to wait.
        let tools = json!({"tools": protocol.tools("weather")});
        let reply = post(&server, &key, protocol, &protocol.body(&[user("Both")], &tools));
        assert_eq!(protocol.text(&reply.json()), "One at a time.", "{protocol:?}: {}", reply.body);
    }
    assert_eq!(server.get("/api/v1/sessions").json()["sessions"], json!([]), "nothing is stored");
}

#[test]
fn what_our_model_did_before_the_clients_call_is_not_forgotten() {
    let Some((world, model, key)) = world() else { return };
    let server = Server::start(&world);
    for protocol in PROTOCOLS {
        weather_is_asked(&server, &key, protocol, "Count first, then the weather");
        let asked = json!(model.asked().last().expect("asked")).to_string();
        assert!(asked.contains("run count_words"), "{protocol:?}: {asked}");
    }
    let tasks = world.run(&["tasks"]).json();
    assert_eq!(tasks.as_array().expect("a list").len(), PROTOCOLS.len(), "it was counted once each: {tasks}");
}

#[test]
fn the_sdks_read_calls_in_streams_too() {
    let Some(sdks) = sdk::all() else { return };
    let Some((world, _model, key)) = world() else { return };
    let server = Server::start(&world);
    for sdk in sdks.iter().filter(|sdk| sdk.is_python()) {
        for api in sdk.apis().iter().filter(|api| ["chat", "responses", "messages"].contains(api)) {
            let protocol = match *api {
                "responses" => Protocol::Responses,
                "messages" => Protocol::Messages,
                _ => Protocol::Chat,
            };
            for stream in [false, true] {
                let more = json!({"tools": protocol.tools("weather")});
                let request = json!([{"api": api, "stream": stream, "model": "agent-magic-tool",
                    "message": "Weather in Bonn?", "more": more}]);
                let answer = sdk.run(&server.url(), &key, &request).remove(0);
                let place = format!("{} {api} {stream}: {answer}", sdk.script);
                let calls = answer["answer"]["calls"].as_array().unwrap_or_else(|| panic!("{place}"));
                assert_eq!(calls.len(), 1, "{place}");
                let call = calls[0].to_string().replace('\\', "");
                assert!(call.contains("weather") && call.contains("\"city\":\"Bonn\""), "{place}");
                let expected = match *api {
                    "responses" => "completed",
                    "messages" => "tool_use",
                    _ if sdk.is_ollama() => "stop",
                    _ => "tool_calls",
                };
                assert_eq!(answer["answer"]["finish"], expected, "{place}");
            }
        }
    }
}

#[test]
fn a_choice_and_a_form_reach_the_model_and_a_stream_has_only_the_answer() {
    let Some((world, model, key)) = world() else { return };
    let server = Server::start(&world);
    let schema = json!({"type": "object", "properties": {"words": {"type": "integer"}}});
    for protocol in PROTOCOLS {
        let body = protocol.body(&[user("echo {}")], &protocol.form(&schema));
        let reply = post(&server, &key, protocol, &body);
        assert_eq!((reply.status, protocol.text(&reply.json()).as_str()), (200, "{}"), "{protocol:?}: {}", reply.body);
        let asked = model.asked().pop().expect("asked");
        assert_eq!(asked["response_format"]["json_schema"]["schema"]["properties"], schema["properties"], "{asked}");
        if let Some(mut forced) = protocol.choice() {
            forced["tools"] = protocol.tools("weather");
            let reply = post(&server, &key, protocol, &protocol.body(&[user("Weather in Bonn?")], &forced));
            assert_eq!(reply.status, 200, "{protocol:?}: {}", reply.body);
            let asked = model.asked().pop().expect("asked");
            assert_eq!(asked["tool_choice"]["function"]["name"], "weather", "{protocol:?}: {asked}");
            let body = protocol.body(&[user("echo x")], &protocol.choice().expect("it is there"));
            assert_eq!(post(&server, &key, protocol, &body).status, 400, "{protocol:?}: there is no such tool");
        }
    }
    let mut body = Protocol::Chat.body(&[user("Count first")], &Protocol::Chat.form(&schema));
    body["tools"] = Protocol::Chat.tools("weather");
    body["stream"] = true.into();
    let streamed = post(&server, &key, Protocol::Chat, &body).body;
    assert!(streamed.contains("tool_calls") && !streamed.contains("waits"), "{streamed}");
}

#[test]
fn images_go_to_models_that_take_them() {
    let Some((world, model, key)) = world() else { return };
    let with_eyes = model.configuration("").replace("[models.openai]\n", "[models.openai]\nimages = true\n");
    let server = Server::start(&world);
    for protocol in PROTOCOLS {
        let body = protocol.body(&[protocol.picture()], &json!({}));
        world.configure(&model.configuration(""));
        let refused = post(&server, &key, protocol, &body);
        let error = protocol.error(&refused);
        assert!(refused.status == 400 && error.contains("takes no images"), "{protocol:?}: {}", refused.body);
        world.configure(&with_eyes);
        let reply = post(&server, &key, protocol, &body);
        assert_eq!((reply.status, protocol.text(&reply.json()).as_str()), (200, "it"), "{protocol:?}: {}", reply.body);
        let asked = json!(model.asked().pop().expect("asked")).to_string();
        assert!(asked.contains(PNG), "{protocol:?}: {asked}");
    }
}

#[test]
fn a_session_of_the_server_refuses_what_it_does_not_have() {
    let Some((world, _model, _)) = world() else { return };
    let server = Server::start(&world);
    for protocol in PROTOCOLS {
        let with_tools = json!({"tools": protocol.tools("weather")});
        let forced = protocol.choice().map(|mut forced| {
            forced["tools"] = protocol.tools("weather");
            forced
        });
        let demanded = [Some(with_tools), forced, Some(protocol.form(&json!({"type": "object"})))];
        for more in demanded.into_iter().flatten() {
            let refused = post(&server, "", protocol, &protocol.body(&[user("echo x")], &more));
            let error = protocol.error(&refused);
            assert!(
                refused.status == 400 && error.contains("--history=client"),
                "{protocol:?} {more}: {}",
                refused.body
            );
        }
        let refused = post(&server, "", protocol, &protocol.body(&[protocol.picture()], &json!({})));
        assert!(refused.status == 400 && protocol.error(&refused).contains("no images"), "{}", refused.body);
        // Hints change nothing, and are not refused.
        let hints = json!({"temperature": 0.5, "tools": [], "stop": ["END"]});
        let reply = post(&server, "", protocol, &protocol.body(&[user("echo x")], &hints));
        assert_eq!((reply.status, protocol.text(&reply.json()).as_str()), (200, "x"), "{protocol:?}: {}", reply.body);
    }
}

#[test]
fn every_provider_gets_what_the_client_demands() {
    let world = World::new();
    let stub = Stub::start(&world, vec![StubAnswer::says("{}")], "images = true");
    let made = world.run(&["serve", "key", "create", "own", "--history=client"]);
    let key = made.json()["key"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
    let server = Server::start(&world);
    let protocol = Protocol::Chat;
    let schema = json!({"type": "object", "properties": {"words": {"type": "integer"}}});
    for provider in PROVIDERS {
        let mut more = protocol.form(&schema);
        more["model"] = provider.into();
        more["tools"] = protocol.tools("weather");
        more["temperature"] = 0.25.into();
        if provider != "ollama" {
            more["tool_choice"] = protocol.choice().expect("it is there")["tool_choice"].clone();
        }
        let first = stub.received().len();
        let reply = post(&server, &key, protocol, &protocol.body(&[protocol.picture()], &more));
        assert_eq!((reply.status, protocol.text(&reply.json()).as_str()), (200, "{}"), "{provider}: {}", reply.body);
        let asked = stub.bodies(first).pop().expect("asked");
        let text = asked.to_string();
        for given in ["\"words\"", "command_executor", PNG, "0.25", "1000"] {
            assert!(text.contains(given), "{provider}: {given}: {text}");
        }
        let mentions = if provider == "ollama" { 1 } else { 2 };
        assert_eq!(text.matches("\"weather\"").count(), mentions, "{provider}: offered and chosen: {text}");
    }
    // What a provider has no field for is refused, and it is not asked.
    let asked = stub.received().len();
    for (provider, more) in [
        ("ollama", json!({"tools": protocol.tools("weather"), "tool_choice": "required"})),
        ("anthropic", json!({"response_format": {"type": "json_object"}})),
        ("openai_responses", json!({"stop": ["END"]})),
        ("text", json!({"tools": protocol.tools("weather")})),
    ] {
        let mut body = protocol.body(&[user("x")], &more);
        body["model"] = provider.into();
        let refused = post(&server, &key, protocol, &body);
        assert!(refused.status == 400 && protocol.error(&refused).contains(provider), "{}", refused.body);
    }
    assert_eq!(stub.received().len(), asked);
}
