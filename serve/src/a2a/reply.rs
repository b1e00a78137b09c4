//! The bodies of responses that tell the session when an answer has reached its client.

use std::sync::Arc;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use serde_json::Value;

use super::calls::TaskAnswer;
use super::record::{TaskFeed, TaskRecord};
use super::wire::A2aUpdate;
use crate::delivery::{self, Receipt};

/// A response with `value`. When it is sent, and the task in it has ended, the client has the answer.
pub(super) fn delivered(content_type: &'static str, value: &Value, answer: &TaskAnswer) -> Response {
    let receipt = answer.task.status.state.is_final().then(|| receipt(Arc::clone(&answer.record)));
    delivery::whole(([("content-type", content_type)], value.to_string()).into_response(), receipt)
}

fn receipt(record: Arc<TaskRecord>) -> Receipt {
    Receipt::new(move || record.delivered())
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
        let update = update?;
        let is_over = is_over || update.state().is_some_and(super::wire::A2aState::is_final);
        let event = Event::default().data(shape(update.to_value()).to_string());
        let receipt = is_over.then(|| receipt(Arc::clone(&record)));
        Some(((event, receipt), (None, updates, record, shape, is_over)))
    });
    Sse::new(delivery::pieces(events)).keep_alive(KeepAlive::default()).into_response()
}
