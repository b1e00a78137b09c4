//! Raw HTTP requests to the page: exactly the given bytes, so that a test can send what no browser would.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use ground::page_client::site::PageSite;
use serde_json::Value;

pub(crate) struct Answer {
    /// 0 if there was no valid answer.
    pub(crate) status: u16,
    /// The status line and the headers, in lower case.
    pub(super) head: String,
    pub(crate) body: String,
}

pub(super) fn connect(site: &PageSite) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", site.port)).expect("the page listens");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("the timeout is set");
    stream
}

/// Sends these bytes and reads the whole answer; of an event stream only its beginning.
pub(super) fn exchange(site: &PageSite, request: &str) -> Answer {
    exchange_with(connect(site), request)
}

/// The same over a connection that is open.
pub(super) fn exchange_with(mut stream: TcpStream, request: &str) -> Answer {
    // The server may refuse the request before it has read all of it.
    stream.write_all(request.as_bytes()).ok();
    let mut bytes = Vec::new();
    let mut part = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut part) {
        bytes.extend_from_slice(&part[..count]);
        let head = &bytes[..bytes.len().min(2048)];
        if head.windows(17).any(|window| window == b"text/event-stream") {
            break;
        }
    }
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    Answer { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
}

/// The value of the `Host` header that the page expects.
pub(super) fn host(site: &PageSite) -> String {
    format!("{}:{}", site.host, site.port)
}

pub(super) fn get(site: &PageSite, path: &str, headers: &str) -> Answer {
    exchange(site, &format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{headers}\r\n", host(site)))
}

/// Posts JSON with the origin and the content type that the page's own script sends.
pub(super) fn post(site: &PageSite, path: &str, body: &Value, headers: &str) -> Answer {
    let headers = format!("Origin: {}\r\nContent-Type: application/json\r\n{headers}", site.origin());
    post_with(site, path, &body.to_string(), &headers)
}

pub(super) fn post_with(site: &PageSite, path: &str, body: &str, headers: &str) -> Answer {
    let (host, length) = (host(site), body.len());
    exchange(
        site,
        &format!(
            "POST {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
        ),
    )
}
