//! The output of a server's program, line by line: what is no message is dropped, what is no UTF-8 is replaced, and
//! what is too long is reported instead of kept.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::broadcast;

/// How many bytes of both ends of a line are kept if it is too long: they have the id of the message.
const KEPT_BYTES: usize = 512;
/// How much of a line that is no message is kept for a failure.
const MAX_NOISE_CHARS: usize = 300;

/// What was dropped.
#[derive(Debug, Clone)]
pub(super) struct Dropped {
    too_long: broadcast::Sender<Option<String>>,
    noise: Arc<Mutex<Option<String>>>,
    has_lost_session: Arc<AtomicBool>,
}

impl Default for Dropped {
    fn default() -> Self {
        Self { too_long: broadcast::channel(16).0, noise: Arc::default(), has_lost_session: Arc::default() }
    }
}

impl Dropped {
    /// Gets the ids of messages that were too long, as JSON; `None` for one whose id is not known.
    pub(super) fn too_long(&self) -> broadcast::Receiver<Option<String>> {
        self.too_long.subscribe()
    }

    /// Notes that the server does not know the session any more.
    pub(super) fn report_lost_session(&self) {
        self.has_lost_session.store(true, Ordering::Relaxed);
    }

    pub(super) fn has_lost_session(&self) -> bool {
        self.has_lost_session.load(Ordering::Relaxed)
    }

    /// Tells of a message that was too long.
    pub(super) fn report_too_long(&self, id: Option<String>) {
        // No call may be waiting.
        self.too_long.send(id).ok();
    }

    /// The last line that was no message.
    pub(super) fn noise(&self) -> Option<String> {
        self.noise.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Copies the messages of `source` to `target` until one of them ends.
pub(super) async fn relay(
    source: impl AsyncRead + Unpin,
    mut target: impl AsyncWrite + Unpin,
    max_bytes: usize,
    dropped: Dropped,
) {
    let mut source = BufReader::with_capacity(64 << 10, source);
    let mut line = LineBuffer { max_bytes, bytes: Vec::new(), tail: Vec::new(), is_too_long: false };
    loop {
        let available = match source.fill_buf().await {
            Ok([]) | Err(_) => break,
            Ok(available) => available,
        };
        let end = available.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(available.len(), |end| end + 1);
        line.push(&available[..taken]);
        source.consume(taken);
        if end.is_none() {
            continue;
        }
        if !line.is_too_long && line.is_message() {
            let text = String::from_utf8_lossy(&line.bytes);
            if target.write_all(text.as_bytes()).await.is_err() || target.flush().await.is_err() {
                break;
            }
        } else if line.is_too_long {
            dropped.report_too_long(line.id());
        } else {
            let text = String::from_utf8_lossy(line.bytes.trim_ascii());
            if !text.is_empty() {
                let noise = text.chars().take(MAX_NOISE_CHARS).collect();
                *dropped.noise.lock().unwrap_or_else(PoisonError::into_inner) = Some(noise);
            }
        }
        line.clear();
    }
}

struct LineBuffer {
    max_bytes: usize,
    /// Of a line that is too long, only its beginning.
    bytes: Vec<u8>,
    /// The end of a line that is too long.
    tail: Vec<u8>,
    is_too_long: bool,
}

impl LineBuffer {
    fn push(&mut self, part: &[u8]) {
        if !self.is_too_long && self.bytes.len() + part.len() <= self.max_bytes {
            self.bytes.extend_from_slice(part);
            return;
        }
        if !self.is_too_long {
            self.is_too_long = true;
            let missing = KEPT_BYTES.saturating_sub(self.bytes.len());
            self.bytes.truncate(KEPT_BYTES);
            self.bytes.extend_from_slice(&part[..part.len().min(missing)]);
            self.bytes.shrink_to_fit();
        }
        self.tail.extend_from_slice(&part[part.len().saturating_sub(KEPT_BYTES)..]);
        let excess = self.tail.len().saturating_sub(KEPT_BYTES);
        self.tail.drain(..excess);
    }

    fn is_message(&self) -> bool {
        matches!(self.bytes.trim_ascii_start().first(), Some(b'{' | b'['))
    }

    /// The id of the message, from the beginning or the end of the line, where the SDKs write it.
    fn id(&self) -> Option<String> {
        let head = String::from_utf8_lossy(&self.bytes);
        let tail = String::from_utf8_lossy(&self.tail);
        // Before the result, which may contain anything.
        let head = head.split(r#""result""#).next().unwrap_or_default().to_owned();
        // After it: nothing but the end of the message follows.
        let tail = tail.rsplit_once(r#""id""#).filter(|(_, rest)| rest.matches('}').count() == 1);
        id_after(head.split_once(r#""id""#).map(|(_, rest)| rest)).or_else(|| id_after(tail.map(|(_, rest)| rest)))
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.tail.clear();
        self.is_too_long = false;
    }
}

/// The number at the beginning of what follows `"id"`.
fn id_after(rest: Option<&str>) -> Option<String> {
    let rest = rest?.trim_start().strip_prefix(':')?.trim_start();
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    (!digits.is_empty()).then_some(digits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt as _;

    async fn relayed(source: &[u8], max_bytes: usize) -> (String, Vec<Option<String>>, Option<String>) {
        let dropped = Dropped::default();
        let mut too_long = dropped.too_long();
        let (target, mut read) = tokio::io::duplex(1 << 20);
        relay(source, target, max_bytes, dropped.clone()).await;
        let mut text = String::new();
        read.read_to_string(&mut text).await.expect("UTF-8");
        let mut ids = Vec::new();
        while let Ok(id) = too_long.try_recv() {
            ids.push(id);
        }
        (text, ids, dropped.noise())
    }

    #[tokio::test]
    async fn only_messages_pass_and_they_are_utf8() {
        let source = b"starting...\n{\"a\":\"\xff\"}\n\n[1]\r\nlistening\n{\"cut";
        let (text, ids, noise) = relayed(source, 100).await;
        assert_eq!(text, "{\"a\":\"\u{fffd}\"}\n[1]\r\n");
        assert_eq!((ids, noise.as_deref()), (vec![], Some("listening")));
    }

    #[tokio::test]
    async fn a_message_that_is_too_long_is_reported_by_its_id() {
        let long = "x".repeat(5_000);
        let source = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{{\"t\":\"{long}\"}}}}\n{{\"result\":{{\"t\":\"\\\"id\\\":9 {long}\"}},\
             \"jsonrpc\":\"2.0\",\"id\":8}}\n{{\"result\":{{\"id\":5,\"t\":\"{long}\"}}}}\n{{\"ok\":1}}\n"
        );
        let (text, ids, _) = relayed(source.as_bytes(), 1_000).await;
        assert_eq!(text, "{\"ok\":1}\n");
        assert_eq!(ids, [Some("7".to_owned()), Some("8".to_owned()), None]);
    }
}
