//! Sends an answer in the form of a protocol: as it comes, or as one JSON document.

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use serde_json::Value;

use super::answer::{AnswerEnd, AnswerPiece, AnswerStream};
use super::failure::ProxyFailure;
use crate::delivery;

/// The type of one JSON document.
pub(crate) const JSON: &str = "application/json";
/// The type of server-sent events.
pub(crate) const EVENTS: &str = "text/event-stream";

/// How a protocol writes an answer. Each method returns what is sent as it is.
pub(crate) trait AnswerFormat: Send + 'static {
    /// The type of a streamed answer.
    fn stream_type(&self) -> &'static str;
    /// What a stream begins with, before any text.
    fn begin(&mut self) -> String;
    fn text(&mut self, text: &str) -> String;
    /// Something without meaning, which keeps the connection open.
    fn keep_alive(&mut self) -> String;
    fn end(&mut self, end: &AnswerEnd) -> String;
    /// A failure of a stream that has begun.
    fn fail(&mut self, failure: &ProxyFailure) -> String;
    /// A failure before anything was sent.
    fn refusal(&self, failure: ProxyFailure) -> Response;
    /// The answer that is not streamed.
    fn whole(&mut self, text: &str, end: &AnswerEnd) -> Value;
}

/// Answers a request. A failure before anything was sent is an error with a status.
pub(crate) async fn respond(mut answer: AnswerStream, mut format: impl AnswerFormat, streams: bool) -> Response {
    let begun = if streams { answer.begun().await.map(|()| None) } else { answer.whole().await.map(Some) };
    match begun {
        Err(failure) => delivery::whole(format.refusal(failure), answer.receipt()),
        Ok(None) => ([(CONTENT_TYPE, format.stream_type())], streamed(answer, format)).into_response(),
        Ok(Some((text, end))) => {
            let document = format.whole(&text, &end).to_string();
            delivery::whole(([(CONTENT_TYPE, JSON)], document).into_response(), answer.receipt())
        }
    }
}

/// A body that sends the pieces as they come.
fn streamed(answer: AnswerStream, format: impl AnswerFormat) -> Body {
    let start = (answer, format, StreamStage::Begin);
    Body::from_stream(delivery::pieces(futures_util::stream::unfold(
        start,
        |(mut answer, mut format, stage)| async move {
            let (chunk, stage) = match stage {
                StreamStage::Begin => (format.begin(), StreamStage::Running),
                StreamStage::Running => match answer.next().await {
                    AnswerPiece::Text(text) => (format.text(&text), StreamStage::Running),
                    AnswerPiece::Silence => (format.keep_alive(), StreamStage::Running),
                    AnswerPiece::End(end) => (format.end(&end), StreamStage::Ended),
                    AnswerPiece::Failure(failure) => (format.fail(&failure), StreamStage::Ended),
                },
                StreamStage::Ended => return None,
            };
            let receipt = if stage == StreamStage::Ended { answer.receipt() } else { None };
            Some(((chunk, receipt), (answer, format, stage)))
        },
    )))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StreamStage {
    Begin,
    Running,
    Ended,
}
