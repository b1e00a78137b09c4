//! Sends an answer in the form of a protocol: as it comes, or as one JSON document.

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use serde_json::Value;

use super::answer::{AnswerEnd, AnswerStream};
use super::failure::ProxyFailure;
use super::question::{self, AskedTurnStream};
use super::request::ProxyRequest;
use crate::delivery;
use crate::http::ServeState;

/// The type of one JSON document.
pub(crate) const JSON: &str = "application/json";

/// How a protocol writes an answer. Each method returns what is sent as it is.
pub(crate) trait AnswerFormat: Send + 'static {
    /// The type of a streamed answer; that of server-sent events unless the protocol has another.
    fn stream_type(&self) -> &'static str {
        "text/event-stream"
    }
    /// What a stream begins with, before any text.
    fn begin(&mut self) -> String;
    fn text(&mut self, text: &str) -> String;
    /// Something without meaning, which keeps the connection open: a comment unless the protocol has none.
    fn keep_alive(&mut self) -> String {
        ": keep-alive\n\n".to_owned()
    }
    fn end(&mut self, end: &AnswerEnd) -> String;
    /// A failure of a stream that has begun.
    fn fail(&mut self, failure: &ProxyFailure) -> String;
    /// A failure before anything was sent.
    fn refusal(&self, failure: ProxyFailure) -> Response;
    /// The answer that is not streamed.
    fn whole(&mut self, text: &str, end: &AnswerEnd) -> Value;
}

/// Answers a request. A failure before anything was sent is an error with a status.
pub(crate) async fn answer<F: AnswerFormat>(
    state: &ServeState,
    request: &ProxyRequest,
    format: F,
    streams: bool,
) -> Result<Response, ProxyFailure> {
    let has_form = request.demands.answers.format.is_some();
    let AskedTurnStream { turn, is_one_step, record } = Box::pin(question::ask(state, request)).await?;
    let answer = AnswerStream::new(turn, format).of_one_step(is_one_step).of_last_answer(has_form).recorded_as(record);
    Ok(Box::pin(respond(answer, streams)).await)
}

/// Answers with the turn: as it comes if the client `streams`, or with the whole of it.
pub(crate) async fn respond<F: AnswerFormat>(mut answer: AnswerStream<F>, streams: bool) -> Response {
    let refused = if streams {
        match answer.begin().await {
            Ok(()) => return ([(CONTENT_TYPE, answer.stream_type())], streamed(answer)).into_response(),
            Err(failure) => failure,
        }
    } else {
        match answer.whole().await {
            Ok(document) => {
                let response = ([(CONTENT_TYPE, JSON)], document.to_string()).into_response();
                return delivery::whole(response, answer.receipt());
            }
            Err(failure) => failure,
        }
    };
    delivery::whole(answer.refusal(refused), answer.receipt())
}

/// A body that sends the answer as it comes.
fn streamed<F: AnswerFormat>(answer: AnswerStream<F>) -> Body {
    Body::from_stream(delivery::pieces(futures_util::stream::unfold(answer, async |mut answer| {
        Some((answer.next().await?, answer))
    })))
}
