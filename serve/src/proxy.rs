//! What the protocols of language models have in common here: OpenAI's and Ollama's.
//!
//! Their clients believe that they talk to a model. They talk to a session of our agent: of what they send, the last
//! message of the user is the question, and everything else is the server's own, unless their API key says that the
//! client keeps the history. `question.rs` decides that, `answer.rs` says what a chat shows of a turn, and `format.rs` sends
//! it in the form of a protocol.

pub(crate) mod answer;
pub(crate) mod failure;
pub(crate) mod format;
pub(crate) mod message;
pub(crate) mod question;
pub(crate) mod request;

use axum::http::header::USER_AGENT;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use protocol::error::ErrorBody;

use self::failure::ProxyFailure;
use crate::ollama::errors::OllamaError;
use crate::openai::errors::OpenAiError;

/// The name of the model that is the agent itself, with whichever model the session uses.
pub(crate) const AGENT_MODEL: &str = "agent-magic-tool";

/// A protocol of models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProxyProtocol {
    OpenAi,
    Ollama,
}

impl ProxyProtocol {
    /// The protocol of a request; `None` for our own API, and for what belongs to neither.
    pub(crate) fn of(path: &str, headers: &HeaderMap) -> Option<Self> {
        let is_below = |base: &str| path.strip_prefix(base).is_some_and(|rest| rest.starts_with('/'));
        if is_below("/api/v1") {
            None
        } else if is_below("/api") || is_below("/v1/api") {
            Some(Self::Ollama)
        } else if is_below("/v1") {
            Some(if is_ollama_client(headers) { Self::Ollama } else { Self::OpenAi })
        } else {
            None
        }
    }

    /// The answer to a request that was refused before it reached a route.
    pub(crate) fn refusal(self, status: StatusCode, error: ErrorBody) -> Response {
        let failure = ProxyFailure { status, ..error.into() };
        match self {
            Self::OpenAi => OpenAiError::from(failure).into_response(),
            Self::Ollama => OllamaError::from(failure).into_response(),
        }
    }
}

/// Whether the client says that it is one of Ollama's: its own SDKs and its command line.
pub(crate) fn is_ollama_client(headers: &HeaderMap) -> bool {
    let agent = headers.get(USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    agent.to_ascii_lowercase().starts_with("ollama")
}

/// The time in seconds since 1970, as OpenAI gives it.
pub(crate) fn unix_seconds() -> i64 {
    protocol::clock::now().as_second()
}

#[cfg(test)]
pub(crate) mod tests {
    use axum::http::HeaderValue;
    use executor::model::conversation::StopReason;
    use serde_json::Value;

    use super::*;
    use crate::turn::{TurnOutcome, TurnUsage};

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

    /// How a turn ended that used 30 tokens, 4 of them from a cache.
    pub(crate) fn outcome(answer: &str, reason: StopReason) -> TurnOutcome {
        let usage = TurnUsage { requests: 2, input_tokens: 20, cached_tokens: 4, output_tokens: 10, cost: 0.1 };
        TurnOutcome {
            answer: answer.to_owned(),
            termination: reason.as_str(),
            truncated: reason.is_truncated(),
            session: 101,
            model: "sonnet".to_owned(),
            usage,
            stop_reason: reason,
        }
    }

    #[test]
    fn a_path_belongs_to_one_protocol() {
        let of = |path| ProxyProtocol::of(path, &HeaderMap::new());
        assert_eq!(of("/v1/models"), Some(ProxyProtocol::OpenAi));
        assert_eq!((of("/api/chat"), of("/v1/api/chat")), (Some(ProxyProtocol::Ollama), Some(ProxyProtocol::Ollama)));
        assert_eq!((of("/api/v1/submit"), of("/"), of("/v1x"), of("/a2a/v1/x")), (None, None, None, None));
    }

    #[test]
    fn an_ollama_client_is_known_by_its_user_agent() {
        let of = |agent: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(USER_AGENT, HeaderValue::from_static(agent));
            is_ollama_client(&headers)
        };
        assert!(of("ollama-python/0.6.3 (x86_64 linux) Python/3.11.2"));
        assert!(of("ollama-js/0.6.4 (x64 linux Node.js/v20)") && of("Ollama/0.12.0 (amd64 linux) Go/go1.24"));
        assert!(!of("OpenAI/Python 3.54.0") && !of("Python/3.11 aiohttp/3.13") && !is_ollama_client(&HeaderMap::new()));
    }
}
