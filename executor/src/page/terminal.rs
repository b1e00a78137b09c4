//! A session of the page for the human's terminal: signs in with a link and answers questions, as a browser does.
//!
//! It can only answer questions. Approvals need the page, which shows everything that an approval is bound to. Each
//! request passes the page's gate like any other.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::time::Duration;

use protocol::task::TaskId;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::gate::COOKIE;
use super::{PageSite, make_link};

/// How long to wait for an answer. The page answers at once, except when it must write to the disk first.
const TIMEOUT: Duration = Duration::from_secs(15);
/// The largest answer that is read.
const MAX_ANSWER_BYTES: u64 = 4 << 20;

/// A session of the page, held in memory by this process.
pub struct TerminalSession {
    site: PageSite,
    cookie: String,
    token: String,
}

/// A question that waits for an answer.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct PendingQuestion {
    pub id: TaskId,
    pub tool: String,
    /// The digest that an answer is bound to.
    pub digest: String,
    pub question: String,
    /// The schema of an object whose properties are the fields of the form.
    pub schema: Map<String, Value>,
    /// Whether a field is a secret, which is entered only on the page.
    pub wants_secrets: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum TerminalError {
    #[error("the executor serves no page")]
    NoPage,
    #[error("failed to reach the page")]
    Io(#[from] io::Error),
    #[error("{message}")]
    Refused { status: u16, code: String, message: String },
}

impl std::fmt::Debug for TerminalSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TerminalSession").field("site", &self.site.host).finish_non_exhaustive()
    }
}

impl TerminalSession {
    /// Signs in with a new link. `folder` is the executor's folder. The caller has checked that a human is at the terminal.
    pub fn log_in(folder: &Path) -> Result<Self, TerminalError> {
        let site = PageSite::load_or_create(folder)?;
        if site.port == 0 {
            return Err(TerminalError::NoPage);
        }
        let mut session = Self { site, cookie: String::new(), token: String::new() };
        let (head, body) = session.request("POST", "/login", Some(&json!({"token": make_link(folder)?})))?;
        let cookie = head.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            let (key, value) = value.split(';').next()?.split_once('=')?;
            (name.eq_ignore_ascii_case("set-cookie") && key == COOKIE).then(|| value.to_owned())
        });
        session.cookie = cookie.unwrap_or_default();
        body["token"].as_str().unwrap_or_default().clone_into(&mut session.token);
        Ok(session)
    }

    /// The question of a task; `None` if the task is not a pending question.
    pub fn question(&self, id: TaskId) -> Result<Option<PendingQuestion>, TerminalError> {
        match self.request("GET", &format!("/question/{id}"), None) {
            Ok((_, body)) => Ok(serde_json::from_value(body).ok()),
            Err(TerminalError::Refused { status: 404, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Answers a question with the fields of its form, or declines it if `content` is `None`.
    pub fn answer(
        &self,
        question: &PendingQuestion,
        content: Option<&Map<String, Value>>,
    ) -> Result<(), TerminalError> {
        let action = if content.is_some() { "accept" } else { "decline" };
        let body = json!({"id": question.id, "digest": question.digest, "action": action, "content": content});
        self.request("POST", "/answer", Some(&body)).map(drop)
    }

    /// Ends the session.
    pub fn log_out(self) {
        if let Err(error) = self.request("POST", "/logout", Some(&json!({}))) {
            tracing::debug!(%error, "failed to end a session of the page");
        }
    }

    fn request(&self, method: &str, path: &str, body: Option<&Value>) -> Result<(String, Value), TerminalError> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.site.port))?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let body = body.map(Value::to_string);
        stream.write_all(self.request_text(method, path, body.as_deref()).as_bytes())?;
        let mut answer = Vec::new();
        stream.take(MAX_ANSWER_BYTES).read_to_end(&mut answer)?;
        parse_answer(&answer)
    }

    fn request_text(&self, method: &str, path: &str, body: Option<&str>) -> String {
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

/// Splits an answer into its head and its JSON body; an error status becomes `TerminalError::Refused`.
fn parse_answer(answer: &[u8]) -> Result<(String, Value), TerminalError> {
    let invalid = || io::Error::new(io::ErrorKind::InvalidData, "the page sent an invalid HTTP response");
    let end = answer.windows(4).position(|part| part == b"\r\n\r\n").ok_or_else(invalid)?;
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    let status: u16 = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(invalid)?;
    let body: Value = serde_json::from_slice(&answer[end + 4..]).unwrap_or_default();
    if (200..300).contains(&status) {
        return Ok((head, body));
    }
    let text = |key: &str| body["error"][key].as_str().unwrap_or_default().to_owned();
    let message = match (text("message"), body["problems"][0]["problem"].as_str()) {
        (message, Some(problem)) => format!("{message}: {problem}"),
        (message, None) if message.is_empty() => format!("the page answered with status {status}"),
        (message, None) => message,
    };
    Err(TerminalError::Refused { status, code: text("code"), message })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_answer_becomes_its_message_and_first_problem() {
        let (_, body) = parse_answer(b"HTTP/1.1 200 OK\r\nx: y\r\n\r\n{\"token\": \"t\"}").expect("an answer");
        assert_eq!(body["token"], "t");
        let refused = parse_answer(
            b"HTTP/1.1 422 Unprocessable\r\n\r\n{\"error\": {\"code\": \"invalid-input\", \"message\": \"some fields are not valid\"}, \"problems\": [{\"problem\": \"not a number\"}]}",
        );
        let Err(TerminalError::Refused { status: 422, message, .. }) = refused else { panic!("refused") };
        assert_eq!(message, "some fields are not valid: not a number");
        assert!(matches!(parse_answer(b"HTTP/1.1 200"), Err(TerminalError::Io(_))));
    }
}
