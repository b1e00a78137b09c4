//! Real models. `wire.rs` and `ollama.rs` form the requests; this file makes them, and turns what comes back into a
//! turn or into a failure that can be told.
//!
//! An answer is kept in `genai`'s format beside our own types, and is sent back unchanged to the same provider.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use genai::adapter::AdapterKind;
use genai::chat::{ChatMessage, ChatStream, ChatStreamEvent, ContentPart, MessageContent, Usage as ProviderUsage};
use genai::resolver::{AuthData, Endpoint};
use genai::{ModelIden, ServiceTarget};
use ground::config::secret::Secrets;
use ground::config::{ModelSettings, ProviderKind};
use net::clients::HttpClients;
use protocol::data_class::DataClass;
use serde_json::Value;
use url::{Host, Url};

use super::ending::Ending;
use super::optional::Refusals;
use super::request_error::{ErrorKind, RequestError};
use super::{FailureClass, Message, ModelFailure, ModelRequest, Provider, TextListener, TurnFuture, ollama, wire};
use crate::model::conversation::{ModelTurn, RawMessage, TokenUsage, ToolCall, TurnEnd};
use crate::model::registry::ChosenModel;
use crate::model::{registry, view};

/// How often a provider may pause one answer.
const MAX_PAUSES: usize = 8;

/// One model with its API key.
#[derive(Debug)]
pub struct ModelClient {
    pub(super) genai: genai::Client,
    pub(super) target: ServiceTarget,
    http: reqwest::Client,
    url: Url,
    pub(super) chosen: ChosenModel,
    streams: bool,
}

impl ModelClient {
    /// Reads the model's API key. A failure names the secret, never its value.
    pub async fn new(
        chosen: ChosenModel,
        streams: bool,
        clients: &HttpClients,
        secrets: &Secrets,
    ) -> Result<Self, ModelFailure> {
        let model = &chosen.model;
        let url = base_url(model.url.as_ref(), model.provider);
        let key = match &model.key {
            Some(name) => secrets.get_for(name, &url).await.map_err(|error| configuration(&error))?.expose().to_owned(),
            // A local server needs no key, but `genai` requires one.
            None => "none".to_owned(),
        };
        let http = clients.client_for_configured(&url).await.map_err(|failure| ModelFailure {
            class: FailureClass::Configuration,
            message: failure.error.message,
            retry_after: None,
        })?;
        let http = http.clone();
        let genai =
            genai::Client::builder().with_reqwest(http.clone()).build().map_err(|error| configuration(&error))?;
        let target = ServiceTarget {
            endpoint: Endpoint::from_owned(url.as_str()),
            auth: AuthData::from_single(key),
            model: ModelIden::new(adapter_kind(model.provider), chosen.id().to_owned()),
        };
        Ok(Self { genai, target, http, url, chosen, streams })
    }

    /// Makes a request. A field that the model refuses is left out, and the request made again.
    async fn answer(&self, mut request: ModelRequest, on_text: TextListener<'_>) -> Result<ModelTurn, ModelFailure> {
        let input_estimate = view::estimate_message_tokens(&request.messages) + view::estimate_tokens(&request.system);
        let (url, id) = (self.url.as_str(), self.chosen.id());
        let mut notes = Vec::new();
        let mut paused: Vec<ModelTurn> = Vec::new();
        let settings = request.options.applied_to(&self.chosen.model);
        let turn = loop {
            let refusals = Refusals::of(url, id);
            let error = match self.attempt(&request, &settings, &refusals, on_text).await {
                Ok(turn) if is_paused(&turn) && paused.len() < MAX_PAUSES => {
                    request.messages.push(Message::Assistant {
                        text: turn.text.clone(),
                        calls: turn.calls.clone(),
                        raw: turn.raw.clone(),
                    });
                    paused.push(turn);
                    continue;
                }
                Ok(turn) => break paused.into_iter().rev().fold(turn, joined),
                Err(error) => error,
            };
            let refused = matches!(error.status, Some(400 | 422))
                .then(|| refusals.refused_field(&settings, self.streams, &error.message))
                .flatten();
            let Some(refused) = refused else { return Err(self.failure(&error)) };
            // Each round leaves out one more field or goes on with a paused answer, so this ends.
            Refusals::remember(url, id, refused, &error.message);
            tracing::warn!(model = self.chosen.name, field = refused.name, error = %error.message, "a field was refused");
            notes.push(format!(
                "the model `{}` refused `{}`; it is changed or left out from now on",
                self.chosen.name, refused.name
            ));
        };
        // Some servers report no usage; estimate it, so that budgets still apply.
        let usage = if turn.usage == TokenUsage::default() {
            TokenUsage { input: input_estimate, output: view::estimate_tokens(&turn.text), cached: 0 }
        } else {
            turn.usage
        };
        let cost = registry::cost(self.chosen.model.price, usage);
        Ok(ModelTurn { usage, cost, notes, model: self.chosen.name.clone(), ..turn })
    }

    async fn attempt(
        &self,
        request: &ModelRequest,
        model: &ModelSettings,
        refusals: &Refusals,
        on_text: TextListener<'_>,
    ) -> Result<ModelTurn, RequestError> {
        let timeout = model.timeout.get();
        if model.provider == ProviderKind::Ollama {
            let body = ollama::body(self.chosen.id(), model, request, self.streams, refusals);
            let mut post = self.http.post(ollama::url(&self.url));
            if let (Some(_), Ok(key)) = (&model.key, self.target.auth.single_key_value()) {
                post = post.bearer_auth(key);
            }
            return ollama::ask(post, &body, timeout, on_text).await;
        }
        let chat = wire::chat_request(request, model.provider, refusals);
        let options = wire::asked_for(wire::options(self.chosen.id(), model, refusals), request, model.provider);
        if self.streams {
            let ending = Arc::new(Mutex::new(Ending::default()));
            let seen = Arc::clone(&ending);
            let options = options.with_raw_frame_fn(move |_, frame| {
                if let Some(sent) = frame.json() {
                    seen.lock().unwrap_or_else(PoisonError::into_inner).read(&sent);
                }
            });
            let answer = self.genai.exec_chat_stream(self.target.clone(), chat, Some(&options));
            let answer = tokio::time::timeout(timeout, answer).await.map_err(|_| RequestError::timed_out())?;
            let stream = answer.map_err(|error| request_error(&error))?.stream;
            let read = read_stream(stream, timeout, on_text).await;
            let ending = std::mem::take(&mut *ending.lock().unwrap_or_else(PoisonError::into_inner));
            return match read {
                Ok((content, usage)) => self.turn(&content, &usage, ending),
                Err(_) if ending.end() == TurnEnd::Refused => Ok(refusal(ending)),
                Err(error) => Err(with_message_of(error, ending)),
            };
        }
        let answer = self.genai.exec_chat(self.target.clone(), chat, Some(&options));
        let answer = tokio::time::timeout(timeout, answer).await.map_err(|_| RequestError::timed_out())?;
        match answer {
            Ok(answer) => {
                if let Some(text) = answer.content.joined_texts() {
                    on_text(&text);
                }
                let ending = answer.captured_raw_body.as_ref().map(Ending::of).unwrap_or_default();
                self.turn(&answer.content, &answer.usage, ending)
            }
            Err(error) => {
                let body = match &error {
                    genai::Error::ChatResponseGeneration { response_body, .. } => Some(response_body.as_ref()),
                    _ => None,
                };
                let ending = body.map(Ending::of).unwrap_or_default();
                if ending.end() == TurnEnd::Refused {
                    return Ok(refusal(ending));
                }
                let recovered = body.and_then(|body| recover_malformed_calls(body, &ending));
                recovered.ok_or_else(|| with_message_of(request_error(&error), ending))
            }
        }
    }

    fn turn(&self, content: &MessageContent, usage: &ProviderUsage, ending: Ending) -> Result<ModelTurn, RequestError> {
        let calls: Vec<_> = content.tool_calls();
        if calls.is_empty() && ending.is_malformed() {
            let reason = ending.stop_reason.unwrap_or_default();
            return Err(RequestError::bad_answer(&format!("the model made a call that cannot be read: {reason}")));
        }
        let end = ending.end();
        let mut text = content.joined_texts().unwrap_or_default();
        if text.trim().is_empty() && calls.is_empty() {
            if let Some(error) = &ending.error {
                return Err(RequestError::inside_the_answer(error));
            }
            text = ending.refusal;
        }
        // A call with arguments that are not an object cannot be sent back unchanged.
        let is_sound = calls.iter().all(|call| call.fn_arguments.is_object());
        let message = is_sound.then(|| serde_json::to_value(ChatMessage::assistant(kept(content))).ok()).flatten();
        let calls = calls.into_iter().map(|call| ToolCall {
            id: call.call_id.clone(),
            name: call.fn_name.clone(),
            arguments: call.fn_arguments.clone(),
        });
        Ok(ModelTurn {
            text,
            calls: calls.collect(),
            raw: message.map(|message| RawMessage { provider: self.chosen.model.provider, message }),
            usage: token_usage(usage),
            end,
            stop_reason: ending.stop_reason,
            ..ModelTurn::default()
        })
    }

    /// Returns a failure for the user. The message of a remote provider goes to the log only, since it may quote the
    /// request; what a server on this machine or in this network says is about that server.
    pub(super) fn failure(&self, error: &RequestError) -> ModelFailure {
        tracing::warn!(model = self.chosen.name, error = %error.message, "the model request failed");
        let name = &self.chosen.name;
        let (class, message) = match (error.status, error.kind) {
            (Some(401 | 403), _) => {
                (FailureClass::Auth, format!("the provider of the model `{name}` rejected the API key"))
            }
            (Some(404), _) => (FailureClass::Configuration, format!("no model `{}` at {}", self.chosen.id(), self.url)),
            (Some(408), _) => (FailureClass::Connection, format!("the request to the model `{name}` timed out")),
            (Some(429), _) => (FailureClass::RateLimit, format!("too many requests to the model `{name}`")),
            (Some(status @ 500..), _) => {
                (FailureClass::ServerError, format!("the model `{name}` failed with status {status}"))
            }
            (Some(status), _) => {
                (FailureClass::Rejected, format!("the model `{name}` rejected the request with status {status}"))
            }
            (None, ErrorKind::TimedOut) => {
                (error.class, format!("the model `{name}` sent nothing for {:?}", self.chosen.model.timeout.get()))
            }
            (None, ErrorKind::BrokeOff) => {
                (error.class, format!("the connection to the model `{name}` broke in the middle of its answer"))
            }
            (None, ErrorKind::InsideTheAnswer) => {
                (error.class, format!("the model `{name}` failed in the middle of its answer"))
            }
            (None, ErrorKind::Connection) => {
                (error.class, format!("failed to connect to the model `{name}`, or the connection broke"))
            }
            (None, ErrorKind::BadAnswer | ErrorKind::Status) => {
                (error.class, format!("failed to parse the answer of the model `{name}`"))
            }
        };
        let speaks =
            matches!(error.kind, ErrorKind::Status | ErrorKind::InsideTheAnswer) && class != FailureClass::Auth;
        let shown = Some(error.shown()).filter(|shown| speaks && !shown.is_empty() && is_local(&self.url));
        let message = shown.map_or_else(|| message.clone(), |shown| format!("{message}: {shown}"));
        ModelFailure { class, message, retry_after: error.retry_after }
    }
}

impl Provider for ModelClient {
    fn ask<'a>(&'a self, request: ModelRequest, on_text: TextListener<'a>) -> TurnFuture<'a> {
        Box::pin(self.answer(request, on_text))
    }
}

/// The content as it is kept. What `genai` does not know, like redacted thoughts, names the model that sent it, and with
/// that name it cannot be read back.
fn kept(content: &MessageContent) -> MessageContent {
    let mut content = content.clone();
    for part in &mut content {
        if let ContentPart::Custom(part) = part {
            part.model_iden = None;
        }
    }
    content
}

/// Whether the provider goes on with the answer when it is sent back.
fn is_paused(turn: &ModelTurn) -> bool {
    turn.calls.is_empty() && turn.stop_reason.as_deref() == Some("pause_turn")
}

/// The answer that began with `start`, before its provider paused, and ended with `rest`.
fn joined(rest: ModelTurn, start: ModelTurn) -> ModelTurn {
    let raw = start.raw.zip(rest.raw).and_then(|(start, rest)| {
        let mut whole = serde_json::from_value::<ChatMessage>(start.message).ok()?;
        let end = serde_json::from_value::<ChatMessage>(rest.message).ok()?;
        end.content.into_parts().into_iter().for_each(|part| whole.content.push(part));
        Some(RawMessage { provider: rest.provider, message: serde_json::to_value(whole).ok()? })
    });
    let usage = TokenUsage {
        input: start.usage.input + rest.usage.input,
        output: start.usage.output + rest.usage.output,
        cached: start.usage.cached + rest.usage.cached,
    };
    ModelTurn { text: start.text + &rest.text, raw, usage, ..rest }
}

/// Reads a stream to its end. The timeout applies to each event, not to the whole stream.
async fn read_stream(
    mut stream: ChatStream,
    timeout: Duration,
    on_text: TextListener<'_>,
) -> Result<(MessageContent, ProviderUsage), RequestError> {
    loop {
        match tokio::time::timeout(timeout, stream.next()).await.map_err(|_| RequestError::timed_out())? {
            Some(Ok(ChatStreamEvent::Chunk(chunk))) => on_text(&chunk.content),
            // An end without a stop reason means that the connection broke.
            Some(Ok(ChatStreamEvent::End(end))) if end.captured_stop_reason.is_some() => {
                return Ok((end.captured_content.unwrap_or_default(), end.captured_usage.unwrap_or_default()));
            }
            Some(Err(error)) => return Err(request_error(&error)),
            None | Some(Ok(ChatStreamEvent::End(_))) => return Err(RequestError::broke_off()),
            Some(Ok(_)) => {}
        }
    }
}

/// The turn of a model whose provider stopped it.
fn refusal(ending: Ending) -> ModelTurn {
    ModelTurn { end: ending.end(), text: ending.refusal, stop_reason: ending.stop_reason, ..ModelTurn::default() }
}

/// The error with what the provider said inside its answer, if it said anything.
fn with_message_of(error: RequestError, ending: Ending) -> RequestError {
    match ending.error {
        Some(said) if error.status.is_none() => RequestError::inside_the_answer(&said),
        _ => error,
    }
}

pub(super) fn request_error(error: &genai::Error) -> RequestError {
    use genai::webc::Error as WebError;
    // The error inside a stream's error says more.
    let error = match error {
        genai::Error::WebStream { error: inner, .. } => match inner.downcast_ref::<genai::Error>() {
            Some(inner) => inner,
            None => return RequestError::connection(inner.as_ref()),
        },
        _ => error,
    };
    match error {
        genai::Error::HttpError { status, body, headers, .. }
        | genai::Error::WebModelCall { webc_error: WebError::ResponseFailedStatus { status, body, headers }, .. } => {
            RequestError::status(status.as_u16(), headers, body)
        }
        genai::Error::WebModelCall { webc_error: WebError::Reqwest(error), .. } => RequestError::connection(error),
        _ => RequestError::bad_answer(&error.to_string()),
    }
}

/// Recovers an answer in `OpenAI`'s format that `genai` rejected because the arguments of a call are not valid
/// JSON, so that the model can be told about its mistake.
fn recover_malformed_calls(body: &Value, ending: &Ending) -> Option<ModelTurn> {
    let message = body.pointer("/choices/0/message")?;
    let call = |call: &Value| {
        let text = |pointer: &str| call.pointer(pointer).and_then(Value::as_str);
        let arguments = text("/function/arguments")?;
        Some(ToolCall {
            id: text("/id")?.to_owned(),
            name: text("/function/name")?.to_owned(),
            arguments: serde_json::from_str(arguments).unwrap_or_else(|_| arguments.into()),
        })
    };
    let calls = message.get("tool_calls")?.as_array()?.iter().map(call).collect::<Option<Vec<_>>>()?;
    let count = |pointer: &str| body.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
    let usage =
        TokenUsage { input: count("/usage/prompt_tokens"), output: count("/usage/completion_tokens"), cached: 0 };
    let text = message.get("content").and_then(Value::as_str).unwrap_or_default().to_owned();
    let (end, stop_reason) = (ending.end(), ending.stop_reason.clone());
    (!calls.is_empty()).then_some(ModelTurn { text, calls, usage, end, stop_reason, ..ModelTurn::default() })
}

fn adapter_kind(provider: ProviderKind) -> AdapterKind {
    match provider {
        ProviderKind::Openai => AdapterKind::OpenAI,
        ProviderKind::OpenaiResponses => AdapterKind::OpenAIResp,
        ProviderKind::Anthropic => AdapterKind::Anthropic,
        ProviderKind::Gemini => AdapterKind::Gemini,
        ProviderKind::Ollama => AdapterKind::Ollama,
    }
}

/// Returns the base URL of the provider's API. A URL without a path gets the provider's usual path.
pub fn base_url(url: Option<&Url>, provider: ProviderKind) -> Url {
    let (default_host, default_path) = match provider {
        ProviderKind::Openai | ProviderKind::OpenaiResponses => ("https://api.openai.com", "v1/"),
        ProviderKind::Anthropic => ("https://api.anthropic.com", "v1/"),
        ProviderKind::Gemini => ("https://generativelanguage.googleapis.com", "v1beta/"),
        ProviderKind::Ollama => ("http://127.0.0.1:11434", ""),
    };
    let mut url = url.cloned().unwrap_or_else(|| default_host.parse().expect("a provider's default host is a URL"));
    let path = match url.path().trim_end_matches('/') {
        "" => format!("/{default_path}"),
        path => format!("{path}/"),
    };
    url.set_path(&path);
    url
}

/// Returns the most sensitive data that a model may get.
pub fn trust_of(model: &ModelSettings) -> DataClass {
    let is_ours = || is_local(&base_url(model.url.as_ref(), model.provider));
    model.trust.unwrap_or_else(|| if is_ours() { DataClass::Secret } else { DataClass::Confidential })
}

/// Whether the server is on this machine or in its own network.
fn is_local(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback() || address.is_private() || address.is_link_local(),
        Some(Host::Ipv6(address)) => address.is_loopback() || address.is_unique_local(),
        // A name without a dot is one of the local network, or of a container.
        Some(Host::Domain(name)) => {
            !name.contains('.') || matches!(name.rsplit('.').next(), Some("localhost" | "local"))
        }
        None => false,
    }
}

pub(super) fn token_usage(usage: &ProviderUsage) -> TokenUsage {
    let count = |tokens: Option<i32>| tokens.and_then(|tokens| u64::try_from(tokens).ok()).unwrap_or(0);
    let cached = usage.prompt_tokens_details.as_ref().and_then(|details| details.cached_tokens);
    TokenUsage { input: count(usage.prompt_tokens), output: count(usage.completion_tokens), cached: count(cached) }
}

fn configuration(error: &dyn std::error::Error) -> ModelFailure {
    ModelFailure { class: FailureClass::Configuration, message: error.to_string(), retry_after: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_without_a_path_gets_the_default_path() {
        let base = |url: &str, provider| base_url(Some(&url.parse().expect("a URL")), provider).to_string();
        assert_eq!(base("http://127.0.0.1:9", ProviderKind::Openai), "http://127.0.0.1:9/v1/");
        assert_eq!(base("http://127.0.0.1:9/proxy/v4", ProviderKind::Openai), "http://127.0.0.1:9/proxy/v4/");
        assert_eq!(base("http://127.0.0.1:11434/", ProviderKind::Ollama), "http://127.0.0.1:11434/");
        assert_eq!(base("http://h", ProviderKind::Gemini), "http://h/v1beta/");
        assert_eq!(base_url(None, ProviderKind::Anthropic).as_str(), "https://api.anthropic.com/v1/");
    }

    #[test]
    fn only_a_server_of_our_own_network_is_quoted() {
        for (url, local) in [
            ("http://127.0.0.1:11434", true),
            ("http://192.168.1.5:8080", true),
            ("http://ollama:11434", true),
            ("http://[::1]:1", true),
            ("https://api.openai.com", false),
            ("https://8.8.8.8", false),
        ] {
            assert_eq!(is_local(&url.parse().expect("a URL")), local, "{url}");
        }
    }
}
