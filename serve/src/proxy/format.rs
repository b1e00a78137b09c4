//! Sends an answer in the form of a protocol: as it comes, or as one JSON document.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use serde_json::Value;

use super::answer::{AnswerEnd, AnswerPiece, AnswerStream};
use super::failure::ProxyFailure;

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
    /// The answer that is not streamed.
    fn whole(&mut self, text: &str, end: &AnswerEnd) -> Value;
}

/// Answers a request. A failure before anything was sent is an error with a status.
pub(crate) async fn respond(
    mut answer: AnswerStream,
    mut format: impl AnswerFormat,
    streams: bool,
) -> Result<Response, ProxyFailure> {
    if streams {
        answer.begun().await?;
        let headers = [(CONTENT_TYPE, format.stream_type())];
        return Ok((headers, streamed(answer, format)).into_response());
    }
    let (text, end) = answer.whole().await?;
    let document = format.whole(&text, &end).to_string();
    Ok(([(CONTENT_TYPE, JSON)], last(answer, document)).into_response())
}

/// A body that sends the pieces as they come.
fn streamed(answer: AnswerStream, format: impl AnswerFormat) -> Body {
    body(BodyState { answer, format: Some(Box::new(format)), stage: BodyStage::Begin })
}

/// A body that sends only this.
fn last(answer: AnswerStream, document: String) -> Body {
    body(BodyState { answer, format: None, stage: BodyStage::Last(document) })
}

#[derive(Debug)]
enum BodyStage {
    Begin,
    Running,
    Last(String),
    Sent,
}

struct BodyState {
    answer: AnswerStream,
    /// `None` if there is only the last chunk.
    format: Option<Box<dyn AnswerFormat>>,
    stage: BodyStage,
}

fn body(state: BodyState) -> Body {
    Body::from_stream(futures_util::stream::unfold(state, |mut state| async move {
        let chunk = state.next().await?;
        Some((Ok::<_, Infallible>(Bytes::from(chunk)), state))
    }))
}

impl BodyState {
    /// What is sent next; `None` after the last chunk was written to the connection.
    async fn next(&mut self) -> Option<String> {
        match std::mem::replace(&mut self.stage, BodyStage::Running) {
            BodyStage::Begin => self.format.as_mut().map(|format| format.begin()),
            BodyStage::Running => {
                let piece = self.answer.next().await;
                let format = self.format.as_mut()?;
                let chunk = match &piece {
                    AnswerPiece::Text(text) => format.text(text),
                    AnswerPiece::Silence => format.keep_alive(),
                    AnswerPiece::End(end) => format.end(end),
                    AnswerPiece::Failure(failure) => format.fail(failure),
                };
                if matches!(piece, AnswerPiece::End(_) | AnswerPiece::Failure(_)) {
                    self.stage = BodyStage::Sent;
                }
                Some(chunk)
            }
            BodyStage::Last(document) => {
                self.stage = BodyStage::Sent;
                Some(document)
            }
            BodyStage::Sent => {
                // hyper asks for more before it writes what it has. It writes while we are not ready; if that fails, this is
                // dropped and the answer counts as not delivered.
                tokio::task::yield_now().await;
                self.answer.delivered();
                None
            }
        }
    }
}
