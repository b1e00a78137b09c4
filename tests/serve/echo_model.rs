//! A fast model of our own: it streams back, piece by piece, the mark that the last user message names in `echo MARK`. For
//! a message `shell LINE` it runs the line with its one tool, and answers with what that printed.

use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;

use serde_json::{Value, json};

use crate::world::until;

/// How many pieces an answer has.
pub(super) const PIECES: usize = 20;

/// Starts it; it ends with the test's process. Returns its URL.
pub(crate) fn start() -> String {
    start_with(None)
}

/// The same, but a message that begins with `hold` is answered only when this file is gone. Each adds a byte to the file.
pub(super) fn start_holding(file: PathBuf) -> String {
    std::fs::write(&file, "").expect("written");
    start_with(Some(file))
}

fn start_with(held_by: Option<PathBuf>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let held_by = held_by.clone();
            thread::spawn(move || drop(answer_all(stream, held_by.as_deref())));
        }
    });
    url
}

/// The configuration of a world that asks this model.
pub(crate) fn configuration(url: &str, more: &str) -> String {
    format!("[agent]\nmodel = \"echo\"\n[models.echo]\nprovider = \"openai\"\nurl = \"{url}\"\n{more}")
}

fn answer_all(stream: TcpStream, held_by: Option<&Path>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream;
    loop {
        let mut length = 0;
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        loop {
            line.clear();
            reader.read_line(&mut line)?;
            if line.trim().is_empty() {
                break;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let request: Value = serde_json::from_slice(&body).unwrap_or_default();
        let last = request["messages"].as_array().and_then(|all| all.last()).cloned().unwrap_or_default();
        let text = match &last["content"] {
            Value::String(text) => text.clone(),
            parts => parts[0]["text"].as_str().unwrap_or_default().to_owned(),
        };
        if let Some(file) = held_by.filter(|_| text.starts_with("hold")) {
            if let Ok(mut file) = OpenOptions::new().append(true).open(file) {
                file.write_all(b".")?;
            }
            until("the answer is released", || !file.exists());
        }
        if let Some(message) = shell_message(&last, &text) {
            answer_with(&mut writer, &message, request["stream"] == true)?;
            continue;
        }
        let mark = text.split_whitespace().nth(1).unwrap_or("none").to_owned();
        if request["stream"] == true {
            writer.write_all(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
            )?;
            for _ in 0..PIECES {
                chunk(&mut writer, &piece(&json!({"role": "assistant", "content": format!("{mark} ")}), None))?;
            }
            chunk(&mut writer, &piece(&json!({}), Some("stop")))?;
            chunk(&mut writer, "data: [DONE]\n\n")?;
            writer.write_all(b"0\r\n\r\n")?;
        } else {
            let text = format!("{mark} ").repeat(PIECES);
            let answer = json!({"id": "c", "object": "chat.completion", "created": 1, "model": "echo",
                "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 1, "completion_tokens": PIECES, "total_tokens": PIECES + 1}});
            let answer = answer.to_string();
            write!(
                writer,
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{answer}",
                answer.len()
            )?;
        }
    }
}

/// What it says about a line for its tool, or about what that printed.
fn shell_message(last: &Value, text: &str) -> Option<Value> {
    if last["role"] == "tool" {
        return Some(json!({"role": "assistant", "content": text}));
    }
    let line = text.rsplit_once("shell ")?.1;
    let arguments = json!({"command": line}).to_string();
    let call = json!({"index": 0, "id": "call-1", "type": "function",
        "function": {"name": "command_executor", "arguments": arguments}});
    Some(json!({"role": "assistant", "content": null, "tool_calls": [call]}))
}

/// Sends a message in one piece.
fn answer_with(writer: &mut TcpStream, message: &Value, is_stream: bool) -> std::io::Result<()> {
    let reason = if message["tool_calls"].is_null() { "stop" } else { "tool_calls" };
    if is_stream {
        let body = format!("{}{}data: [DONE]\n\n", piece(message, None), piece(&json!({}), Some(reason)));
        let kind = "text/event-stream";
        return write!(
            writer,
            "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
    }
    let body = json!({"id": "c", "object": "chat.completion", "created": 1, "model": "echo",
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}});
    let body = body.to_string();
    write!(writer, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

fn piece(delta: &Value, finish: Option<&str>) -> String {
    let piece = json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "echo",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
    format!("data: {piece}\n\n")
}

fn chunk(writer: &mut TcpStream, text: &str) -> std::io::Result<()> {
    write!(writer, "{:x}\r\n{text}\r\n", text.len())
}
