//! A client of the page: signs in with a link and sends requests, as a browser does.
//!
//! Each request passes the page's door like any other. It is sent only to a program of our own user that has proven
//! first that it knows the session's key.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::task::confirmation::nonce;
use serde_json::{Value, json};

use super::link::make_link;
use super::proof::{ChallengeAnswer, PROOF, ProvenRequest, SessionKey};
use super::same_user;
use super::same_user::StrangerError;
use super::site::PageSite;

/// What it calls itself.
pub const TERMINAL: &str = "agent-magic-tool";
/// How long to wait for an answer. The page answers at once, except when it must write to the disk first.
const TIMEOUT: Duration = Duration::from_secs(15);
/// The largest answer that is read.
const MAX_ANSWER_BYTES: u64 = 32 << 20;

/// A session of the page, held in memory by this process.
pub struct PageClient {
    site: PageSite,
    session: Option<ClientSession>,
}

struct ClientSession {
    cookie: String,
    key: SessionKey,
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
    #[error(
        "another program answers at the page's address; start a new executor with `agent-magic-tool executor stop` and `start`"
    )]
    NotTheExecutor,
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
        let mut client = Self { site, session: None };
        let answer =
            client.exchange("POST", "/login", Some(&json!({"secret": make_link(folder)?}).to_string()), None)?;
        let cookie = answer.head.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            let (key, value) = value.split(';').next()?.split_once('=')?;
            (name.eq_ignore_ascii_case("set-cookie") && key == client.site.cookie_name()).then(|| value.to_owned())
        });
        let key = answer.json()["key"].as_str().and_then(SessionKey::from_hex);
        let (Some(cookie), Some(key)) = (cookie, key) else { return Err(PageClientError::NotTheExecutor) };
        client.session = Some(ClientSession { cookie, key });
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

    /// Sends a request with the proof of the session's key.
    fn request(&self, method: &str, path: &str, body: Option<&Value>) -> Result<PageAnswer, PageClientError> {
        let session = self.session.as_ref().ok_or(PageClientError::NotTheExecutor)?;
        let ours = nonce();
        let challenge = self.exchange("GET", &format!("/challenge?nonce={ours}"), None, None)?;
        let answer: Option<ChallengeAnswer> = serde_json::from_str(&challenge.body).ok();
        let answer = answer.filter(|answer| session.key.is_executor(&ours, answer));
        let answer = answer.ok_or(PageClientError::NotTheExecutor)?;
        let body = body.map(Value::to_string);
        let given = ProvenRequest { method, target: path, body: body.as_deref().unwrap_or_default().as_bytes() };
        self.exchange(method, path, body.as_deref(), Some(&session.key.prove(given, &answer)))
    }

    fn exchange(
        &self,
        method: &str,
        path: &str,
        body: Option<&str>,
        proof: Option<&str>,
    ) -> Result<PageAnswer, PageClientError> {
        let mut headers = Vec::new();
        headers.extend(
            self.session.as_ref().map(|session| format!("cookie: {}={}", self.site.cookie_name(), session.cookie)),
        );
        headers.extend(proof.map(|proof| format!("{PROOF}: {proof}")));
        if body.is_some() {
            headers.extend([format!("origin: {}", self.site.origin()), "content-type: application/json".to_owned()]);
        }
        send(&self.site, (method, path), &headers, body)
    }
}

/// Sends a request, with these headers beside those that every request has, to a program of our own user.
pub(super) fn send(
    site: &PageSite,
    (method, path): (&str, &str),
    headers: &[String],
    body: Option<&str>,
) -> Result<PageAnswer, PageClientError> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, site.port))?;
    check_owner(&stream)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let mut head = vec![
        format!("{method} {path} HTTP/1.1"),
        format!("host: {}:{}", site.host, site.port),
        format!("user-agent: {TERMINAL}"),
        "connection: close".to_owned(),
    ];
    head.extend_from_slice(headers);
    head.extend(body.map(|body| format!("content-length: {}", body.len())));
    let request = format!("{}\r\n\r\n{}", head.join("\r\n"), body.unwrap_or_default());
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.take(MAX_ANSWER_BYTES).read_to_end(&mut answer)?;
    parse_answer(&answer)
}

/// Fails unless the program at the other end belongs to our own user.
#[expect(clippy::disallowed_methods, reason = "the kernel does not tell when the other end accepts the connection")]
fn check_owner(stream: &TcpStream) -> Result<(), PageClientError> {
    const PAUSE: Duration = Duration::from_millis(1);
    let (peer, local, deadline) = (stream.peer_addr()?, stream.local_addr()?, Instant::now() + TIMEOUT);
    loop {
        match same_user::check(peer, local) {
            Ok(()) => return Ok(()),
            // Before it is accepted, a connection has no owner.
            Err(StrangerError::Unknown(_)) if Instant::now() < deadline => std::thread::sleep(PAUSE),
            Err(_) => return Err(PageClientError::NotTheExecutor),
        }
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
