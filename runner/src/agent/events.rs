//! Server-sent events of a remote agent.

use futures_util::StreamExt as _;
use futures_util::stream::Stream;
use ground::task::failure::Failure;
use mcp::event_stream::{EventStream, EventStreamError, SentEvent};
use net::clients::{body_failure, too_large};
use reqwest::Response;
use url::Url;

/// The events of a response, as they come.
pub(super) struct RemoteEvents {
    events: EventStream<Failure>,
    max_bytes: u64,
}

impl RemoteEvents {
    /// `max_bytes` bounds all events together.
    pub(super) fn of(response: Response, url: &Url, max_bytes: u64) -> Self {
        let url = url.clone();
        let chunk = move |chunk: reqwest::Result<_>| chunk.map_err(|error| body_failure(&error, &url));
        Self::bounded(response.bytes_stream().map(chunk), max_bytes)
    }

    fn bounded<T: AsRef<[u8]>>(
        chunks: impl Stream<Item = Result<T, Failure>> + Send + 'static,
        max_bytes: u64,
    ) -> Self {
        let mut read_bytes = 0;
        let chunks = chunks.map(move |chunk| {
            let chunk = chunk?.as_ref().to_vec();
            read_bytes += chunk.len() as u64;
            if read_bytes > max_bytes { Err(too_large(max_bytes).effect_possible()) } else { Ok(chunk) }
        });
        Self { events: EventStream::new(chunks, usize::MAX), max_bytes }
    }

    /// The next event with data; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<SentEvent>, Failure> {
        self.events.next().await.map_err(|error| match error {
            EventStreamError::Broken(failure) => failure,
            EventStreamError::TooLong => too_large(self.max_bytes).effect_possible(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(chunks: &[&str], max_bytes: u64) -> Result<Vec<(String, String)>, Failure> {
        let chunks: Vec<_> = chunks.iter().map(|chunk| Ok(chunk.to_string())).collect();
        let mut events = RemoteEvents::bounded(futures_util::stream::iter(chunks), max_bytes);
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
