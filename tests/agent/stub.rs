//! A model server of our own: it keeps every byte of each request and plays scripted answers in the formats of the
//! five providers, in chunks that end in the middle of a character and of a line.
//!
//! `aimock.rs` plays whole conversations; this one is for what exactly is sent, and for answers that go wrong.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use serde_json::{Value, json};

use crate::world::World;

/// The sizes of the chunks, in turn. No multiple of a line or of a character of three bytes.
const CHUNK_SIZES: [usize; 5] = [1, 7, 2, 5, 64];

/// A request as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct RawRequest {
    /// The request line and the headers.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl RawRequest {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("the body is JSON")
    }

    pub(crate) fn target(&self) -> &str {
        self.head.split(' ').nth(1).expect("a request line")
    }
}

/// How a scripted answer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswerEnd {
    Normal,
    /// At the limit of tokens.
    Cut,
    Refused,
}

/// What the server answers to one request.
#[derive(Debug, Clone)]
pub(crate) enum StubAnswer {
    /// An answer in the format of the provider that was asked: a text, then calls of the one tool.
    Turn { text: String, commands: Vec<String>, end: AnswerEnd },
    /// A status and a body, as they are.
    Raw { status: u16, body: String },
}

impl StubAnswer {
    pub(crate) fn says(text: &str) -> Self {
        Self::Turn { text: text.to_owned(), commands: Vec::new(), end: AnswerEnd::Normal }
    }

    pub(crate) fn runs(text: &str, commands: &[&str]) -> Self {
        let commands = commands.iter().map(|command| (*command).to_owned()).collect();
        Self::Turn { text: text.to_owned(), commands, end: AnswerEnd::Normal }
    }

    pub(crate) fn ends(text: &str, end: AnswerEnd) -> Self {
        Self::Turn { text: text.to_owned(), commands: Vec::new(), end }
    }

    pub(crate) fn error(status: u16, message: &str) -> Self {
        Self::Raw { status, body: json!({"error": {"message": message}}).to_string() }
    }
}

/// A running server, configured in a world once for each provider.
#[derive(Debug)]
pub(crate) struct Stub {
    address: String,
    received: Arc<Mutex<Vec<RawRequest>>>,
}

impl Stub {
    /// Answers each request with the next answer of the script; the last one is repeated. `more` is added to the
    /// configuration of each model.
    pub(crate) fn start(world: &World, script: Vec<StubAnswer>, more: &str) -> Self {
        let stub = Self::answering(move |_, number| script[number.min(script.len() - 1)].clone());
        world.configure(&stub.configuration("", more));
        stub
    }

    /// Answers each request with what `script` says; it also gets the number of earlier requests.
    pub(crate) fn answering(script: impl Fn(&RawRequest, usize) -> StubAnswer + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address").to_string();
        let received: Arc<Mutex<Vec<RawRequest>>> = Arc::default();
        let recorded = Arc::clone(&received);
        // One connection at a time; the thread ends with the test's process.
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let Some(request) = read(&stream) else { continue };
                let number = {
                    let mut recorded = recorded.lock().unwrap_or_else(PoisonError::into_inner);
                    recorded.push(request.clone());
                    recorded.len() - 1
                };
                // A client that went away is no failure of the server.
                drop(reply(&mut stream, &request, &script(&request, number)));
            }
        });
        Self { address, received }
    }

    /// A configuration with this server for each provider; `openai` is the default.
    pub(crate) fn configuration(&self, agent: &str, more: &str) -> String {
        let one = |provider: &&str| {
            format!(
                "[models.{provider}]\nprovider = \"{provider}\"\nurl = \"http://{}\"\nprice = {{ input = 3.0, output = 15.0 }}\n{more}\n",
                self.address
            )
        };
        let models: String = super::aimock::PROVIDERS.iter().map(one).collect();
        let text = format!("[models.text]\nprovider = \"openai\"\nurl = \"http://{}\"\ntools = false\n", self.address);
        format!("[agent]\nmodel = \"openai\"\n{agent}\n{models}{text}")
    }

    pub(crate) fn received(&self) -> Vec<RawRequest> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The bodies of the requests from number `first` on.
    pub(crate) fn bodies(&self, first: usize) -> Vec<Value> {
        self.received()[first..].iter().map(RawRequest::json).collect()
    }
}

fn read(stream: &TcpStream) -> Option<RawRequest> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let length =
        head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    Some(RawRequest { head, body })
}

fn reply(stream: &mut TcpStream, request: &RawRequest, answer: &StubAnswer) -> std::io::Result<()> {
    let (status, content_type, body) = match answer {
        StubAnswer::Raw { status, body } => (*status, "application/json", body.clone().into_bytes()),
        StubAnswer::Turn { text, commands, end } => {
            let calls = commands.iter().map(|command| ("command_executor", json!({ "command": command })));
            played(request, text, &calls.collect::<Vec<_>>(), *end)
        }
    };
    stream.set_nodelay(true)?;
    write!(
        stream,
        "HTTP/1.1 {status} Status\r\ncontent-type: {content_type}\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
    )?;
    let mut rest = body.as_slice();
    for size in CHUNK_SIZES.into_iter().cycle() {
        let (chunk, after) = rest.split_at(size.min(rest.len()));
        if chunk.is_empty() {
            break;
        }
        write!(stream, "{:x}\r\n", chunk.len())?;
        stream.write_all(chunk)?;
        stream.write_all(b"\r\n")?;
        rest = after;
    }
    stream.write_all(b"0\r\n\r\n")
}

type PlayedCalls<'a> = [(&'a str, Value)];

/// The answer in the format of the provider whose path was asked for.
fn played(request: &RawRequest, text: &str, calls: &PlayedCalls<'_>, end: AnswerEnd) -> (u16, &'static str, Vec<u8>) {
    const EVENTS: &str = "text/event-stream";
    let streams = request.json()["stream"] == true || request.target().contains("streamGenerateContent");
    let target = request.target();
    let (content_type, body) = if target.contains("chat/completions") {
        (EVENTS, openai(text, calls, end, streams))
    } else if target.ends_with("/responses") {
        (EVENTS, responses(text, calls, end, streams))
    } else if target.ends_with("/messages") {
        (EVENTS, anthropic(text, calls, end, streams))
    } else if target.ends_with("/api/chat") {
        ("application/x-ndjson", ollama(text, calls, end, streams))
    } else {
        (EVENTS, gemini(text, calls, end, streams))
    };
    (200, if streams { content_type } else { "application/json" }, body.into_bytes())
}

/// The two halves of a text, so that it comes in pieces.
fn halves(text: &str) -> [&str; 2] {
    let (before, after) = text.split_at(text.floor_char_boundary(text.len() / 2));
    [before, after]
}

fn data(events: &[Value]) -> String {
    events.iter().fold(String::new(), |events, event| events + &format!("data: {event}\n\n"))
}

/// Events with their names.
fn named(events: &[Value]) -> String {
    let name = |event: &Value| event["type"].as_str().expect("a type").to_owned();
    events.iter().fold(String::new(), |events, event| {
        events
            + &format!(
                "event: {}
data: {event}

",
                name(event)
            )
    })
}

fn openai(text: &str, calls: &PlayedCalls<'_>, end: AnswerEnd, streams: bool) -> String {
    let reason = match end {
        AnswerEnd::Normal if calls.is_empty() => "stop",
        AnswerEnd::Normal => "tool_calls",
        AnswerEnd::Cut => "length",
        AnswerEnd::Refused => "content_filter",
    };
    let usage = json!({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15});
    let call = |(number, (name, arguments)): (usize, &(&str, Value))| {
        json!({"index": number, "id": format!("call_{number}"), "type": "function",
            "function": {"name": name, "arguments": arguments.to_string()}})
    };
    let calls: Vec<_> = calls.iter().enumerate().map(call).collect();
    if !streams {
        let mut message = json!({"role": "assistant", "content": text});
        if !calls.is_empty() {
            message["tool_calls"] = calls.into();
        }
        let choice = json!({"index": 0, "finish_reason": reason, "message": message});
        return json!({"id": "c", "model": "m", "choices": [choice], "usage": usage}).to_string();
    }
    let delta = |delta: Value| json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]});
    let mut events: Vec<_> = halves(text).into_iter().map(|text| delta(json!({"content": text}))).collect();
    events.extend(calls.into_iter().map(|call| delta(json!({"tool_calls": [call]}))));
    events.push(json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}));
    events.push(json!({"choices": [], "usage": usage}));
    data(&events) + "data: [DONE]\n\n"
}

fn responses(text: &str, calls: &PlayedCalls<'_>, end: AnswerEnd, streams: bool) -> String {
    let mut output = Vec::new();
    if !text.is_empty() {
        output
            .push(json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}));
    }
    output.extend(calls.iter().enumerate().map(|(number, (name, arguments))| {
        json!({"type": "function_call", "id": format!("fc_{number}"), "call_id": format!("call_{number}"),
            "name": name, "arguments": arguments.to_string()})
    }));
    let mut response = json!({
        "id": "r", "model": "m", "status": "completed", "output": output,
        "usage": {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15},
    });
    let reason = match end {
        AnswerEnd::Normal => None,
        AnswerEnd::Cut => Some("max_output_tokens"),
        AnswerEnd::Refused => Some("content_filter"),
    };
    if let Some(reason) = reason {
        response["status"] = "incomplete".into();
        response["incomplete_details"] = json!({ "reason": reason });
    }
    if !streams {
        return response.to_string();
    }
    let mut events = vec![json!({"type": "response.created", "response": {"id": "r", "status": "in_progress"}})];
    for (index, item) in output.iter().enumerate() {
        events.push(json!({"type": "response.output_item.added", "output_index": index, "item": item}));
        if item["type"] == "message" {
            events.extend(
                halves(text)
                    .map(|text| json!({"type": "response.output_text.delta", "output_index": index, "delta": text})),
            );
        }
        events.push(json!({"type": "response.output_item.done", "output_index": index, "item": item}));
    }
    let last = if reason.is_some() { "response.incomplete" } else { "response.completed" };
    events.push(json!({"type": last, "response": response}));
    named(&events)
}

fn anthropic(text: &str, calls: &PlayedCalls<'_>, end: AnswerEnd, streams: bool) -> String {
    let reason = match end {
        AnswerEnd::Normal if calls.is_empty() => "end_turn",
        AnswerEnd::Normal => "tool_use",
        AnswerEnd::Cut => "max_tokens",
        AnswerEnd::Refused => "refusal",
    };
    let calls: Vec<_> = calls.iter().enumerate().map(|(number, call)| (format!("toolu_{number}"), call)).collect();
    if !streams {
        let text = Some(text).filter(|text| !text.is_empty()).map(|text| json!({"type": "text", "text": text}));
        let calls = calls
            .iter()
            .map(|(id, (name, arguments))| json!({"type": "tool_use", "id": id, "name": name, "input": arguments}));
        let content: Vec<_> = text.into_iter().chain(calls).collect();
        return json!({"id": "m", "type": "message", "role": "assistant", "model": "m", "content": content,
            "stop_reason": reason, "usage": {"input_tokens": 10, "output_tokens": 5}})
        .to_string();
    }
    let mut events = vec![json!({"type": "message_start", "message": {"id": "m", "role": "assistant", "content": [],
        "model": "m", "usage": {"input_tokens": 10, "output_tokens": 1}}})];
    let mut block = |start: Value, deltas: Vec<Value>| {
        let index = events.iter().filter(|event| event["type"] == "content_block_start").count();
        events.push(json!({"type": "content_block_start", "index": index, "content_block": start}));
        events.extend(
            deltas.into_iter().map(|delta| json!({"type": "content_block_delta", "index": index, "delta": delta})),
        );
        events.push(json!({"type": "content_block_stop", "index": index}));
    };
    if !text.is_empty() {
        let deltas = halves(text).map(|text| json!({"type": "text_delta", "text": text}));
        block(json!({"type": "text", "text": ""}), deltas.to_vec());
    }
    for (id, (name, arguments)) in &calls {
        let arguments = arguments.to_string();
        let deltas = halves(&arguments).map(|part| json!({"type": "input_json_delta", "partial_json": part}));
        block(json!({"type": "tool_use", "id": id, "name": name, "input": {}}), deltas.to_vec());
    }
    events.push(json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 5}}));
    events.push(json!({"type": "message_stop"}));
    named(&events)
}

fn gemini(text: &str, calls: &PlayedCalls<'_>, end: AnswerEnd, streams: bool) -> String {
    let reason = match end {
        AnswerEnd::Normal => "STOP",
        AnswerEnd::Cut => "MAX_TOKENS",
        AnswerEnd::Refused => "SAFETY",
    };
    let usage = json!({"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15});
    // No ids, as most of its models.
    let calls = calls.iter().map(|(name, arguments)| json!({"functionCall": {"name": name, "args": arguments}}));
    let body = |parts: Vec<Value>, reason: Option<&str>| {
        let mut candidate = json!({"index": 0});
        if !parts.is_empty() {
            candidate["content"] = json!({"role": "model", "parts": parts});
        }
        if let Some(reason) = reason {
            candidate["finishReason"] = reason.into();
        }
        json!({"candidates": [candidate], "usageMetadata": usage, "modelVersion": "m"})
    };
    if !streams {
        let text = Some(text).filter(|text| !text.is_empty()).map(|text| json!({ "text": text }));
        return body(text.into_iter().chain(calls).collect(), Some(reason)).to_string();
    }
    let texts = halves(text).into_iter().filter(|text| !text.is_empty()).map(|text| json!({ "text": text }));
    let mut events: Vec<_> = texts.map(|part| body(vec![part], None)).collect();
    events.push(body(calls.collect(), Some(reason)));
    data(&events).replace('\n', "\r\n")
}

fn ollama(text: &str, calls: &PlayedCalls<'_>, end: AnswerEnd, streams: bool) -> String {
    let calls: Vec<_> =
        calls.iter().map(|(name, arguments)| json!({"function": {"name": name, "arguments": arguments}})).collect();
    let mut last = json!({"model": "m", "message": {"role": "assistant", "content": ""}, "done": true,
        "done_reason": if end == AnswerEnd::Cut { "length" } else { "stop" },
        "prompt_eval_count": 10, "eval_count": 5});
    if !calls.is_empty() {
        last["message"]["tool_calls"] = calls.into();
    }
    if !streams {
        last["message"]["content"] = text.into();
        return last.to_string();
    }
    let piece = |text: &str| json!({"model": "m", "message": {"role": "assistant", "content": text}, "done": false});
    let lines = halves(text).map(piece).into_iter().chain([last]);
    lines.fold(String::new(), |lines, line| lines + &format!("{line}\n"))
}
