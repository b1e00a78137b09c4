//! The stream of events: what changed, for whoever has the page open.
//!
//! A nudge and no more: the page looks for itself. Whoever falls behind is told to look anew.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use super::wording::state_words;
use super::{Page, TaskChange};

/// A comment keeps what lies between from closing the connection.
const STILL_THERE: Duration = Duration::from_secs(15);
/// Changes that come together are told together.
const GATHER: Duration = Duration::from_millis(30);
/// How many of those that wait the page is told of.
const MAX_ROWS: u32 = 50;

pub(super) async fn stream(State(page): State<Arc<Page>>) -> Response {
    let seat = OpenStream::take(Arc::clone(&page));
    let watching = StreamState { live: page.context.task_changes.subscribe(), page, _seat: seat, is_first: true };
    let frames = stream::unfold(watching, |mut watching| async move {
        let frame = watching.next().await?;
        Some((Ok::<_, Infallible>(Bytes::from(frame)), watching))
    });
    ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(frames)).into_response()
}

/// Somebody looks on, for as long as this lives.
struct OpenStream(Arc<Page>);

impl OpenStream {
    fn take(page: Arc<Page>) -> Self {
        page.context.approver.enter();
        page.presence_changed();
        Self(page)
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.context.approver.leave();
        self.0.presence_changed();
    }
}

struct StreamState {
    page: Arc<Page>,
    live: broadcast::Receiver<TaskChange>,
    _seat: OpenStream,
    is_first: bool,
}

impl StreamState {
    /// What there is to tell next; `None` when the executor ends.
    async fn next(&mut self) -> Option<String> {
        if std::mem::take(&mut self.is_first) {
            return Some(self.waiting());
        }
        let first = match tokio::time::timeout(STILL_THERE, self.live.recv()).await {
            Err(_) => return Some(": still there\n\n".to_owned()),
            Ok(Err(RecvError::Closed)) => return None,
            Ok(Err(RecvError::Lagged(_))) => return Some(self.waiting()),
            Ok(Ok(live)) => live,
        };
        tokio::time::sleep(GATHER).await;
        let mut told = vec![first];
        loop {
            match self.live.try_recv() {
                Ok(live) => told.push(live),
                Err(broadcast::error::TryRecvError::Lagged(_)) => {}
                Err(_) => break,
            }
        }
        let tasks = told.iter().map(|live| {
            let (state, is_final) = (live.state, live.state.is_final());
            let data = json!({"id": live.id, "state": state, "state_words": state_words(state), "final": is_final});
            frame("task", &data)
        });
        Some(tasks.chain([self.waiting()]).collect())
    }

    fn waiting(&self) -> String {
        let found = self.page.read(|records| Ok((records.waiting_ids(MAX_ROWS)?, records.counts()?)));
        match found {
            Ok((ids, counts)) => {
                let counts = json!({"waiting": counts.waiting, "running": counts.running});
                frame("waiting", &json!({"ids": ids, "counts": counts}))
            }
            Err(error) => {
                tracing::warn!(%error, "those that wait could not be read");
                ": not now\n\n".to_owned()
            }
        }
    }
}

fn frame(event: &str, data: &Value) -> String {
    format!("event: {event}\ndata: {data}\n\n")
}
