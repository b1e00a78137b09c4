//! A client of the page: signs in with a link and sends requests, as a browser does.
//!
//! Each request passes the page's gate like any other.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::gate::COOKIE;
use super::{PageSite, make_link};

/// How long to wait for an answer. The page answers at once, except when it must write to the disk first.
const TIMEOUT: Duration = Duration::from_secs(15);
/// The largest answer that is read.
const MAX_ANSWER_BYTES: u64 = 4 << 20;

/// A session of the page, held in memory by this process.
pub struct PageClient {
    site: PageSite,
    cookie: String,
    token: String,
}

/// A successful answer of the page.
#[derive(Debug, PartialEq, Eq)]
pub struct PageAnswer {
    head: String,
    pub body: String,
}

#[derive(Debug, thiserror::Error)]
pub enum PageClientError {
    #[error("the executor serves no page")]
    NoPage,
    #[error("failed to reach the page")]
    Io(#[from] io::Error),
    #[error("{message}")]
    Refused { status: u16, code: String, message: String },
}

impl std::fmt::Debug for PageClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PageClient").field("site", &self.site.host).finish_non_exhaustive()
    }
}

impl PageClient {
    /// Signs in with a new link. `folder` is the executor's folder.
    pub fn log_in(folder: &Path) -> Result<Self, PageClientError> {
        let site = PageSite::load_or_create(folder)?;
        if site.port == 0 {
            return Err(PageClientError::NoPage);
        }
        let mut client = Self { site, cookie: String::new(), token: String::new() };
        let answer = client.post("/login", &json!({"token": make_link(folder)?}))?;
        let cookie = answer.head.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            let (key, value) = value.split(';').next()?.split_once('=')?;
            (name.eq_ignore_ascii_case("set-cookie") && key == COOKIE).then(|| value.to_owned())
        });
        client.cookie = cookie.unwrap_or_default();
        answer.json()["token"].as_str().unwrap_or_default().clone_into(&mut client.token);
        Ok(client)
    }

    pub fn get(&self, path: &str) -> Result<PageAnswer, PageClientError> {
        self.request("GET", path, None)
    }

    pub fn post(&self, path: &str, body: &Value) -> Result<PageAnswer, PageClientError> {
        self.request("POST", path, Some(body))
    }

    /// Ends the session.
    pub fn log_out(self) {
        if let Err(error) = self.post("/logout", &json!({})) {
            tracing::debug!(%error, "failed to end a session of the page");
        }
    }

    fn request(&self, method: &str, path: &str, body: Option<&Value>) -> Result<PageAnswer, PageClientError> {
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

impl PageAnswer {
    /// The body as JSON; null if it is something else.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }
}

/// Splits an answer into its head and its body; an error status becomes `PageClientError::Refused`.
fn parse_answer(answer: &[u8]) -> Result<PageAnswer, PageClientError> {
    let invalid = || io::Error::new(io::ErrorKind::InvalidData, "the page sent an invalid HTTP response");
    let end = answer.windows(4).position(|part| part == b"\r\n\r\n").ok_or_else(invalid)?;
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    let status: u16 = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(invalid)?;
    let answer = PageAnswer { head, body: String::from_utf8_lossy(&answer[end + 4..]).into_owned() };
    if (200..300).contains(&status) {
        return Ok(answer);
    }
    let body = answer.json();
    let text = |key: &str| body["error"][key].as_str().unwrap_or_default().to_owned();
    let message = match (text("message"), body["problems"][0]["problem"].as_str()) {
        (message, Some(problem)) => format!("{message}: {problem}"),
        (message, None) if message.is_empty() => format!("the page answered with status {status}"),
        (message, None) => message,
    };
    Err(PageClientError::Refused { status, code: text("code"), message })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_answer_becomes_its_message_and_first_problem() {
        let answer = parse_answer(b"HTTP/1.1 200 OK\r\nx: y\r\n\r\n{\"token\": \"t\"}").expect("an answer");
        assert_eq!(answer.json()["token"], "t");
        let refused = parse_answer(
            b"HTTP/1.1 422 Unprocessable\r\n\r\n{\"error\": {\"code\": \"invalid-input\", \"message\": \"some fields are not valid\"}, \"problems\": [{\"problem\": \"not a number\"}]}",
        );
        let Err(PageClientError::Refused { status: 422, message, .. }) = refused else { panic!("refused") };
        assert_eq!(message, "some fields are not valid: not a number");
        assert!(matches!(parse_answer(b"HTTP/1.1 200"), Err(PageClientError::Io(_))));
    }
}
