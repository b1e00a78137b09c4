//! What waits for a human, as server-sent events, for a key that may decide.
//!
//! While such a stream is open, someone is there who decides: the calls of other clients wait though no page is open. Says
//! nothing by itself: each event is what the executor shows this key at that time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use ground::page_client::api_client::{Gate, GateList, PageApiError};
use protocol::code::Code;
use protocol::error::ErrorBody;
use protocol::task::TaskId;
use schemars::JsonSchema;
use serde::Serialize;

use super::api::{bearer, page_error};
use super::error::ApiError;
use super::{Bearer, HttpClient, ServeState};
use crate::error_shape::ErrorShape;
use crate::service::followers::FollowPermit;

/// How often an idle stream says that it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(25);
/// How long to wait before the executor is asked again that did not answer.
const PAUSE: Duration = Duration::from_secs(1);

/// What happens to what waits for a human. As a server-sent event its name is its type.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum GateEvent {
    /// This waits, or shows something else than before.
    Gate(Box<Gate>),
    /// It no longer waits: it was decided, or its task has ended.
    Gone {
        #[schemars(with = "String")]
        id: TaskId,
    },
    /// The stream ends: the key may no longer decide.
    Error {
        #[schemars(with = "ErrorShape")]
        error: ErrorBody,
    },
}

impl GateEvent {
    fn message(&self) -> Event {
        let name = match self {
            Self::Gate(_) => "gate",
            Self::Gone { .. } => "gone",
            Self::Error { .. } => "error",
        };
        Event::default().event(name).json_data(self).expect("an event is plain data")
    }
}

/// Follows what waits. The first events are what waits now.
pub(super) async fn follow(
    State(state): State<Arc<ServeState>>,
    Extension(client): Extension<HttpClient>,
) -> Result<Response, ApiError> {
    bearer(&client)?;
    let mut list = state.page.waiting(bearer(&client)?).await;
    if list.as_ref().is_err_and(is_unreachable) {
        // It stops when there is nothing to do, and knows who may decide.
        state.service.ensure_executor().await;
        list = state.page.waiting(bearer(&client)?).await;
    }
    let list = list.map_err(page_error)?;
    let (Some(key), Some(bearer)) = (client.key, client.bearer) else { return Err(too_many()) };
    let permit = state.service.followers().follow(&key).ok_or_else(too_many)?;
    let mut follower = Follower {
        state,
        bearer,
        shown: ShownList::default(),
        events: VecDeque::new(),
        is_over: false,
        _permit: permit,
    };
    follower.take(list);
    let events = stream::unfold(follower, |mut follower| async move {
        let event = follower.next().await?;
        Some((Ok::<_, std::convert::Infallible>(event), follower))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE).text("keep-alive")).into_response())
}

fn too_many() -> ApiError {
    let error = ErrorBody::new(Code::Throttled, "this API key follows what waits in too many streams")
        .hint("close one of them; one stream has all that waits");
    ApiError(StatusCode::TOO_MANY_REQUESTS, error)
}

fn is_unreachable(error: &PageApiError) -> bool {
    error.status == StatusCode::SERVICE_UNAVAILABLE
}

/// One open stream.
struct Follower {
    state: Arc<ServeState>,
    bearer: Bearer,
    shown: ShownList,
    events: VecDeque<GateEvent>,
    is_over: bool,
    _permit: FollowPermit,
}

impl Follower {
    /// The next event; `None` when the key may no longer decide, or the server stops.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event.message());
            }
            let stopping = self.state.service.stop_token();
            if self.is_over || stopping.is_cancelled() {
                return None;
            }
            let asked = self.state.page.waiting_after(self.bearer.expose(), &self.shown.version);
            let asked = tokio::select! {
                () = stopping.cancelled() => return None,
                asked = asked => asked,
            };
            match asked {
                // It may have been revoked.
                _ if self.state.keys.verify(self.bearer.expose()).is_none() => return None,
                Ok(list) => self.take(list),
                Err(error) if error.status < 500 => {
                    self.events.push_back(GateEvent::Error { error: ErrorBody::new(error.code, error.message) });
                    self.is_over = true;
                }
                // What waits is kept, and an executor that starts shows it again.
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    fn take(&mut self, list: GateList) {
        self.events.extend(self.shown.take(list));
    }
}

/// What the client was shown.
#[derive(Debug, Default)]
struct ShownList {
    version: String,
    /// The digest of each task.
    digests: BTreeMap<TaskId, String>,
}

impl ShownList {
    /// Takes over what waits now; returns what is new to the client.
    fn take(&mut self, list: GateList) -> Vec<GateEvent> {
        self.version = list.version();
        let before = std::mem::replace(&mut self.digests, list.digests());
        let gone = before.keys().filter(|id| !self.digests.contains_key(*id)).map(|id| GateEvent::Gone { id: *id });
        let is_new = |task: &Gate| before.get(&task.id) != Some(&task.digest);
        let new = list.into_waiting().filter(is_new).map(|task| GateEvent::Gate(Box::new(task)));
        gone.chain(new).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn list(tasks: &[(TaskId, &str)]) -> GateList {
        let text = |words: &str| json!({"text": words, "hidden": [], "notes": []});
        let tasks = tasks.iter().map(|(id, digest)| {
            json!({"id": id, "digest": digest, "subtool": "t", "description": "", "summary": "", "needs": {"how": "click"},
                "effect": "once", "effect_words": "", "danger": false, "why": "", "reason": null, "expires_at": "",
                "asked_by": {"user": "", "uid": 0, "folder": "", "session": null, "at": ""}, "fields": [],
                "would_send": text(""), "touches": [], "runs": [], "change": null, "unknown": null, "marks": []})
        });
        serde_json::from_value(json!({"gates": tasks.collect::<Vec<_>>(), "more": 0})).expect("a list")
    }

    #[test]
    fn a_client_is_told_what_came_what_changed_and_what_went_once() {
        let (one, two) = (TaskId::new(), TaskId::new());
        let mut shown = ShownList::default();
        let mut told = |tasks: &[(TaskId, &str)]| {
            let told = shown.take(list(tasks)).into_iter().map(|event| match event {
                GateEvent::Gate(task) => (task.id, task.digest),
                GateEvent::Gone { id } => (id, "gone".to_owned()),
                GateEvent::Error { error } => panic!("{error:?}"),
            });
            told.collect::<Vec<_>>()
        };
        let event = |id: TaskId, words: &str| (id, words.to_owned());
        assert_eq!(told(&[(one, "a")]), [event(one, "a")]);
        assert_eq!(told(&[(one, "a")]), []);
        assert_eq!(told(&[(one, "b"), (two, "a")]), [event(one, "b"), event(two, "a")]);
        assert_eq!(told(&[(two, "a")]), [event(one, "gone")]);
        assert_ne!(list(&[(one, "a")]).version(), list(&[(one, "b")]).version());
    }
}
