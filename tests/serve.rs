//! Tests of `agent-magic-tool serve` through the binary: a server of the world's own, and raw HTTP to it.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::agent::aimock::{Model, counting};
use crate::world::World;

pub(crate) mod a2a;
mod anthropic;
mod api;
mod behind_tls;
mod clients;
mod conversations;
mod decide;
mod demands;
mod door;
pub(crate) mod echo_model;
mod embeddings;
mod frameworks;
mod generated;
mod limits;
mod load;
mod once;
mod openai;
mod passed_on;
mod restarts;
mod revoke;
mod rights;
mod sdk;
mod sessions;
mod slack;
pub(crate) mod waiting;

/// How long a client of a test waits for a byte.
const TIMEOUT: Duration = Duration::from_mins(1);

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    process: Child,
    /// Host and port.
    pub(crate) address: String,
}

/// The answer to a request.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {} {}", self.status, self.body))
    }

    /// The code of an error.
    pub(crate) fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
    }
}

impl Server {
    /// Starts a server on any free port.
    pub(crate) fn start(world: &World) -> Self {
        Self::start_with(world, &["--listen=127.0.0.1:0"])
    }

    pub(crate) fn start_with(world: &World, arguments: &[&str]) -> Self {
        let mut words = vec!["serve"];
        words.extend(arguments);
        Self::of(world.command(&words))
    }

    /// Starts this command, which prints its URL.
    pub(crate) fn of(mut command: Command) -> Self {
        let mut process = command.stdout(Stdio::piped()).spawn().expect("the server starts");
        let mut line = String::new();
        BufReader::new(process.stdout.take().expect("a pipe")).read_line(&mut line).expect("it prints its URL");
        let url: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let (_, address) = url["url"].as_str().and_then(|url| url.split_once("://")).expect("a URL");
        Self { process, address: address.to_owned() }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Ends it as a crash would.
    pub(crate) fn kill(mut self) {
        self.process.kill().expect("killed");
        self.process.wait().expect("ended");
    }

    pub(crate) fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// A connection on which a request was sent.
    pub(crate) fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).expect("the server listens");
        stream.set_read_timeout(Some(TIMEOUT)).expect("set");
        let host = if headers.to_ascii_lowercase().contains("host:") {
            String::new()
        } else {
            format!("Host: {}\r\n", self.address)
        };
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\n{host}Connection: close\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n{headers}\r\n"
        );
        // The server may refuse the request before it has read all of it.
        stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes())).ok();
        stream
    }

    pub(crate) fn request(&self, method: &str, path: &str, headers: &str, body: &str) -> Reply {
        let mut bytes = Vec::new();
        self.send(method, path, headers, body).read_to_end(&mut bytes).ok();
        reply(&bytes)
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        self.request("GET", path, "", "")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Reply {
        self.request("POST", path, "", &body.to_string())
    }

    /// Asks a session, and returns its whole answer.
    pub(crate) fn ask(&self, session: &str, message: &str) -> Value {
        let reply = self.post("/api/v1/submit", &json!({"session": session, "message": message}));
        assert_eq!(reply.status, 200, "{}", reply.body);
        reply.json()
    }

    /// Follows the events of a session.
    pub(crate) fn follow(&self, session: &str, after: Option<&str>) -> Events {
        self.follow_with(session, &after.map_or_else(String::new, |id| format!("Last-Event-ID: {id}\r\n")))
    }

    /// The same with these headers.
    pub(crate) fn follow_with(&self, session: &str, headers: &str) -> Events {
        self.events(&format!("/api/v1/stream/{session}"), headers)
    }

    /// The events of this path.
    pub(crate) fn events(&self, path: &str, headers: &str) -> Events {
        let mut events = Events { lines: BufReader::new(self.send("GET", path, headers, "")) };
        let status = events.line().expect("a status line");
        assert!(status.contains("200"), "{status}");
        while events.line().is_some_and(|line| !line.is_empty()) {}
        events
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // An error means that the process has already ended.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// Server-sent events.
#[derive(Debug)]
pub(crate) struct Events {
    lines: BufReader<TcpStream>,
}

/// One event.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Event {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) data: Value,
}

impl Events {
    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        match self.lines.read_line(&mut line) {
            Ok(1..) => Some(line.trim_end_matches(['\r', '\n']).to_owned()),
            Ok(0) | Err(_) => None,
        }
    }

    /// The next event; `None` if the stream ended. Lines that are no part of one, such as the sizes of chunks, are
    /// passed over.
    pub(crate) fn next(&mut self) -> Option<Event> {
        let mut event = Event { id: String::new(), name: String::new(), data: Value::Null };
        loop {
            let line = self.line()?;
            match line.split_once(": ") {
                Some(("id", id)) => id.clone_into(&mut event.id),
                Some(("event", name)) => name.clone_into(&mut event.name),
                Some(("data", data)) => {
                    event.data = serde_json::from_str(data).expect("JSON");
                    return Some(event);
                }
                _ => {}
            }
        }
    }

    /// The events up to the first of this name, and that one.
    pub(crate) fn until(&mut self, name: &str) -> Vec<Event> {
        let mut events = Vec::new();
        loop {
            let event = self.next().unwrap_or_else(|| panic!("the stream ended before `{name}`: {events:#?}"));
            let is_last = event.name == name;
            events.push(event);
            if is_last {
                return events;
            }
        }
    }
}

fn reply(bytes: &[u8]) -> Reply {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let header = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_ascii_lowercase(), value.trim().to_owned()))
    };
    let headers: HashMap<_, _> = head.lines().skip(1).filter_map(header).collect();
    let is_chunked = headers.get("transfer-encoding").is_some_and(|encoding| encoding == "chunked");
    let body = if is_chunked { unchunked(body) } else { body.to_owned() };
    Reply { status, headers, body }
}

fn unchunked(mut body: &str) -> String {
    let mut text = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap_or(0);
        if size == 0 || rest.len() < size {
            break;
        }
        text.push_str(&rest[..size]);
        body = rest[size..].trim_start_matches("\r\n");
    }
    text
}

/// The header with an API key.
pub(crate) fn bearer(key: &str) -> String {
    format!("Authorization: Bearer {key}\r\n")
}

/// The subtools of these tests: `count_words`, which runs at once, and `note`, which a human must approve.
pub(crate) fn subtools() -> Value {
    let mut subtools = counting();
    subtools["note"] = json!({
        "description": "Writes a note.",
        "input": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
        "confirm": "always",
        "run": {"process": {"argv": ["sh", "-c", "cat >> note.txt; echo written"], "stdin": "{{ text }}"}}
    });
    subtools["sub"] = json!({
        "description": "Asks a sub-agent.",
        "annotations": {"readOnlyHint": true},
        "input": {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
        "run": {"agent": {"prompt": "{{ q }}"}}
    });
    subtools
}

/// A model that counts words, writes a note, tells a long story, and repeats what it is told in `echo MARK`.
pub(crate) fn rules() -> Value {
    json!([
        {"last": "^How many words", "runs": ["agent-magic-tool list tools --query='count words' --limit 1"]},
        {"last": "^Write a note", "runs": ["agent-magic-tool run note text=hello"]},
        {"last": "^Tell a story", "says": "Once upon a time there was a tool that waited for its human, and it waited well.", "slow": true},
        {"last": "^run: (.*)", "runs": ["$1"]},
        {"last": "^echo (\\S+)", "says": "$1 $1 $1 $1 $1 $1 $1 $1"},
        {"last": "no-approver", "says": "No one is there to approve it."},
        {"last": "\"status\":\\s*\"pending\"", "says": "It is under way."},
        {"last": "result is final", "runs": ["agent-magic-tool read $ID"]},
        {"last": "\"data\":\\s*\"?(\\d+)", "says": "There are $1 words."},
        {"last": "\"data\":\\s*\"?written", "says": "The note is written."},
        {"last": "denied", "says": "You denied it."},
        {"last": "count_words", "runs": ["agent-magic-tool run count_words --input='{\"text\": \"a b c\"}'"]},
        {"last": "", "says": "Hello."},
    ])
}

/// A world with these subtools and a model that follows the rules; `None` if the model is not installed.
pub(crate) fn world_with_model(more: &str) -> Option<(World, Model)> {
    let world = World::new();
    world.define("tests.json", &subtools());
    let model = Model::start(&world, &rules(), more)?;
    Some((world, model))
}
