//! The example of a custom agent, run against a model server with scripted answers.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::{fs, thread};

use protocol::caller::Caller;
use protocol::command_executor::CommandExecutor;
use protocol::mailbox::Mailbox;
use protocol::shell::ProgramShell;
use serde_json::{Value, json};

use crate::world::{PROGRAM, World};

#[path = "../../protocol/examples/own_agent.rs"]
#[expect(dead_code, reason = "its `main` is not called here")]
mod example;

use example::{Model, ask};

/// Starts a server that answers with the messages in order; the receiver gets each request.
fn model(messages: Vec<Value>) -> (Model, Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/v1", listener.local_addr().expect("an address"));
    let (sender, requests) = mpsc::channel();
    thread::spawn(move || {
        for message in messages {
            let (stream, _) = listener.accept().expect("a request");
            let mut reader = BufReader::new(stream);
            let mut length = 0;
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).expect("a header");
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().expect("a length");
                }
                if line.trim().is_empty() {
                    break;
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).expect("a body");
            sender.send(serde_json::from_slice(&body).expect("JSON")).expect("the test receives the requests");
            let answer = json!({"choices": [{"message": message, "finish_reason": "stop"}]}).to_string();
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                answer.len()
            );
            reader.into_inner().write_all((head + &answer).as_bytes()).expect("answered");
        }
    });
    (Model { url, name: "stub".to_owned(), key: String::new() }, requests)
}

fn call(id: &str, command: &str) -> Value {
    let arguments = json!({"command": command}).to_string();
    let function = json!({"name": "command_executor", "arguments": arguments});
    json!({"role": "assistant", "content": null, "tool_calls": [{"id": id, "type": "function", "function": function}]})
}

fn assistant(text: &str) -> Value {
    json!({"role": "assistant", "content": text})
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_delegates_a_task_and_is_woken_with_its_result() {
    drop(rustls::crypto::ring::default_provider().install_default());
    let world = World::new();
    world.define(
        "report.json",
        &json!({"find_report": {"description": "Finds a report.", "input": {}, "annotations": {"readOnlyHint": true},
            "run": {"process": {"argv": ["sh", "-c", "until [ -e gate ]; do sleep 0.01; done; printf 年度报告"]}}}}),
    );
    let (model, requests) = model(vec![
        call("1", "agent-magic-tool list tools --query='find a report' --limit 1"),
        call("2", "agent-magic-tool run find_report"),
        assistant("I wait."),
        assistant("It is 年度报告."),
    ]);
    let program = ProgramShell::new(PROGRAM)
        .env("HOME", world.home())
        .env("AGENT_MAGIC_TOOL_DIR", world.mailbox())
        .env("XDG_CONFIG_HOME", world.home().join(".config"))
        .env("XDG_STATE_HOME", world.home().join(".local/state"))
        .env("XDG_CACHE_HOME", world.home().join(".cache"));
    let caller = Caller { session: Some("example".to_owned()), folder: Some(world.folder()), ..Caller::default() };
    let mailbox = Mailbox::open(&world.mailbox()).expect("a mailbox");
    let tool = CommandExecutor::new(Arc::new(program), mailbox, caller);
    let gate = world.folder().join("gate");
    let observer = thread::spawn(move || {
        let mut requests = requests.into_iter();
        let before: Vec<Value> = requests.by_ref().take(3).collect();
        // The third request is the one that the model answers with "I wait.".
        fs::write(gate, "").expect("written");
        before.into_iter().chain(requests).collect::<Vec<_>>()
    });
    let answer = ask("Which report is there?", &model, &tool).await.expect("an answer");
    assert_eq!(answer, "It is 年度报告.");
    let requests = observer.join().expect("the thread ends");
    assert_eq!(requests.len(), 4, "the model must not be called while the agent waits");
    let last = |request: &Value| request["messages"].as_array().and_then(|all| all.last()).cloned().expect("a message");
    let text = |message: &Value| message["content"].as_str().expect("a text").to_owned();
    assert!(text(&last(&requests[1])).starts_with("/** Finds a report. */\nfind_report()"), "{}", requests[1]);
    assert!(text(&last(&requests[2])).contains("\"status\":\"pending\""), "{}", requests[2]);
    let woken = last(&requests[3]);
    assert_eq!(woken["role"], "user");
    assert!(text(&woken).contains("\"data\":\"年度报告\""), "{woken}");
}
