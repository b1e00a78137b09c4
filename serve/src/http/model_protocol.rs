//! Which protocol a request speaks, before it has reached a route.

use axum::http::HeaderMap;
use axum::http::header::USER_AGENT;

/// A protocol of language models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ModelProtocol {
    OpenAi,
    Anthropic,
    Ollama,
}

impl ModelProtocol {
    /// The protocol of a request; `None` for our own API, and for what belongs to neither.
    pub(crate) fn of(path: &str, headers: &HeaderMap) -> Option<Self> {
        let is_below = |base: &str| path.strip_prefix(base).is_some_and(|rest| rest.starts_with('/'));
        if is_below("/api/v1") {
            None
        } else if is_below("/api") || is_below("/v1/api") {
            Some(Self::Ollama)
        } else if is_below("/v1/messages") || path == "/v1/messages" {
            Some(Self::Anthropic)
        } else if is_below("/v1") {
            Some(match headers {
                headers if is_ollama_client(headers) => Self::Ollama,
                headers if is_anthropic_client(headers) => Self::Anthropic,
                _ => Self::OpenAi,
            })
        } else {
            None
        }
    }
}

/// Whether the client speaks Anthropic's protocol, each of whose requests names a version of it.
pub(crate) fn is_anthropic_client(headers: &HeaderMap) -> bool {
    headers.contains_key("anthropic-version")
}

/// Whether the client says that it is one of Ollama's: its own SDKs and its command line.
pub(crate) fn is_ollama_client(headers: &HeaderMap) -> bool {
    let agent = headers.get(USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    agent.to_ascii_lowercase().starts_with("ollama")
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn a_path_belongs_to_one_protocol() {
        let of = |path| ModelProtocol::of(path, &HeaderMap::new());
        assert_eq!(of("/v1/models"), Some(ModelProtocol::OpenAi));
        assert_eq!((of("/api/chat"), of("/v1/api/chat")), (Some(ModelProtocol::Ollama), Some(ModelProtocol::Ollama)));
        assert_eq!(
            (of("/v1/messages"), of("/v1/messages/count_tokens")),
            (Some(ModelProtocol::Anthropic), Some(ModelProtocol::Anthropic))
        );
        let mut headers = HeaderMap::new();
        headers.insert("anthropic-version", HeaderValue::from_static("2023-06-01"));
        assert_eq!(ModelProtocol::of("/v1/models", &headers), Some(ModelProtocol::Anthropic));
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
