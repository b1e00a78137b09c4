//! Events of a session as server-sent events.

use std::str::FromStr;

use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;

use crate::delivery;
use crate::service::turn::{EventId, LoggedEvent, SessionEvent, TurnStream};

/// How often an idle stream says that it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(25);

/// The end of the id of an event with which its turn was over.
const OVER: &str = ".end";

impl std::fmt::Display for EventId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let end = if self.is_over { OVER } else { "" };
        write!(f, "{}.{}.{}{end}", self.turn, self.load, self.number)
    }
}

/// An event's id that is not one of ours.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not the id of an event; send the last one that you got")]
pub struct InvalidEventId(String);

impl FromStr for EventId {
    type Err = InvalidEventId;

    fn from_str(text: &str) -> Result<Self, InvalidEventId> {
        let invalid = || InvalidEventId(text.to_owned());
        let place = text.strip_suffix(OVER);
        let mut numbers = place.unwrap_or(text).split('.').map(str::parse::<u64>);
        match (numbers.next(), numbers.next(), numbers.next(), numbers.next()) {
            (Some(Ok(turn)), Some(Ok(load)), Some(Ok(number)), None) => {
                Ok(Self { turn, load, number, is_over: place.is_some() })
            }
            _ => Err(invalid()),
        }
    }
}

/// Which events a stream has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamEnd {
    /// It goes on with the next turn.
    Never,
    /// It ends with the turn.
    WithTurn,
}

/// The name of an event.
fn name(event: &SessionEvent) -> &'static str {
    match event {
        SessionEvent::Text { .. } | SessionEvent::Preface { .. } => "tok",
        SessionEvent::Restart => "restart",
        SessionEvent::Task(_) => "task",
        SessionEvent::Waiting(_) => "gate",
        SessionEvent::Note { .. } => "note",
        SessionEvent::Done(_) => "done",
        SessionEvent::Error { .. } => "error",
    }
}

fn message(logged: &LoggedEvent) -> Event {
    let event = Event::default().id(logged.id.to_string()).event(name(&logged.event));
    event.json_data(&logged.event).expect("an event is plain data")
}

/// How often an idle stream looks whether its client still may listen.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Answers with the events of `turn`, as they happen, as long as `may_listen` says so.
pub(crate) fn response(
    turn: TurnStream,
    end: StreamEnd,
    may_listen: impl Fn() -> bool + Send + Clone + 'static,
) -> Response {
    let start = (Some(turn), may_listen);
    let pieces = stream::unfold(start, move |(turn, may_listen)| async move {
        let mut turn = turn?;
        loop {
            let event = tokio::time::timeout(CHECK_INTERVAL, turn.next()).await;
            if !may_listen() {
                return None;
            }
            match event {
                Err(_) => {}
                Ok(None) => return None,
                Ok(Some(logged)) => {
                    let is_last = logged.event.is_last();
                    let receipt = if is_last { turn.receipt() } else { None };
                    let rest = (!is_last || end == StreamEnd::Never).then_some(turn);
                    return Some(((message(&logged), receipt), (rest, may_listen)));
                }
            }
        }
    });
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE).text("keep-alive");
    Sse::new(delivery::pieces(pieces)).keep_alive(keep_alive).into_response()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn an_event_id_is_read_as_it_is_written() {
        for is_over in [false, true] {
            let id = EventId { turn: 3, load: 1_700_000_000_000, number: 9, is_over };
            assert_eq!(id.to_string().parse::<EventId>().expect("read"), id);
        }
        for wrong in ["", "1", "1.2", "1.2.3.4", "a.b.c", "1.2.-3", "1.2.end", "1.2.3.end.end"] {
            wrong.parse::<EventId>().expect_err(wrong);
        }
    }

    #[tokio::test]
    async fn events_are_named_and_the_stream_ends_with_its_turn() {
        let (sender, events) = tokio::sync::mpsc::unbounded_channel();
        for (number, event) in [
            SessionEvent::Text { text: "a\nb".to_owned() },
            SessionEvent::Error { error: crate::service::stopping() },
            SessionEvent::Restart,
        ]
        .into_iter()
        .enumerate()
        {
            let id = EventId { turn: 1, load: 2, number: number as u64, is_over: event.is_last() };
            sender.send(Arc::new(LoggedEvent { id, event })).expect("the receiver is there");
        }
        let response = response(TurnStream::of(events, 101), StreamEnd::WithTurn, || true);
        let body = axum::body::to_bytes(response.into_body(), 1 << 16).await.expect("a body");
        let text = String::from_utf8(body.to_vec()).expect("text");
        assert!(
            text.starts_with(
                "id: 1.2.0\nevent: tok\ndata: {\"type\":\"text\",\"text\":\"a\\nb\"}\n\nid: 1.2.1.end\nevent: error\n"
            ),
            "{text}"
        );
        assert!(!text.contains("restart"), "{text}");
    }
}
