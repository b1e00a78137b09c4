//! The door for a human's own terminal: logs in by a link and answers questions, as a browser does.
//!
//! It can answer a question that was put to the human, and nothing else: a yes is given where all that it
//! is bound to is shown. Everything goes through the page's own gate; nothing here decides.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::time::Duration;

use protocol::task::TaskId;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::gate::COOKIE;
use super::{PageSite, make_link};

/// The page answers at once, but for what it must have made durable.
const PATIENCE: Duration = Duration::from_secs(15);
/// No answer of the page to us is longer.
const MAX_ANSWER_BYTES: u64 = 4 << 20;

/// A session of the page in this process's memory.
pub struct TerminalSession {
    site: PageSite,
    cookie: String,
    token: String,
}

/// A question that waits for the human.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct PendingQuestion {
    pub id: TaskId,
    pub tool: String,
    /// What an answer is bound to.
    pub digest: String,
    pub question: String,
    /// Of an object, whose fields are the form.
    pub schema: Map<String, Value>,
    /// A secret is typed on the page, where it is not seen.
    pub wants_secrets: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum TerminalError {
    #[error("the executor serves no page")]
    NoPage,
    #[error("the page cannot be reached")]
    Io(#[from] io::Error),
    #[error("{message}")]
    Refused { status: u16, code: String, message: String },
}

impl std::fmt::Debug for TerminalSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Door").field("site", &self.site.host).finish_non_exhaustive()
    }
}

impl TerminalSession {
    /// Logs in with a fresh link; `folder` is the executor's. Whoever calls this has looked that a human is there.
    pub fn log_in(folder: &Path) -> Result<Self, TerminalError> {
        let site = PageSite::load_or_create(folder)?;
        if site.port == 0 {
            return Err(TerminalError::NoPage);
        }
        let mut door = Self { site, cookie: String::new(), token: String::new() };
        let (head, body) = door.ask("POST", "/login", Some(&json!({"token": make_link(folder)?})))?;
        let cookie = head.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            let (key, value) = value.split(';').next()?.split_once('=')?;
            (name.eq_ignore_ascii_case("set-cookie") && key == COOKIE).then(|| value.to_owned())
        });
        door.cookie = cookie.unwrap_or_default();
        body["token"].as_str().unwrap_or_default().clone_into(&mut door.token);
        Ok(door)
    }

    /// The question of a task; `None` if it asks none, or does not wait any more.
    pub fn question(&self, id: TaskId) -> Result<Option<PendingQuestion>, TerminalError> {
        match self.ask("GET", &format!("/question/{id}"), None) {
            Ok((_, body)) => Ok(serde_json::from_value(body).ok()),
            Err(TerminalError::Refused { status: 404, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Answers a question: `content` are the fields of its form, or it is declined.
    pub fn answer(&self, asked: &PendingQuestion, content: Option<&Map<String, Value>>) -> Result<(), TerminalError> {
        let action = if content.is_some() { "accept" } else { "decline" };
        let body = json!({"id": asked.id, "digest": asked.digest, "action": action, "content": content});
        self.ask("POST", "/answer", Some(&body)).map(drop)
    }

    /// Ends the session.
    pub fn log_out(self) {
        if let Err(error) = self.ask("POST", "/logout", Some(&json!({}))) {
            tracing::debug!(%error, "a session of the page was left");
        }
    }

    fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Result<(String, Value), TerminalError> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.site.port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let body = body.map(Value::to_string);
        stream.write_all(self.request(method, path, body.as_deref()).as_bytes())?;
        let mut answer = Vec::new();
        stream.take(MAX_ANSWER_BYTES).read_to_end(&mut answer)?;
        understood(&answer)
    }

    fn request(&self, method: &str, path: &str, body: Option<&str>) -> String {
        let origin = self.site.origin();
        let host = origin.trim_start_matches("http://");
        let mut head =
            vec![format!("{method} {path} HTTP/1.1"), format!("host: {host}"), "connection: close".to_owned()];
        if !self.cookie.is_empty() {
            head.extend([format!("cookie: {COOKIE}={}", self.cookie), format!("x-page-token: {}", self.token)]);
        }
        if let Some(body) = body {
            head.extend([format!("origin: {origin}"), "content-type: application/json".to_owned()]);
            head.push(format!("content-length: {}", body.len()));
        }
        format!("{}\r\n\r\n{}", head.join("\r\n"), body.unwrap_or_default())
    }
}

/// The head and the JSON of an answer that the page gave whole.
fn understood(answer: &[u8]) -> Result<(String, Value), TerminalError> {
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "that was no answer of the page");
    let end = answer.windows(4).position(|part| part == b"\r\n\r\n").ok_or_else(wrong)?;
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    let status: u16 = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(wrong)?;
    let body: Value = serde_json::from_slice(&answer[end + 4..]).unwrap_or_default();
    if (200..300).contains(&status) {
        return Ok((head, body));
    }
    let word = |key: &str| body["error"][key].as_str().unwrap_or_default().to_owned();
    let message = match (word("message"), body["problems"][0]["problem"].as_str()) {
        (message, Some(problem)) => format!("{message}: {problem}"),
        (message, None) if message.is_empty() => format!("the page answered with status {status}"),
        (message, None) => message,
    };
    Err(TerminalError::Refused { status, code: word("code"), message })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_understood_with_what_was_wrong() {
        let (_, body) = understood(b"HTTP/1.1 200 OK\r\nx: y\r\n\r\n{\"token\": \"t\"}").expect("an answer");
        assert_eq!(body["token"], "t");
        let refused = understood(
            b"HTTP/1.1 422 Unprocessable\r\n\r\n{\"error\": {\"code\": \"invalid-input\", \"message\": \"some fields do not fit\"}, \"problems\": [{\"problem\": \"no number\"}]}",
        );
        let Err(TerminalError::Refused { status: 422, message, .. }) = refused else { panic!("refused") };
        assert_eq!(message, "some fields do not fit: no number");
        assert!(matches!(understood(b"HTTP/1.1 200"), Err(TerminalError::Io(_))));
    }
}
