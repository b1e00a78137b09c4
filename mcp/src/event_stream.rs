//! Reads server-sent events as they come, with a bound on the size of each. What is not understood is passed over, as the
//! standard wants it.

use futures_util::StreamExt as _;
use futures_util::stream::{BoxStream, Stream};

/// One event. What it does not say is empty.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SentEvent {
    pub id: String,
    pub name: String,
    pub data: String,
}

/// Why there are no further events.
#[derive(Debug)]
pub enum EventStreamError<E> {
    Broken(E),
    TooLong,
}

/// The events of a body.
pub struct EventStream<E> {
    chunks: BoxStream<'static, Result<Vec<u8>, E>>,
    max_bytes: usize,
    buffer: Vec<u8>,
    /// How much of the buffer has no end of a line.
    searched: usize,
    event: SentEvent,
}

impl<E> std::fmt::Debug for EventStream<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventStream").field("event", &self.event).finish_non_exhaustive()
    }
}

impl<E> EventStream<E> {
    /// `max_bytes` bounds each event.
    pub fn new(chunks: impl Stream<Item = Result<Vec<u8>, E>> + Send + 'static, max_bytes: usize) -> Self {
        let (buffer, event) = (Vec::new(), SentEvent::default());
        Self { chunks: chunks.boxed(), max_bytes, buffer, searched: 0, event }
    }

    /// The next event with data; `None` at the end. An event without its end does not count.
    pub async fn next(&mut self) -> Result<Option<SentEvent>, EventStreamError<E>> {
        loop {
            while let Some(length) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=self.searched + length).collect();
                self.searched = 0;
                let line = String::from_utf8_lossy(&line);
                let line = line.trim_end_matches(['\n', '\r']);
                if !line.is_empty() {
                    self.event.take_line(line);
                    continue;
                }
                let event = std::mem::take(&mut self.event);
                if !event.data.is_empty() {
                    return Ok(Some(event));
                }
            }
            self.searched = self.buffer.len();
            if self.buffer.len() + self.event.data.len() > self.max_bytes {
                return Err(EventStreamError::TooLong);
            }
            let Some(chunk) = self.chunks.next().await else { return Ok(None) };
            self.buffer.extend_from_slice(&chunk.map_err(EventStreamError::Broken)?);
        }
    }
}

impl SentEvent {
    fn take_line(&mut self, line: &str) {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" => value.clone_into(&mut self.id),
            "event" => value.clone_into(&mut self.name),
            "data" => {
                if !self.data.is_empty() {
                    self.data.push('\n');
                }
                self.data.push_str(value);
            }
            _ => {}
        }
    }
}
