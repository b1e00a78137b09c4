//! Real models through `genai`, which knows each provider's format of messages, tools and streams.
//!
//! An answer is kept in `genai`'s format beside our own types, and is sent back unchanged to the same provider.

use std::time::Duration;

use futures_util::StreamExt as _;
use genai::adapter::AdapterKind;
use genai::chat::{
    CacheControl, ChatMessage, ChatOptions, ChatRequest, ChatStream, ChatStreamEvent, ContentPart, MessageContent,
    ToolCall as ProviderCall, ToolResponse, Usage as ProviderUsage,
};
use genai::resolver::{AuthData, Endpoint};
use genai::{ModelIden, ServiceTarget};
use serde_json::{Value, json};
use url::Url;

use super::{FailureClass, Message, ModelFailure, ModelRequest, Provider, TextListener, ToolDefinition, TurnFuture};
use crate::config;
use crate::config::secret::Secrets;
use crate::model::conversation::{RawMessage, TokenUsage, ToolCall, Turn};
use crate::model::registry::ChosenModel;
use crate::model::{registry, view};
use crate::net::clients::HttpClients;

/// One model with its API key.
#[derive(Debug)]
pub struct ModelClient {
    genai: genai::Client,
    target: ServiceTarget,
    chosen: ChosenModel,
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
            Some(name) => secrets.get(name).await.map_err(|error| configuration(&error))?.expose().to_owned(),
            // A local server needs no key, but `genai` requires one.
            None => "none".to_owned(),
        };
        let http = clients.client_for_configured(&url).await.map_err(|failure| ModelFailure {
            class: FailureClass::Configuration,
            message: failure.error.message,
            retry_after: None,
        })?;
        let genai =
            genai::Client::builder().with_reqwest(http.clone()).build().map_err(|error| configuration(&error))?;
        let target = ServiceTarget {
            endpoint: Endpoint::from_owned(url.as_str()),
            auth: AuthData::from_single(key),
            model: ModelIden::new(adapter_kind(model.provider), chosen.id().to_owned()),
        };
        Ok(Self { genai, target, chosen, streams })
    }

    async fn answer(&self, request: ModelRequest, on_text: TextListener<'_>) -> Result<Turn, ModelFailure> {
        let timeout = self.chosen.model.timeout.get();
        let options = self.options();
        let input_estimate = view::estimate_message_tokens(&request.messages) + view::estimate_tokens(&request.system);
        let chat = self.chat_request(request);
        let (content, usage) = if self.streams {
            let answer = self.genai.exec_chat_stream(self.target.clone(), chat, Some(&options));
            let answer = tokio::time::timeout(timeout, answer).await.map_err(|_| self.timed_out(timeout))?;
            self.read_stream(answer.map_err(|error| self.failure(&error))?.stream, timeout, on_text).await?
        } else {
            let answer = self.genai.exec_chat(self.target.clone(), chat, Some(&options));
            let answer = tokio::time::timeout(timeout, answer).await.map_err(|_| self.timed_out(timeout))?;
            let answer = match answer {
                Ok(answer) => answer,
                Err(error) => {
                    return recover_malformed_calls(&error)
                        .map(|turn| self.with_cost(turn))
                        .ok_or_else(|| self.failure(&error));
                }
            };
            if let Some(text) = answer.content.joined_texts() {
                on_text(&text);
            }
            (answer.content, answer.usage)
        };
        let turn = self.turn(&content, &usage);
        if turn.usage != TokenUsage::default() {
            return Ok(turn);
        }
        // Some servers report no usage; estimate it, so that budgets still apply.
        let usage = TokenUsage { input: input_estimate, output: view::estimate_tokens(&turn.text), cached: 0 };
        Ok(self.with_cost(Turn { usage, ..turn }))
    }

    /// Reads a stream to its end. The timeout applies to each event, not to the whole stream.
    async fn read_stream(
        &self,
        mut stream: ChatStream,
        timeout: Duration,
        on_text: TextListener<'_>,
    ) -> Result<(MessageContent, ProviderUsage), ModelFailure> {
        loop {
            match tokio::time::timeout(timeout, stream.next()).await.map_err(|_| self.timed_out(timeout))? {
                Some(Ok(ChatStreamEvent::Chunk(chunk))) => on_text(&chunk.content),
                // An end without a stop reason means that the connection broke.
                Some(Ok(ChatStreamEvent::End(end))) if end.captured_stop_reason.is_some() => {
                    return Ok((end.captured_content.unwrap_or_default(), end.captured_usage.unwrap_or_default()));
                }
                Some(Err(error)) => return Err(self.failure(&error)),
                None | Some(Ok(ChatStreamEvent::End(_))) => {
                    let message =
                        format!("the connection to the model `{}` broke in the middle of its answer", self.chosen.name);
                    return Err(ModelFailure { class: FailureClass::Connection, message, retry_after: None });
                }
                Some(Ok(_)) => {}
            }
        }
    }

    fn timed_out(&self, timeout: Duration) -> ModelFailure {
        let message = format!("the model `{}` sent nothing for {timeout:?}", self.chosen.name);
        ModelFailure { class: FailureClass::Connection, message, retry_after: None }
    }

    fn options(&self) -> ChatOptions {
        let model = &self.chosen.model;
        let mut options = ChatOptions::default()
            .with_capture_usage(true)
            .with_capture_content(true)
            .with_capture_tool_calls(true)
            .with_capture_reasoning_content(true)
            .with_capture_raw_body(true);
        options.temperature = model.temperature;
        options.max_tokens = model.max_tokens;
        options
    }

    fn chat_request(&self, request: ModelRequest) -> ChatRequest {
        let mut messages: Vec<_> =
            request.messages.into_iter().flat_map(|message| self.chat_messages(message)).collect();
        // The next request starts with the same messages. Other providers cache them by default.
        if self.chosen.model.provider == config::ProviderKind::Anthropic
            && let Some(last) = messages.last_mut()
        {
            last.options = Some(CacheControl::Ephemeral.into());
        }
        let chat = ChatRequest::new(messages);
        let chat = if request.system.is_empty() { chat } else { chat.with_system(request.system) };
        if request.tools.is_empty() { chat } else { chat.with_tools(request.tools.into_iter().map(genai_tool)) }
    }

    fn chat_messages(&self, message: Message) -> Vec<ChatMessage> {
        match message {
            Message::User(text) => vec![ChatMessage::user(text)],
            Message::Assistant { text, calls, raw } => {
                let own = raw.filter(|raw| raw.provider == self.chosen.model.provider);
                if let Some(Ok(message)) = own.map(|raw| serde_json::from_value(raw.message)) {
                    return vec![message];
                }
                let text = Some(text).filter(|text| !text.is_empty()).map(ContentPart::Text);
                let parts: Vec<_> = text.into_iter().chain(calls.into_iter().map(tool_call_part)).collect();
                vec![ChatMessage::assistant(MessageContent::from_parts(parts))]
            }
            // One message per result, since Ollama's format holds only one.
            Message::Results(results) => results
                .into_iter()
                .map(|result| ToolResponse::new(result.call, result.text).with_fn_name(result.name).into())
                .collect(),
        }
    }

    fn turn(&self, content: &MessageContent, usage: &ProviderUsage) -> Turn {
        let calls = content.tool_calls().into_iter().enumerate().map(|(number, call)| ToolCall {
            // Some servers send no call ids.
            id: if call.call_id.is_empty() { format!("call-{}", number + 1) } else { call.call_id.clone() },
            name: call.fn_name.clone(),
            arguments: call.fn_arguments.clone(),
        });
        let calls: Vec<_> = calls.collect();
        let usage = token_usage(usage);
        // A call without an id, or with arguments that are not an object, cannot be sent back unchanged.
        let is_sound = calls.iter().all(|call| call.arguments.is_object())
            && content.tool_calls().iter().all(|call| !call.call_id.is_empty());
        let message = is_sound.then(|| serde_json::to_value(ChatMessage::assistant(content.clone())).ok()).flatten();
        self.with_cost(Turn {
            text: content.joined_texts().unwrap_or_default(),
            calls,
            raw: message.map(|message| RawMessage { provider: self.chosen.model.provider, message }),
            usage,
            ..Turn::default()
        })
    }

    fn with_cost(&self, turn: Turn) -> Turn {
        let cost = registry::cost(self.chosen.model.price, turn.usage);
        Turn { cost, model: self.chosen.name.clone(), ..turn }
    }

    /// Returns a failure for the user. The provider's message goes to the log only, since it may quote the request.
    fn failure(&self, error: &genai::Error) -> ModelFailure {
        let detail: String = error.to_string().chars().take(2000).collect();
        tracing::warn!(model = self.chosen.name, error = %detail, "the model request failed");
        let name = &self.chosen.name;
        let source = unwrap_stream_error(error);
        let (class, message) = match source.status().map(|status| status.as_u16()) {
            Some(401 | 403) => (FailureClass::Auth, format!("the provider of the model `{name}` rejected the API key")),
            Some(404) => {
                let id = self.chosen.id();
                (FailureClass::ClientError, format!("no model `{id}` at {}", self.target.endpoint.base_url()))
            }
            Some(408) => (FailureClass::Connection, format!("the request to the model `{name}` timed out")),
            Some(429) => (FailureClass::RateLimit, format!("too many requests to the model `{name}`")),
            Some(status @ 500..) => {
                (FailureClass::ServerError, format!("the model `{name}` failed with status {status}"))
            }
            Some(status) => {
                (FailureClass::ClientError, format!("the model `{name}` rejected the request with status {status}"))
            }
            None if is_connection(error) => {
                (FailureClass::Connection, format!("failed to connect to the model `{name}`, or the connection broke"))
            }
            None => (FailureClass::BadAnswer, format!("failed to parse the answer of the model `{name}`")),
        };
        let wanted = source.headers().and_then(|headers| headers.get("retry-after")?.to_str().ok()?.parse().ok());
        ModelFailure { class, message, retry_after: wanted.map(Duration::from_secs) }
    }
}

impl Provider for ModelClient {
    fn ask<'a>(&'a self, request: ModelRequest, on_text: TextListener<'a>) -> TurnFuture<'a> {
        Box::pin(self.answer(request, on_text))
    }
}

fn genai_tool(tool: ToolDefinition) -> genai::chat::Tool {
    genai::chat::Tool::new(tool.name).with_description(tool.description).with_schema(tool.parameters)
}

fn tool_call_part(call: ToolCall) -> ContentPart {
    let arguments = call.arguments;
    ContentPart::ToolCall(ProviderCall {
        call_id: call.id,
        fn_name: call.name,
        fn_arguments: if arguments.is_object() { arguments } else { json!({ "not_an_object": arguments }) },
        thought_signatures: None,
    })
}

fn adapter_kind(provider: config::ProviderKind) -> AdapterKind {
    match provider {
        config::ProviderKind::Openai => AdapterKind::OpenAI,
        config::ProviderKind::OpenaiResponses => AdapterKind::OpenAIResp,
        config::ProviderKind::Anthropic => AdapterKind::Anthropic,
        config::ProviderKind::Gemini => AdapterKind::Gemini,
        config::ProviderKind::Ollama => AdapterKind::Ollama,
    }
}

/// Returns the base URL of the provider's API. A URL without a path gets the provider's usual path.
fn base_url(url: Option<&Url>, provider: config::ProviderKind) -> Url {
    let (default_host, default_path) = match provider {
        config::ProviderKind::Openai | config::ProviderKind::OpenaiResponses => ("https://api.openai.com", "v1/"),
        config::ProviderKind::Anthropic => ("https://api.anthropic.com", "v1/"),
        config::ProviderKind::Gemini => ("https://generativelanguage.googleapis.com", "v1beta/"),
        config::ProviderKind::Ollama => ("http://127.0.0.1:11434", ""),
    };
    let mut url = url.cloned().unwrap_or_else(|| default_host.parse().expect("a provider's default host is a URL"));
    let path = match url.path().trim_end_matches('/') {
        "" => format!("/{default_path}"),
        path => format!("{path}/"),
    };
    url.set_path(&path);
    url
}

fn token_usage(usage: &ProviderUsage) -> TokenUsage {
    let count = |tokens: Option<i32>| tokens.and_then(|tokens| u64::try_from(tokens).ok()).unwrap_or(0);
    let cached = usage.prompt_tokens_details.as_ref().and_then(|details| details.cached_tokens);
    TokenUsage { input: count(usage.prompt_tokens), output: count(usage.completion_tokens), cached: count(cached) }
}

/// Returns the request error inside a stream error, or the error itself.
fn unwrap_stream_error(error: &genai::Error) -> &genai::Error {
    match error {
        genai::Error::WebStream { error: inner, .. } => inner.downcast_ref().unwrap_or(error),
        _ => error,
    }
}

/// Recovers an answer in `OpenAI`'s format that `genai` rejected because the arguments of a call are not valid
/// JSON, so that the model can be told about its mistake.
fn recover_malformed_calls(error: &genai::Error) -> Option<Turn> {
    let genai::Error::ChatResponseGeneration { response_body, .. } = error else { return None };
    let message = response_body.pointer("/choices/0/message")?;
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
    let count = |pointer: &str| response_body.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
    let usage =
        TokenUsage { input: count("/usage/prompt_tokens"), output: count("/usage/completion_tokens"), cached: 0 };
    let text = message.get("content").and_then(Value::as_str).unwrap_or_default().to_owned();
    Some(Turn { text, calls, usage, ..Turn::default() })
}

fn is_connection(error: &genai::Error) -> bool {
    match error {
        genai::Error::WebStream { .. } => true,
        genai::Error::WebModelCall { webc_error, .. } => matches!(webc_error, genai::webc::Error::Reqwest(_)),
        _ => false,
    }
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
        assert_eq!(base("http://127.0.0.1:9", config::ProviderKind::Openai), "http://127.0.0.1:9/v1/");
        assert_eq!(base("http://127.0.0.1:9/proxy/v4", config::ProviderKind::Openai), "http://127.0.0.1:9/proxy/v4/");
        assert_eq!(base("http://127.0.0.1:11434/", config::ProviderKind::Ollama), "http://127.0.0.1:11434/");
        assert_eq!(base("http://h", config::ProviderKind::Gemini), "http://h/v1beta/");
        assert_eq!(base_url(None, config::ProviderKind::Anthropic).as_str(), "https://api.anthropic.com/v1/");
    }

    #[tokio::test]
    async fn anthropic_is_asked_to_cache_the_conversation() {
        let marked = async |provider: &str| {
            let text = format!("[models]\n[models.m]\nprovider = \"{provider}\"\n");
            let config: config::Config =
                toml::from_str(&config::DEFAULTS.replace("[models]\n", &text)).expect("a configuration");
            let chosen = registry::ModelRegistry::new(&config).choose(Some("m")).expect("the model exists");
            let secrets = Secrets::new("/nowhere".into(), std::collections::BTreeMap::new());
            let client = ModelClient::new(chosen, true, &HttpClients::default(), &secrets).await.expect("a client");
            let messages = vec![Message::User("a".to_owned()), Message::User("b".to_owned())];
            let chat = client.chat_request(ModelRequest { system: "s".to_owned(), messages, tools: Vec::new() });
            chat.messages.iter().map(|message| message.options.is_some()).collect::<Vec<_>>()
        };
        assert_eq!(marked("anthropic").await, [false, true]);
        assert_eq!(marked("openai").await, [false, false]);
    }
}
