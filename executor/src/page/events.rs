//! The event stream: tells open pages which tasks changed.
//!
//! An event is only a nudge: the page loads the current state itself. A receiver that falls behind gets the list of
//! waiting tasks instead of the changes that it missed. A stream also tells when another browser signs in, and ends
//! with its session.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use ground::task::Outcome;
use protocol::excerpt;
use protocol::task::State;
use serde_json::{Value, json};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use super::door::SessionName;
use super::session::SessionChange;
use super::visible::{self, VisibleLine};
use super::wording::state_words;
use super::{Page, TaskChange};

/// The most characters of a reason.
const MAX_WHY_CHARS: usize = 160;
/// The pause between comments that keep an idle connection open.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How long to collect changes after the first one, so that they are sent together.
const BATCH_DELAY: Duration = Duration::from_millis(30);
/// The most waiting tasks whose ids are sent.
const MAX_WAITING: u32 = 50;

pub(super) async fn stream(
    extract::State(page): extract::State<Arc<Page>>,
    Extension(session): Extension<SessionName>,
) -> Response {
    let open = OpenStream::new(Arc::clone(&page));
    let (changes, sessions) = (page.context.task_changes.subscribe(), page.context.sessions.subscribe());
    let state = StreamState { changes, sessions, session: session.0, page, _open: open, is_first: true };
    let events = stream::unfold(state, |mut state| async move {
        let events = state.next().await?;
        Some((Ok::<_, Infallible>(Bytes::from(events)), state))
    });
    ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(events)).into_response()
}

/// Counts a human as present while an event stream is open.
struct OpenStream(Arc<Page>);

impl OpenStream {
    fn new(page: Arc<Page>) -> Self {
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
    changes: broadcast::Receiver<TaskChange>,
    sessions: broadcast::Receiver<SessionChange>,
    /// The name of the session that the stream belongs to.
    session: String,
    _open: OpenStream,
    is_first: bool,
}

impl StreamState {
    /// The next events as text; `None` when the executor stops or the session has ended.
    async fn next(&mut self) -> Option<String> {
        if std::mem::take(&mut self.is_first) {
            return Some(self.waiting());
        }
        let first = tokio::select! {
            () = tokio::time::sleep(KEEP_ALIVE) => return self.keep_alive(),
            change = self.sessions.recv() => return self.session_event(change),
            change = self.changes.recv() => change,
        };
        let first = match first {
            Err(RecvError::Closed) => return None,
            Err(RecvError::Lagged(_)) => return Some(self.waiting()),
            Ok(change) => change,
        };
        tokio::time::sleep(BATCH_DELAY).await;
        let mut changes = vec![first];
        loop {
            match self.changes.try_recv() {
                Ok(change) => changes.push(change),
                Err(broadcast::error::TryRecvError::Lagged(_)) => {}
                Err(_) => break,
            }
        }
        let tasks = changes.iter().map(|change| {
            let (state, is_final) = (change.state, change.state.is_final());
            let why = if is_final { self.why(change) } else { None };
            let data =
                json!({"id": change.id, "state": state, "state_words": state_words(state), "final": is_final, "why": why});
            event("task", &data)
        });
        Some(tasks.chain([self.waiting()]).collect())
    }

    /// Why a task ended without success, unless its state says it all.
    fn why(&self, change: &TaskChange) -> Option<VisibleLine> {
        if matches!(change.state, State::Succeeded | State::Expired) {
            return None;
        }
        let task = self.page.read(|records| records.task(change.id)).ok()??;
        match task.end?.outcome {
            Outcome::Error(error) => Some(visible::line(&excerpt::chars(&error.message, MAX_WHY_CHARS))),
            Outcome::Data(_) | Outcome::File { .. } => None,
        }
    }

    /// An idle stream does not keep its session alive, and ends with it.
    fn keep_alive(&self) -> Option<String> {
        self.page.context.sessions.exists(&self.session).then(|| ": keep-alive\n\n".to_owned())
    }

    fn session_event(&self, change: Result<SessionChange, RecvError>) -> Option<String> {
        let comment = self.keep_alive()?;
        match change {
            Ok(SessionChange::SignedIn(new)) if new.name != self.session => {
                Some(event("session", &json!({"name": new.name, "words": new.kind.words()})))
            }
            _ => Some(comment),
        }
    }

    /// The event with the waiting tasks and the counts.
    fn waiting(&self) -> String {
        let found = self.page.read(|records| Ok((records.waiting_ids(MAX_WAITING)?, records.counts()?)));
        match found {
            Ok((ids, counts)) => {
                let counts = json!({"waiting": counts.waiting, "running": counts.running});
                event("waiting", &json!({"ids": ids, "counts": counts}))
            }
            Err(error) => {
                tracing::warn!(%error, "failed to read the waiting tasks");
                ": not available\n\n".to_owned()
            }
        }
    }
}

fn event(name: &str, data: &Value) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}
