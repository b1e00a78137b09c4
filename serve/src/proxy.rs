//! What the protocols of language models have in common here: OpenAI's, Anthropic's and Ollama's.
//!
//! Their clients believe that they talk to a model. They talk to a session of our agent: of what they send, the last
//! message of the user is the question, and everything else is the server's own, unless their API key says that the
//! client keeps the history. `question.rs` decides that, `demands.rs` has what else a client wants, `answer.rs` says what a chat shows of a turn, and `format.rs` sends
//! it in the form of a protocol.

pub(crate) mod answer;
mod conversation;
pub(crate) mod demands;
pub(crate) mod embedding;
pub(crate) mod failure;
pub(crate) mod format;
pub(crate) mod message;
pub(crate) mod question;
pub(crate) mod request;

/// The name of the model that is the agent itself, with whichever model the session uses.
pub(crate) const AGENT_MODEL: &str = "agent-magic-tool";

/// How a client gets what a session of the server does not have.
pub(crate) const OWN_HISTORY: &str =
    "a client that keeps its history itself can: agent-magic-tool serve key create NAME --history=client";

/// The time in seconds since 1970, as OpenAI gives it.
pub(crate) fn unix_seconds() -> i64 {
    protocol::clock::now().as_second()
}

#[cfg(test)]
pub(crate) mod tests {
    use agent_loop::model::conversation::StopReason;
    use axum::response::{IntoResponse as _, Response};
    use serde_json::{Value, json};

    use super::answer::AnswerEnd;
    use super::failure::ProxyFailure;
    use super::format::AnswerFormat;
    use crate::service::turn::{TurnOutcome, TurnUsage};

    /// The JSON data of a stream of events, and all its other lines.
    pub(crate) fn events_of(sent: &str) -> (Vec<Value>, Vec<String>) {
        let (mut events, mut rest) = (Vec::new(), Vec::new());
        for line in sent.lines().filter(|line| !line.is_empty()) {
            match line.strip_prefix("data: ").and_then(|data| serde_json::from_str(data).ok()) {
                Some(event) => events.push(event),
                None => rest.push(line.to_owned()),
            }
        }
        (events, rest)
    }

    /// A protocol that writes the text as it is, and this at the end.
    #[derive(Default)]
    pub(crate) struct PlainFormat {
        pub(crate) end: String,
    }

    impl AnswerFormat for PlainFormat {
        fn begin(&mut self) -> String {
            String::new()
        }

        fn text(&mut self, text: &str) -> String {
            text.to_owned()
        }

        fn end(&mut self, _end: &AnswerEnd) -> String {
            self.end.clone()
        }

        fn fail(&mut self, failure: &ProxyFailure) -> String {
            failure.message.clone()
        }

        fn refusal(&self, failure: ProxyFailure) -> Response {
            (failure.status, failure.message).into_response()
        }

        /// With the tokens of the answer.
        fn whole(&mut self, text: &str, end: &AnswerEnd) -> Value {
            json!([text, end.outcome.usage.output_tokens])
        }
    }

    /// How a turn ended that used 30 tokens, 4 of them from a cache.
    pub(crate) fn outcome(answer: &str, reason: StopReason) -> TurnOutcome {
        let usage = TurnUsage { requests: 2, input_tokens: 20, cached_tokens: 4, output_tokens: 10, cost: 0.1 };
        TurnOutcome { model: "sonnet".to_owned(), usage, ..TurnOutcome::of(101, answer.to_owned(), reason) }
    }
}
