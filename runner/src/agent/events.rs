//! Server-sent events of a remote agent.

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use ground::task::failure::Failure;
use net::clients::{body_failure, too_large};
use reqwest::Response;
use url::Url;

/// One event.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RemoteEvent {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) data: String,
}

/// The events of a response, as they come.
pub(super) struct RemoteEvents {
    chunks: BoxStream<'static, reqwest::Result<Vec<u8>>>,
    url: Url,
    buffer: Vec<u8>,
    /// How much of the buffer has no end of a line.
    searched: usize,
    event: RemoteEvent,
    max_bytes: u64,
    read_bytes: u64,
}

impl RemoteEvents {
    /// `max_bytes` bounds all events together.
    pub(super) fn of(response: Response, url: &Url, max_bytes: u64) -> Self {
        let chunks = response.bytes_stream().map(|chunk| chunk.map(|bytes| bytes.to_vec())).boxed();
        let (buffer, event) = (Vec::new(), RemoteEvent::default());
        Self { chunks, url: url.clone(), buffer, searched: 0, event, max_bytes, read_bytes: 0 }
    }

    /// The next event with data; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<RemoteEvent>, Failure> {
        loop {
            while let Some(length) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=self.searched + length).collect();
                self.searched = 0;
                let line = String::from_utf8_lossy(&line);
                if self.take_line(line.trim_end_matches(['\n', '\r'])) {
                    return Ok(Some(std::mem::take(&mut self.event)));
                }
            }
            self.searched = self.buffer.len();
            let Some(chunk) = self.chunks.next().await else { return Ok(None) };
            let chunk = chunk.map_err(|error| body_failure(&error, &self.url))?;
            self.read_bytes += chunk.len() as u64;
            if self.read_bytes > self.max_bytes {
                return Err(too_large(self.max_bytes).effect_possible());
            }
            self.buffer.extend_from_slice(&chunk);
        }
    }

    /// Takes a line of the stream. True if it ends an event.
    fn take_line(&mut self, line: &str) -> bool {
        if line.is_empty() {
            if self.event.data.is_empty() {
                self.event = RemoteEvent::default();
                return false;
            }
            return true;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" => value.clone_into(&mut self.event.id),
            "event" => value.clone_into(&mut self.event.name),
            "data" => {
                if !self.event.data.is_empty() {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
            }
            _ => {}
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(chunks: &[&str], max_bytes: u64) -> Result<Vec<(String, String)>, Failure> {
        let chunks: Vec<_> = chunks.iter().map(|chunk| Ok(chunk.as_bytes().to_vec())).collect();
        let mut events = RemoteEvents {
            chunks: futures_util::stream::iter(chunks).boxed(),
            url: Url::parse("https://a.example/").expect("a URL"),
            buffer: Vec::new(),
            searched: 0,
            event: RemoteEvent::default(),
            max_bytes,
            read_bytes: 0,
        };
        let mut found = Vec::new();
        while let Some(event) = events.next().await? {
            found.push((event.name, event.data));
        }
        Ok(found)
    }

    #[tokio::test]
    async fn events_are_read_however_they_are_cut() {
        let whole = ": hello\r\n\r\nevent: tok\r\ndata: {\"a\"\ndata: :1}\n\nid: 3\n\ndata:x\n\ndata: cut";
        let pieces: Vec<String> = whole.chars().map(String::from).collect();
        let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
        for chunks in [vec![whole], pieces] {
            let found = read(&chunks, 1_000).await.expect("events");
            assert_eq!(
                found,
                [("tok".to_owned(), "{\"a\"\n:1}".to_owned()), (String::new(), "x".to_owned())],
                "an event without its end does not count"
            );
        }
        assert!(read(&[whole], 20).await.is_err());
    }
}
