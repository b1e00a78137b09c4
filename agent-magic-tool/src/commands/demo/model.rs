//! A scripted language model: a server for `OpenAI`'s chat completions with five fixed answers.
//!
//! For the agent it is a model like any other. It listens on loopback and ends with the program.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde_json::{Value, json};

/// The largest request that is read; the agent's requests have a few kilobytes.
const MAX_REQUEST_BYTES: u64 = 4 << 20;

pub(super) struct ScriptedModel {
    address: SocketAddr,
    requests: Arc<AtomicUsize>,
}

impl ScriptedModel {
    pub(super) fn start() -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let address = listener.local_addr()?;
        let requests = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&requests);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // Fails only if the client has closed the connection.
                drop(answer(stream, &counter));
            }
        });
        Ok(Self { address, requests })
    }

    /// The settings that make it the agent's model.
    pub(super) fn configuration(&self) -> String {
        format!(
            "[agent]\nmodel = \"scripted\"\nstream = false\n\n\
             [models.scripted]\nprovider = \"openai\"\nurl = \"http://{}/v1\"\n",
            self.address
        )
    }

    /// The number of requests answered so far.
    pub(super) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

/// Answers one request and closes the connection.
fn answer(stream: TcpStream, counter: &AtomicUsize) -> io::Result<()> {
    let mut reader = BufReader::new(stream).take(MAX_REQUEST_BYTES);
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line == "\r\n" {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    let message = message(counter.fetch_add(1, Ordering::SeqCst), &request);
    let body = json!({
        "id": "scripted", "object": "chat.completion", "created": 0, "model": "scripted",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    })
    .to_string();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    reader.into_inner().into_inner().write_all((head + &body).as_bytes())
}

/// The scripted answer to request `number`, counted from 0.
fn message(number: usize, request: &Value) -> Value {
    let newest = request["messages"].as_array().and_then(|messages| messages.last());
    let newest = newest.map(|message| message["content"].to_string()).unwrap_or_default();
    match number {
        0 => call(number, "agent-magic-tool list tools --query=\"publish a report\" --limit=1"),
        1 => call(
            number,
            "agent-magic-tool run publish_report title=news --reason=\"you asked me to\" \
             text=\"年度报告: revenue grew by a fifth.\"",
        ),
        2 => json!({"role": "assistant", "content": "A human has to approve this. I go on when it is done."}),
        3 => call(number, &format!("agent-magic-tool read {}", id_in(&newest))),
        _ if newest.contains("revenue grew") => {
            json!({"role": "assistant", "content": "It is on the board: 年度报告, revenue grew by a fifth."})
        }
        _ => json!({"role": "assistant", "content": "It was not approved, so nothing is on the board."}),
    }
}

fn call(number: usize, command: &str) -> Value {
    let arguments = json!({ "command": command }).to_string();
    let function = json!({"name": "command_executor", "arguments": arguments});
    json!({"role": "assistant", "content": null, "tool_calls": [{"id": format!("call-{number}"), "type": "function", "function": function}]})
}

/// The first task id in a text.
fn id_in(text: &str) -> &str {
    let mut words = text.split(|letter: char| !letter.is_ascii_hexdigit());
    words.find(|word| word.len() == 32).unwrap_or("ID")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_reads_the_result_named_in_the_wake_up() {
        let id = "01a1fe2b8a4c76149d4818af262abafe";
        let request = json!({"messages": [{"role": "user", "content": format!("Results are ready: {id} (x)")}]});
        let answer = message(3, &request).to_string();
        assert!(answer.contains(id), "{answer}");
    }
}
