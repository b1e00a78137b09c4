//! Real models, by way of `genai`: each provider's own form of messages, tools and streams.
//!
//! What comes back is kept in `genai`'s form beside our own words for it, and goes out unchanged as long as
//! the same provider is asked.

use std::time::Duration;

use futures_util::StreamExt as _;
use genai::adapter::AdapterKind;
use genai::chat::{
    CacheControl, ChatMessage, ChatOptions, ChatRequest, ChatStream, ChatStreamEvent, ContentPart, MessageContent,
    ToolCall as ProviderCall, ToolResponse, Usage as Counted,
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
use crate::model::{registry as model, view};
use crate::net::clients::HttpClients;

/// One model, and the key to it.
#[derive(Debug)]
pub struct ModelClient {
    genai: genai::Client,
    target: ServiceTarget,
    chosen: ChosenModel,
    streams: bool,
}

impl ModelClient {
    /// Opens the model's key: a failure names the secret, never its value.
    pub async fn new(
        chosen: ChosenModel,
        streams: bool,
        clients: &HttpClients,
        secrets: &Secrets,
    ) -> Result<Self, ModelFailure> {
        let model = &chosen.model;
        let url = base(model.url.as_ref(), model.provider);
        let key = match &model.key {
            Some(name) => secrets.get(name).await.map_err(|error| configuration(&error))?.expose().to_owned(),
            // A server of one's own asks for none; `genai` wants something to send.
            None => "none".to_owned(),
        };
        let http = clients.for_operator(&url).await.map_err(|failure| ModelFailure {
            class: FailureClass::Configuration,
            message: failure.error.message,
            retry_after: None,
        })?;
        let genai =
            genai::Client::builder().with_reqwest(http.clone()).build().map_err(|error| configuration(&error))?;
        let target = ServiceTarget {
            endpoint: Endpoint::from_owned(url.as_str()),
            auth: AuthData::from_single(key),
            model: ModelIden::new(kind(model.provider), chosen.id().to_owned()),
        };
        Ok(Self { genai, target, chosen, streams })
    }

    async fn answer(&self, request: ModelRequest, heard: TextListener<'_>) -> Result<Turn, ModelFailure> {
        let timeout = self.chosen.model.timeout.get();
        let options = self.options();
        let asked = view::size(&request.messages) + view::words(&request.system);
        let chat = self.chat(request);
        let (content, usage) = if self.streams {
            let answer = self.genai.exec_chat_stream(self.target.clone(), chat, Some(&options));
            let answer = tokio::time::timeout(timeout, answer).await.map_err(|_| self.too_slow(timeout))?;
            self.hear(answer.map_err(|error| self.failure(&error))?.stream, timeout, heard).await?
        } else {
            let answer = self.genai.exec_chat(self.target.clone(), chat, Some(&options));
            let answer = tokio::time::timeout(timeout, answer).await.map_err(|_| self.too_slow(timeout))?;
            let answer = match answer {
                Ok(answer) => answer,
                Err(error) => {
                    return salvaged(&error).map(|turn| self.priced(turn)).ok_or_else(|| self.failure(&error));
                }
            };
            if let Some(text) = answer.content.joined_texts() {
                heard(&text);
            }
            (answer.content, answer.usage)
        };
        let turn = self.turn(&content, &usage);
        if turn.usage != TokenUsage::default() {
            return Ok(turn);
        }
        // Not every server counts; a budget must hold all the same.
        let usage = TokenUsage { input: asked, output: view::words(&turn.text), cached: 0 };
        Ok(self.priced(Turn { usage, ..turn }))
    }

    /// Hears a stream to its end; each of its pieces may take as long as `timeout`.
    async fn hear(
        &self,
        mut stream: ChatStream,
        timeout: Duration,
        heard: TextListener<'_>,
    ) -> Result<(MessageContent, Counted), ModelFailure> {
        loop {
            match tokio::time::timeout(timeout, stream.next()).await.map_err(|_| self.too_slow(timeout))? {
                Some(Ok(ChatStreamEvent::Chunk(chunk))) => heard(&chunk.content),
                // Without a reason the far side did not end it: the connection did.
                Some(Ok(ChatStreamEvent::End(end))) if end.captured_stop_reason.is_some() => {
                    return Ok((end.captured_content.unwrap_or_default(), end.captured_usage.unwrap_or_default()));
                }
                Some(Err(error)) => return Err(self.failure(&error)),
                None | Some(Ok(ChatStreamEvent::End(_))) => {
                    let message = format!("the answer of the model `{}` broke off", self.chosen.name);
                    return Err(ModelFailure { class: FailureClass::Connection, message, retry_after: None });
                }
                Some(Ok(_)) => {}
            }
        }
    }

    fn too_slow(&self, timeout: Duration) -> ModelFailure {
        let message = format!("the model `{}` said nothing for {timeout:?}", self.chosen.name);
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

    fn chat(&self, request: ModelRequest) -> ChatRequest {
        let mut messages: Vec<_> = request.messages.into_iter().flat_map(|message| self.message(message)).collect();
        // The next request begins with all of this. The other providers keep it without being asked.
        if self.chosen.model.provider == config::ProviderKind::Anthropic
            && let Some(last) = messages.last_mut()
        {
            last.options = Some(CacheControl::Ephemeral.into());
        }
        let chat = ChatRequest::new(messages);
        let chat = if request.system.is_empty() { chat } else { chat.with_system(request.system) };
        if request.tools.is_empty() { chat } else { chat.with_tools(request.tools.into_iter().map(tool)) }
    }

    fn message(&self, message: Message) -> Vec<ChatMessage> {
        match message {
            Message::User(text) => vec![ChatMessage::user(text)],
            Message::Assistant { text, calls, raw } => {
                let own = raw.filter(|raw| raw.provider == self.chosen.model.provider);
                if let Some(Ok(message)) = own.map(|raw| serde_json::from_value(raw.message)) {
                    return vec![message];
                }
                let text = Some(text).filter(|text| !text.is_empty()).map(ContentPart::Text);
                let parts: Vec<_> = text.into_iter().chain(calls.into_iter().map(call)).collect();
                vec![ChatMessage::assistant(MessageContent::from_parts(parts))]
            }
            // One message each: Ollama's form has room for no more.
            Message::Results(results) => results
                .into_iter()
                .map(|result| ToolResponse::new(result.call, result.text).with_fn_name(result.name).into())
                .collect(),
        }
    }

    fn turn(&self, content: &MessageContent, usage: &Counted) -> Turn {
        let calls = content.tool_calls().into_iter().enumerate().map(|(number, call)| ToolCall {
            // Not every server names its calls.
            id: if call.call_id.is_empty() { format!("call-{}", number + 1) } else { call.call_id.clone() },
            name: call.fn_name.clone(),
            arguments: call.fn_arguments.clone(),
        });
        let calls: Vec<_> = calls.collect();
        let usage = tokens(usage);
        // Arguments that are no object, and calls without a name of their own, cannot be sent back as they are.
        let is_sound = calls.iter().all(|call| call.arguments.is_object())
            && content.tool_calls().iter().all(|call| !call.call_id.is_empty());
        let message = is_sound.then(|| serde_json::to_value(ChatMessage::assistant(content.clone())).ok()).flatten();
        self.priced(Turn {
            text: content.joined_texts().unwrap_or_default(),
            calls,
            raw: message.map(|message| RawMessage { provider: self.chosen.model.provider, message }),
            usage,
            ..Turn::default()
        })
    }

    fn priced(&self, turn: Turn) -> Turn {
        let cost = model::cost(self.chosen.model.price, turn.usage);
        Turn { cost, model: self.chosen.name.clone(), ..turn }
    }

    /// For the person; what the provider wrote goes to the log, since it may repeat what we sent.
    fn failure(&self, error: &genai::Error) -> ModelFailure {
        let said: String = error.to_string().chars().take(2000).collect();
        tracing::warn!(model = self.chosen.name, error = %said, "the model gave no answer");
        let name = &self.chosen.name;
        let at_heart = heart(error);
        let (class, message) = match at_heart.status().map(|status| status.as_u16()) {
            Some(401 | 403) => (FailureClass::Auth, format!("the model `{name}` refused our key")),
            Some(404) => {
                let id = self.chosen.id();
                (FailureClass::ClientError, format!("there is no model `{id}` at {}", self.target.endpoint.base_url()))
            }
            Some(408) => (FailureClass::Connection, format!("the model `{name}` took too long")),
            Some(429) => (FailureClass::RateLimit, format!("the model `{name}` gets too many requests")),
            Some(status @ 500..) => {
                (FailureClass::ServerError, format!("the model `{name}` failed with status {status}"))
            }
            Some(status) => {
                (FailureClass::ClientError, format!("the model `{name}` refused the request with status {status}"))
            }
            None if is_connection(error) => {
                (FailureClass::Connection, format!("the model `{name}` cannot be reached, or broke off"))
            }
            None => (FailureClass::BadAnswer, format!("the answer of the model `{name}` cannot be understood")),
        };
        let wanted = at_heart.headers().and_then(|headers| headers.get("retry-after")?.to_str().ok()?.parse().ok());
        ModelFailure { class, message, retry_after: wanted.map(Duration::from_secs) }
    }
}

impl Provider for ModelClient {
    fn ask<'a>(&'a self, request: ModelRequest, heard: TextListener<'a>) -> TurnFuture<'a> {
        Box::pin(self.answer(request, heard))
    }
}

fn tool(tool: ToolDefinition) -> genai::chat::Tool {
    genai::chat::Tool::new(tool.name).with_description(tool.description).with_schema(tool.parameters)
}

fn call(call: ToolCall) -> ContentPart {
    let arguments = call.arguments;
    ContentPart::ToolCall(ProviderCall {
        call_id: call.id,
        fn_name: call.name,
        fn_arguments: if arguments.is_object() { arguments } else { json!({ "not_an_object": arguments }) },
        thought_signatures: None,
    })
}

fn kind(provider: config::ProviderKind) -> AdapterKind {
    match provider {
        config::ProviderKind::Openai => AdapterKind::OpenAI,
        config::ProviderKind::OpenaiResponses => AdapterKind::OpenAIResp,
        config::ProviderKind::Anthropic => AdapterKind::Anthropic,
        config::ProviderKind::Gemini => AdapterKind::Gemini,
        config::ProviderKind::Ollama => AdapterKind::Ollama,
    }
}

/// Where the provider's paths begin. A bare host means its usual path on that host.
fn base(url: Option<&Url>, provider: config::ProviderKind) -> Url {
    let (home, usual) = match provider {
        config::ProviderKind::Openai | config::ProviderKind::OpenaiResponses => ("https://api.openai.com", "v1/"),
        config::ProviderKind::Anthropic => ("https://api.anthropic.com", "v1/"),
        config::ProviderKind::Gemini => ("https://generativelanguage.googleapis.com", "v1beta/"),
        config::ProviderKind::Ollama => ("http://127.0.0.1:11434", ""),
    };
    let mut url = url.cloned().unwrap_or_else(|| home.parse().expect("a provider's address is a URL"));
    let path = match url.path().trim_end_matches('/') {
        "" => format!("/{usual}"),
        path => format!("{path}/"),
    };
    url.set_path(&path);
    url
}

fn tokens(usage: &Counted) -> TokenUsage {
    let count = |tokens: Option<i32>| tokens.and_then(|tokens| u64::try_from(tokens).ok()).unwrap_or(0);
    let cached = usage.prompt_tokens_details.as_ref().and_then(|details| details.cached_tokens);
    TokenUsage { input: count(usage.prompt_tokens), output: count(usage.completion_tokens), cached: count(cached) }
}

/// A stream wraps what its request met with.
fn heart(error: &genai::Error) -> &genai::Error {
    match error {
        genai::Error::WebStream { error: inner, .. } => inner.downcast_ref().unwrap_or(error),
        _ => error,
    }
}

/// An answer in `OpenAI`'s form whose calls have arguments that are no JSON. `genai` takes none of it; the model
/// is to hear of its mistake.
fn salvaged(error: &genai::Error) -> Option<Turn> {
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
    fn a_bare_host_means_the_usual_path() {
        let base = |url: &str, provider| base(Some(&url.parse().expect("a URL")), provider).to_string();
        assert_eq!(base("http://127.0.0.1:9", config::ProviderKind::Openai), "http://127.0.0.1:9/v1/");
        assert_eq!(base("http://127.0.0.1:9/proxy/v4", config::ProviderKind::Openai), "http://127.0.0.1:9/proxy/v4/");
        assert_eq!(base("http://127.0.0.1:11434/", config::ProviderKind::Ollama), "http://127.0.0.1:11434/");
        assert_eq!(base("http://h", config::ProviderKind::Gemini), "http://h/v1beta/");
        assert_eq!(super::base(None, config::ProviderKind::Anthropic).as_str(), "https://api.anthropic.com/v1/");
    }

    #[tokio::test]
    async fn anthropic_is_asked_to_keep_the_conversation_so_far() {
        let marked = async |provider: &str| {
            let text = format!("[models]\n[models.m]\nprovider = \"{provider}\"\n");
            let config: config::Config =
                toml::from_str(&config::DEFAULTS.replace("[models]\n", &text)).expect("a configuration");
            let chosen = model::ModelRegistry::new(&config).choose(Some("m")).expect("it is there");
            let secrets = Secrets::new("/nowhere".into(), std::collections::BTreeMap::new());
            let client = ModelClient::new(chosen, true, &HttpClients::default(), &secrets).await.expect("a client");
            let messages = vec![Message::User("a".to_owned()), Message::User("b".to_owned())];
            let chat = client.chat(ModelRequest { system: "s".to_owned(), messages, tools: Vec::new() });
            chat.messages.iter().map(|message| message.options.is_some()).collect::<Vec<_>>()
        };
        assert_eq!(marked("anthropic").await, [false, true]);
        assert_eq!(marked("openai").await, [false, false]);
    }
}
