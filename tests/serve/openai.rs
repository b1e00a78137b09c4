//! OpenAI's, Anthropic's and Ollama's clients: their official SDKs against a server, and the forms that they do not ask for.
//! What only Anthropic's protocol has is in `anthropic.rs`.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;

use serde_json::{Value, json};

use super::{Server, sdk, world_with_model};
use crate::agent::aimock::asked_at;
use crate::world::{World, until};

const QUESTION: &str = "How many words are in it?";
const TITLE: &str = "### Task:\nGenerate a title.\n### Chat History:\n<chat_history>\nUSER: hi\n</chat_history>";

fn sessions(server: &Server) -> Vec<String> {
    let listed = server.get("/api/v1/sessions").json();
    let of = |session: &Value| session["client"].as_str().expect("a client's session").to_owned();
    listed["sessions"].as_array().expect("a list").iter().map(of).collect()
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

/// The only task of the world so far.
fn only_task(world: &World, filter: &[&str]) -> Option<String> {
    let mut arguments = vec!["tasks"];
    arguments.extend(filter);
    let tasks = world.run(&arguments).json();
    let tasks = tasks.as_array().expect("a list");
    assert!(tasks.len() <= 1, "{tasks:?}");
    tasks.first().map(|task| task["id"].as_str().expect("an id").to_owned())
}

#[test]
fn every_sdk_lists_models_and_gets_answers_in_every_form() {
    let Some(sdks) = sdk::all() else { return };
    let Some((world, _model)) = world_with_model("") else { return };
    let server = Server::start(&world);
    for sdk in sdks {
        let listed = sdk.run(&server.url(), "none", &json!([{"api": "models"}]));
        let name = if sdk.is_ollama() { "agent-magic-tool:latest" } else { "agent-magic-tool" };
        assert_eq!(listed[0]["answer"]["names"], json!([name]), "{}: {}", sdk.script, listed[0]);
        for api in sdk.apis() {
            for stream in [true, false] {
                let answer = sdk.ask(&server.url(), api, stream, QUESTION);
                let place = format!("{} {api} {stream}: {answer}", sdk.script);
                // Streamed is all that the model says, otherwise only its last answer.
                let expected = if stream { "It is under way.\n\nThere are 3 words." } else { "There are 3 words." };
                assert_eq!(answer["answer"]["text"], expected, "{place}");
                assert_eq!(answer["streamed"], if stream { expected } else { "" }, "{place}");
                let finish = match *api {
                    "responses" => "completed",
                    "messages" => "end_turn",
                    _ => "stop",
                };
                assert_eq!(answer["answer"]["finish"], finish, "{place}");
                let used = |names: [&str; 2]| names.iter().find_map(|name| answer["answer"]["usage"][name].as_u64());
                assert!(used(["prompt_tokens", "input_tokens"]).expect("counted") > 500, "{place}");
                assert!(used(["completion_tokens", "output_tokens"]).expect("counted") > 0, "{place}");
            }
        }
        if sdk.is_ollama() {
            // Below `/v1/api` is the same, for programs that add a path to one base URL.
            let hybrid = json!([{"api": "chat", "stream": true, "message": "echo here", "path": "/v1"}]);
            let answer = sdk.run(&server.url(), "none", &hybrid).remove(0);
            assert!(answer["answer"]["text"].as_str().is_some_and(|text| text.starts_with("here here")), "{answer}");
        }
    }
    let sessions = sessions(&server);
    assert!(sessions.iter().all(|id| id.starts_with("llama-127.0.0.1@chat-")), "one client: {sessions:?}");
    // A question without a history begins a conversation.
    assert!(sessions.len() >= 5, "{sessions:?}");
}

#[tokio::test]
async fn a_yes_on_the_page_lets_every_sdk_go_on() {
    let Some(sdks) = sdk::all() else { return };
    let Some((world, _model)) = world_with_model("") else { return };
    let Some(mut tab) = world.signed_in_tab().await else { return };
    let server = Server::start(&world);
    for sdk in sdks {
        let api = if sdk.script == "openai.mjs" { "responses" } else { sdk.chat() };
        let request = json!([{"api": api, "stream": true, "message": "Write a note"}]);
        let mut run = sdk.start(&server.url(), "none", &request);
        run.until("`note` waits for your decision on the page");
        let id = only_task(&world, &["--state", "awaiting_confirmation"]).expect("it waits");
        tab.card(&id).approve().await;
        let answer = run.end();
        let text = answer["answer"]["text"].as_str().unwrap_or_else(|| panic!("{}: {answer}", sdk.script));
        assert_eq!(answer["streamed"], text, "{}: {answer}", sdk.script);
        assert_eq!(text.matches("waits for your decision").count(), 1, "{}: {text}", sdk.script);
        assert!(text.contains("agent-magic-tool executor page\n\n"), "{}: {text}", sdk.script);
        assert!(text.ends_with("\n\nThe note is written."), "{}: {text}", sdk.script);
    }
    assert_eq!(std::fs::read_to_string(world.folder().join("note.txt")).expect("written"), "hello".repeat(5));
}

/// A proxy whose first connection breaks when the request has arrived at the server and the model was asked.
fn breaking_once(server: &Server, is_asked: impl Fn() -> bool + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let target = server.address.clone();
    thread::spawn(move || {
        for (number, client) in listener.incoming().flatten().enumerate() {
            let server = TcpStream::connect(&target).expect("the server listens");
            let (mut from_client, mut to_server) =
                (client.try_clone().expect("shared"), server.try_clone().expect("shared"));
            let host = target.clone();
            thread::spawn(move || {
                let mut request = vec![0; 1 << 16];
                // The server refuses the name of another host.
                while let Ok(read @ 1..) = from_client.read(&mut request) {
                    let text = String::from_utf8_lossy(&request[..read]).into_owned();
                    let mut lines: Vec<_> = text.split("\r\n").map(str::to_owned).collect();
                    for line in lines.iter_mut().filter(|line| line.to_ascii_lowercase().starts_with("host:")) {
                        *line = format!("Host: {host}");
                    }
                    if to_server.write_all(lines.join("\r\n").as_bytes()).is_err() {
                        break;
                    }
                }
            });
            if number == 0 {
                until("the model was asked", &is_asked);
                client.shutdown(std::net::Shutdown::Both).ok();
                server.shutdown(std::net::Shutdown::Both).ok();
                continue;
            }
            let (mut from_server, mut to_client) = (server, client);
            thread::spawn(move || {
                std::io::copy(&mut from_server, &mut to_client).ok();
                to_client.shutdown(std::net::Shutdown::Both).ok();
            });
        }
    });
    url
}

#[test]
fn a_connection_that_breaks_asks_once() {
    let Some(sdks) = sdk::openai() else { return };
    for sdk in sdks {
        let Some((world, model)) = world_with_model("") else { return };
        let server = Server::start(&world);
        std::fs::write(world.folder().join("hold"), "").expect("held");
        let (hold, asked) = (world.folder().join("hold"), model.address().to_owned());
        let url = breaking_once(&server, move || {
            let is_asked = asked_at(&asked).len() >= 3;
            if is_asked {
                std::fs::remove_file(&hold).ok();
            }
            is_asked
        });
        // Not streamed: nothing is sent before the answer, so that the SDK itself asks again.
        let answer = sdk.ask(&url, "chat", false, QUESTION);
        assert_eq!(answer["answer"]["text"], "There are 3 words.", "{}: {answer}", sdk.script);
        assert!(only_task(&world, &[]).is_some(), "{}", sdk.script);
        let is_question = |body: &&Value| body["messages"].as_array().is_some_and(|all| all.len() == 2);
        assert_eq!(model.asked().iter().filter(is_question).count(), 1, "{}: it was asked once", sdk.script);
        // The same words are a new question once they were answered.
        let again = sdk.ask(&server.url(), "chat", false, "echo a");
        let twice = sdk.ask(&server.url(), "chat", false, "echo a");
        assert_eq!(again["answer"]["text"], twice["answer"]["text"], "{again} {twice}");
        let echoed = model
            .asked()
            .iter()
            .filter(|body| {
                body["messages"].as_array().and_then(|all| all.last()).is_some_and(|last| last["content"] == "echo a")
            })
            .count();
        assert_eq!(echoed, 2, "{}", sdk.script);
    }
}

#[test]
fn a_server_killed_while_it_streams_gives_the_answer_after_a_restart() {
    let Some(sdks) = sdk::all() else { return };
    for sdk in sdks {
        let Some((world, model)) = world_with_model("") else { return };
        let server = Server::start(&world);
        std::fs::write(world.folder().join("hold"), "").expect("held");
        let request = json!([{"api": sdk.chat(), "stream": true, "message": QUESTION}]);
        let mut run = sdk.start(&server.url(), "none", &request);
        run.until("It is under way.");
        server.kill();
        let broken = run.end();
        assert!(broken["error"].is_object(), "{}: the SDK sees that its stream broke: {broken}", sdk.script);
        let server = Server::start(&world);
        std::fs::remove_file(world.folder().join("hold")).expect("released");
        let answer = sdk.ask(&server.url(), sdk.chat(), true, QUESTION);
        let text = answer["answer"]["text"].as_str().unwrap_or_else(|| panic!("{}: {answer}", sdk.script));
        assert!(text.ends_with("There are 3 words."), "{}: {text}", sdk.script);
        assert!(only_task(&world, &[]).is_some(), "{}: the call is not delegated twice", sdk.script);
        let is_question = |body: &&Value| body["messages"].as_array().is_some_and(|all| all.len() == 2);
        assert_eq!(model.asked().iter().filter(is_question).count(), 1, "{}: it was asked once", sdk.script);
    }
}

#[test]
fn commands_never_reach_the_model_and_prompts_of_an_interface_not_the_session() {
    let Some(sdks) = sdk::all() else { return };
    let Some((world, model)) = world_with_model("") else { return };
    let server = Server::start(&world);
    for sdk in sdks {
        let unknown = sdk.ask(&server.url(), sdk.chat(), true, "!nonsense");
        assert!(unknown["answer"]["text"].as_str().is_some_and(|text| text.contains("nonsense")), "{unknown}");
        let help = sdk.ask(&server.url(), sdk.chat(), false, "!help");
        assert!(help["answer"]["text"].as_str().is_some_and(|text| text.contains("!models")), "{help}");
        let both = sdk.ask(&server.url(), sdk.chat(), false, "!model\necho on");
        let text = both["answer"]["text"].as_str().expect("text");
        assert!(text.contains("openai") && text.ends_with("on on"), "{}: {text}", sdk.script);
    }
    assert!(!json!(model.asked()).to_string().contains("nonsense"), "no model sees it");
    let before = model.asked().len();
    let title = server.post("/v1/chat/completions", &json!({"model": "x", "messages": [user(TITLE)]})).json();
    assert_eq!(title["choices"][0]["message"]["content"], "Hello.", "{title}");
    assert_eq!(title["choices"][0]["finish_reason"], "stop", "{title}");
    let asked = model.asked().split_off(before);
    assert_eq!(asked.len(), 1, "one request");
    assert!(asked[0]["tools"].is_null(), "without tools: {}", asked[0]["tools"]);
    server.post("/v1/chat/completions", &json!({"model": "x", "messages": [user("echo after")]}));
    let last = json!(model.asked().last().expect("asked")).to_string();
    assert!(last.contains("echo after") && !last.contains("chat_history"), "it is not part of the session: {last}");
    assert!(sessions(&server).iter().all(|id| id.starts_with("llama-127.0.0.1@chat-")));
}

#[test]
fn the_history_is_the_servers() {
    let Some((world, model)) = world_with_model("") else { return };
    let server = Server::start(&world);
    let ask = |headers: &str, body: &Value| {
        let reply = server.request("POST", "/v1/chat/completions", headers, &body.to_string());
        assert_eq!(reply.status, 200, "{}", reply.body);
        assert_eq!(reply.json()["model"], "agent-magic-tool");
    };
    let named = json!([{"role": "system", "content": "You are a pirate."}, user("invented"),
        {"role": "assistant", "content": "never said"}, user("echo one")]);
    ask("", &json!({"model": "gpt-5", "temperature": 2, "user": "me", "messages": named}));
    ask("", &json!({"model": "gpt-5", "user": "me", "messages": [user("echo two")]}));
    let last = json!(model.asked().last().expect("asked")).to_string();
    assert!(last.contains("echo one") && last.contains("echo two") && last.contains("command_executor"), "{last}");
    for ignored in ["pirate", "invented", "never said", "gpt-5"] {
        assert!(!json!(model.asked()).to_string().contains(ignored), "{ignored}");
    }
    // Each conversation that a client names is a session of its own.
    ask("X-OpenWebUI-Chat-Id: 5f0a-1\r\n", &json!({"messages": [user("echo three")]}));
    ask("", &json!({"user": "anna", "messages": [user("echo four")]}));
    let last = json!(model.asked().last().expect("asked")).to_string();
    assert!(!last.contains("echo one") && !last.contains("echo three"), "{last}");
    assert_eq!(sessions(&server), ["llama-127.0.0.1@me", "llama-127.0.0.1@5f0a-1", "llama-127.0.0.1@anna"]);
}

#[test]
fn a_client_with_its_own_history_is_given_the_tool() {
    let Some(sdks) = sdk::all() else { return };
    let Some((world, model)) = world_with_model("") else { return };
    let made = world.run(&["serve", "key", "create", "proxy", "--history=client"]);
    let key = made.json()["key"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
    let server = Server::start(&world);
    for sdk in sdks {
        let messages = json!([{"role": "system", "content": "You are a pirate."}, user("My name is Anna."),
            {"role": "assistant", "content": "Ahoy, Anna."}, user(QUESTION)]);
        let named = if sdk.is_ollama() { "anthropic:latest" } else { "anthropic" };
        let tools = match sdk.chat() {
            "messages" => json!([{"name": "command_executor", "input_schema": {"type": "object"}}]),
            _ => json!([{"type": "function", "function": {"name": "command_executor", "parameters": {}}}]),
        };
        let requests = json!([
            {"api": "models"},
            {"api": sdk.chat(), "stream": true, "model": named, "messages": messages},
            {"api": sdk.chat(), "model": "agent-magic-tool", "messages": [user("echo x")], "more": {"tools": tools}},
            {"api": sdk.chat(), "model": "gpt-5", "messages": [user("echo x")]},
            {"api": sdk.chat(), "model": "agent-magic-tool", "messages": [user("!tasks")]},
        ]);
        let answers = sdk.run(&server.url(), &key, &requests);
        let place = format!("{}: {answers:#?}", sdk.script);
        let wrong = sdk.run(&server.url(), "amt_wrong", &json!([{"api": sdk.chat(), "message": "echo x"}])).remove(0);
        assert_eq!(wrong["error"]["status"], 401, "{}: {wrong}", sdk.script);
        assert!(wrong["error"]["message"].as_str().is_some_and(|text| text.contains("API key")), "{wrong}");
        let listed = answers[0]["answer"]["names"].as_array().expect("names").clone();
        assert!(listed.len() > 1 && listed.contains(&json!(named)), "{place}");
        assert_eq!(answers[1]["answer"]["text"], "It is under way.\n\nThere are 3 words.", "{place}");
        let asked: Vec<_> = model.asked().iter().map(ToString::to_string).collect();
        let seen = asked.iter().rfind(|asked| asked.contains("pirate")).expect("asked");
        for kept in ["pirate", "My name is Anna.", "Ahoy, Anna.", QUESTION, "command_executor"] {
            assert!(seen.contains(kept), "{kept}: {seen}");
        }
        assert_eq!(answers[2]["error"]["status"], 400, "{place}");
        assert!(
            answers[2]["error"]["message"].as_str().is_some_and(|text| text.contains("`command_executor`")),
            "{place}"
        );
        assert_eq!(answers[3]["error"]["status"], 404, "{place}");
        assert!(answers[3]["error"]["message"].as_str().is_some_and(|text| text.contains("anthropic")), "{place}");
        // What looks like a command of a session is a question like any other.
        assert!(asked.iter().any(|asked| asked.contains("!tasks")), "{place}");
    }
    assert_eq!(server.get("/api/v1/sessions").json()["sessions"], json!([]), "nothing is stored");
}

#[test]
fn errors_have_the_form_of_their_protocol() {
    let Some((world, _model)) = world_with_model("") else { return };
    let server = Server::start(&world);
    let image = json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]);
    let chat = |body: &Value| ("POST", "/v1/chat/completions", body.to_string());
    let cases = [
        (("POST", "/v1/chat/completions", "{".to_owned()), 400, "invalid-json", Value::Null),
        (chat(&json!({})), 400, "invalid-input", json!("messages")),
        (chat(&json!({"messages": []})), 400, "invalid-input", json!("messages")),
        (chat(&json!({"messages": [{"role": "system", "content": "x"}]})), 400, "invalid-input", json!("messages")),
        (chat(&json!({"messages": image})), 400, "invalid-input", json!("messages.0.content")),
        (chat(&json!({"messages": [user("x")], "n": 2})), 400, "invalid-input", json!("n")),
        (chat(&json!({"messages": [user("x")], "logprobs": true})), 400, "invalid-input", json!("logprobs")),
        (chat(&json!({"messages": [user("x")], "functions": []})), 400, "invalid-input", json!("functions")),
        (chat(&json!({"messages": [user("x")], "stream": "yes"})), 400, "invalid-input", json!("stream")),
        (("POST", "/v1/responses", json!({"input": []}).to_string()), 400, "invalid-input", json!("input")),
        (
            ("POST", "/v1/responses", json!({"input": "x", "background": true}).to_string()),
            400,
            "invalid-input",
            json!("background"),
        ),
        (("GET", "/v1/responses/resp_1", String::new()), 404, "response_not_found", Value::Null),
        (("POST", "/v1/completions", json!({"prompt": [1, 2]}).to_string()), 400, "invalid-input", json!("prompt")),
        (("GET", "/v1/models/gpt-5", String::new()), 404, "model_not_found", json!("model")),
        (("POST", "/v1/audio/speech", json!({"input": "x"}).to_string()), 404, "unknown_url", Value::Null),
        (("POST", "/v1/embeddings", json!({"input": "x"}).to_string()), 400, "invalid-input", json!("model")),
        (
            ("POST", "/v1/embeddings", json!({"input": "x", "model": "openai"}).to_string()),
            404,
            "model_not_found",
            json!("model"),
        ),
        (("DELETE", "/v1/models", String::new()), 405, "method_not_allowed", Value::Null),
    ];
    for ((method, path, body), status, code, param) in cases {
        let reply = server.request(method, path, "", &body);
        let error = &reply.json()["error"];
        let expected = (status, code, &param, "invalid_request_error");
        let found = (
            reply.status,
            error["code"].as_str().unwrap_or_default(),
            &error["param"],
            error["type"].as_str().unwrap_or_default(),
        );
        assert_eq!(found, expected, "{method} {path} {body}: {}", reply.body);
        assert_eq!(reply.headers["x-should-retry"], "false", "{method} {path}");
    }
    let cases = [
        ("POST", "/api/chat", json!({"messages": [user("x")]}), 400, "`model` is missing"),
        (
            "POST",
            "/api/chat",
            json!({"model": "x", "messages": [{"role": "user", "content": "x", "images": ["aGk="]}]}),
            400,
            "a session of the server takes no images",
        ),
        ("POST", "/api/generate", json!({"model": "x", "prompt": 7}), 400, "`prompt` is not a text"),
        ("POST", "/api/show", json!({"model": "llama3"}), 404, "no model `llama3`"),
        ("POST", "/api/pull", json!({"model": "llama3"}), 404, "not offered"),
        ("DELETE", "/api/delete", json!({"model": "llama3"}), 404, "not offered"),
        ("POST", "/v1/api/embed", json!({"model": "llama3"}), 404, "no model `llama3` makes embeddings"),
        ("GET", "/api/chat", json!({}), 405, "GET is not allowed"),
    ];
    for (method, path, body, status, message) in cases {
        let reply = server.request(method, path, "", &body.to_string());
        let error = reply.json()["error"].as_str().unwrap_or_else(|| panic!("{path}: {}", reply.body)).to_owned();
        assert!(reply.status == status && error.contains(message), "{method} {path}: {} {error}", reply.status);
    }
    let ollama = "User-Agent: ollama-python/0.6.3\r\n";
    assert_eq!(server.request("GET", "/", ollama, "").body, "Ollama is running");
    assert!(server.get("/").body.contains("/api/v1"), "others are told where what is");
    assert!(server.request("GET", "/v1/models", ollama, "").json()["models"].is_array());
    assert_eq!(server.get("/v1/models").json()["object"], "list");
    assert!(server.get("/api/v1/sessions").json()["sessions"].is_array(), "our own API is not hidden");
}
