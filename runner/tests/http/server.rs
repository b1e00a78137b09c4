//! A scripted HTTP server. It records every request byte for byte.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

/// Long enough for a busy machine; only a failing test waits this long.
const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) method: String,
    /// Path and query.
    pub(crate) target: String,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Received {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// The values of all headers with this name, in order.
    pub(crate) fn headers_named(&self, name: &str) -> Vec<&str> {
        let named = self.headers.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.as_str()).collect()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// What the server does with one request.
#[derive(Debug)]
pub(crate) struct Reply {
    bytes: Vec<u8>,
    hangs: bool,
}

impl Reply {
    /// A response with its length; `headers` are lines like `content-type: text/plain`.
    pub(crate) fn new(status: u16, headers: &[&str], body: impl AsRef<[u8]>) -> Self {
        let body = body.as_ref();
        let mut bytes = format!("HTTP/1.1 {status} Status\r\nconnection: close\r\n").into_bytes();
        for header in headers {
            bytes.extend_from_slice(format!("{header}\r\n").as_bytes());
        }
        if !headers.iter().any(|header| header.starts_with("content-length")) && status != 204 {
            bytes.extend_from_slice(format!("content-length: {}\r\n", body.len()).as_bytes());
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(body);
        Self { bytes, hangs: false }
    }

    pub(crate) fn json(status: u16, body: &serde_json::Value) -> Self {
        Self::new(status, &["content-type: application/json; charset=utf-8"], body.to_string())
    }

    /// Closes the connection without a response.
    pub(crate) fn nothing() -> Self {
        Self { bytes: Vec::new(), hangs: false }
    }

    /// Afterwards sends nothing more, until the client closes the connection.
    pub(crate) fn then_hang(mut self) -> Self {
        self.hangs = true;
        self
    }
}

#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) host: String,
    received: Arc<Mutex<Vec<Received>>>,
    requests: watch::Receiver<usize>,
    closed: watch::Receiver<usize>,
    _stop: DropGuard,
}

impl Server {
    /// Answers each request with `script`, which also gets the number of earlier requests.
    pub(crate) async fn new(script: impl Fn(&Received, usize) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let host = listener.local_addr().expect("an address").to_string();
        let received = Arc::new(Mutex::new(Vec::new()));
        let (request_sender, requests) = watch::channel(0);
        let (closed_sender, closed) = watch::channel(0);
        let (script, recorded) = (Arc::new(script), Arc::clone(&received));
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let tracker = TaskTracker::new();
        let connections = tracker.clone();
        tracker.spawn(async move {
            while let Some(Ok((mut stream, _))) = stopped.run_until_cancelled(listener.accept()).await {
                let (script, recorded) = (Arc::clone(&script), Arc::clone(&recorded));
                let (requests, closed) = (request_sender.clone(), closed_sender.clone());
                connections.spawn(stopped.clone().run_until_cancelled_owned(async move {
                    let Some(request) = read(&mut stream).await else { return };
                    let reply = {
                        let mut recorded = recorded.lock().unwrap_or_else(PoisonError::into_inner);
                        recorded.push(request.clone());
                        script(&request, recorded.len() - 1)
                    };
                    requests.send_modify(|count| *count += 1);
                    let is_connected = stream.write_all(&reply.bytes).await.is_ok();
                    if is_connected && reply.hangs {
                        drop(stream.read(&mut [0; 64]).await);
                    }
                    closed.send_modify(|count| *count += 1);
                }));
            }
        });
        Self { host, received, requests, closed, _stop: stop.drop_guard() }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.host)
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn only(&self) -> Received {
        let mut received = self.received();
        assert_eq!(received.len(), 1, "{received:?}");
        received.remove(0)
    }

    /// Waits until `number` requests have arrived.
    pub(crate) async fn wait_for_requests(&self, number: usize) {
        wait(self.requests.clone(), number).await;
    }

    /// Waits until `number` connections are finished: answered, or closed by the client.
    pub(crate) async fn wait_for_closed(&self, number: usize) {
        wait(self.closed.clone(), number).await;
    }
}

async fn wait(mut counter: watch::Receiver<usize>, number: usize) {
    let reached = tokio::time::timeout(WAIT_TIMEOUT, counter.wait_for(|count| *count >= number)).await;
    drop(reached.expect("it happens within the deadline").expect("the server runs"));
}

async fn read(stream: &mut TcpStream) -> Option<Received> {
    let mut bytes = Vec::new();
    let head = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break bytes.drain(..end + 4).collect::<Vec<u8>>();
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&head).into_owned();
    let mut lines = head.lines();
    let mut first = lines.next()?.split(' ');
    let (method, target) = (first.next()?.to_owned(), first.next()?.to_owned());
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()))
        .collect();
    let mut request = Received { method, target, headers, body: Vec::new() };
    if request.header("transfer-encoding").is_some() {
        while !bytes.ends_with(b"0\r\n\r\n") {
            stream.read_buf(&mut bytes).await.ok().filter(|read| *read > 0)?;
        }
    } else {
        let length: usize = request.header("content-length").map_or(0, |length| length.parse().expect("a length"));
        while bytes.len() < length {
            stream.read_buf(&mut bytes).await.ok().filter(|read| *read > 0)?;
        }
    }
    request.body = bytes;
    Some(request)
}
