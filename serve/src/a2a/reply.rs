//! The bodies of responses that tell the session when an answer has reached its client.

use std::convert::Infallible;
use std::sync::Arc;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use serde_json::Value;

use super::calls::TaskAnswer;
use super::record::{TaskFeed, TaskRecord};
use super::wire::A2aUpdate;
use crate::delivery;

/// A response with `value`. When it is sent, and the task in it has ended, the client has the answer.
pub(super) fn delivered(content_type: &'static str, value: &Value, answer: &TaskAnswer) -> Response {
    let record = answer.task.status.state.is_final().then(|| Arc::clone(&answer.record));
    let body = delivery::body(value.to_string(), move || {
        if let Some(record) = record {
            record.delivered();
        }
    });
    ([("content-type", content_type)], body).into_response()
}

/// The task as it is now and its updates until it ends, as events.
pub(super) fn event_stream(
    record: Arc<TaskRecord>,
    feed: TaskFeed,
    shape: impl Fn(Value) -> Value + Send + 'static,
) -> Response {
    let first = A2aUpdate::Task(feed.task);
    let is_over = first.state().is_some_and(super::wire::A2aState::is_final);
    let start = (Some(first), feed.updates, record, shape, is_over);
    let events = stream::unfold(start, |(first, mut updates, record, shape, is_over)| async move {
        let update = match first {
            Some(first) => Some(first),
            None if is_over => None,
            None => updates.recv().await,
        };
        let Some(update) = update else {
            if is_over {
                record.delivered();
            }
            return None;
        };
        let is_over = is_over || update.state().is_some_and(super::wire::A2aState::is_final);
        let event = Event::default().data(shape(update.to_value()).to_string());
        Some((Ok::<_, Infallible>(event), (None, updates, record, shape, is_over)))
    });
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}
