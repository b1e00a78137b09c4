//! Our request in the form of `genai`, which knows each provider's format of messages, tools and options.
//!
//! Calls have our own ids, which `view.rs` gave them: unique in a conversation, whichever models took part in it.
//! Only Gemini gets the ids that it gave itself, or none: it matches results by their order.

use std::collections::HashMap;

use genai::chat::{
    CacheControl, ChatMessage, ChatOptions, ChatRequest, ChatResponseFormat, ChatRole, ContentPart, JsonSpec,
    MessageContent, ReasoningEffort as Effort, ToolCall as ProviderCall, ToolChoice as ProviderChoice, ToolResponse,
};
use ground::config::{ModelSettings, ProviderKind, ReasoningEffort};
use serde_json::{Value, json};

use super::optional::{OptionalField, Refusals};
use super::{Message, ModelRequest, ToolDefinition};
use crate::model::answer_options::{OutputFormat, OutputSchema, ToolChoice};
use crate::model::conversation::{Image, ImageSource, RawMessage, ToolCall, ToolResult};

/// The prefix of the ids that `genai` gives to Gemini's calls and does not send.
const UNSENT_ID: &str = "call#";

/// Returns the options of a request, without the fields that the model refused.
pub(super) fn options(id: &str, model: &ModelSettings, refusals: &Refusals) -> ChatOptions {
    let provider = model.provider;
    let is_refused = |field| refusals.contains(field);
    // For these two, capturing the reasoning also asks for it.
    let asks = matches!(provider, ProviderKind::OpenaiResponses | ProviderKind::Gemini);
    let captures = !asks || (model.reasoning && !is_refused(OptionalField::Reasoning));
    let mut options = ChatOptions::default()
        .with_capture_usage(!is_refused(OptionalField::StreamUsage))
        .with_capture_content(true)
        .with_capture_tool_calls(true)
        .with_capture_reasoning_content(captures)
        .with_capture_raw_body(true);
    options.temperature = model.temperature.filter(|_| !is_refused(OptionalField::Temperature));
    let effort = model.effort.filter(|_| !is_refused(OptionalField::Effort));
    options.reasoning_effort = effort.map(genai_effort).or_else(|| no_effort(id, provider));
    if !is_refused(OptionalField::MaxTokens) {
        options.max_tokens = model.max_tokens;
    } else if provider == ProviderKind::Anthropic {
        options.max_tokens = refusals.most_tokens();
    } else if let (ProviderKind::Openai, Some(tokens)) = (provider, model.max_tokens) {
        // The newer name of the field.
        options.extra_body = Some(json!({ "max_completion_tokens": tokens }));
    }
    if provider == ProviderKind::Anthropic && model.reasoning && !is_refused(OptionalField::Reasoning) {
        let thinking = thinking(id, effort, options.max_tokens);
        options.extra_body = thinking.map(|thinking| json!({ "thinking": thinking }));
    }
    options
}

/// The options with what the caller wants of the answer, beyond what the settings of a model can say.
pub(super) fn asked_for(mut options: ChatOptions, request: &ModelRequest, provider: ProviderKind) -> ChatOptions {
    let wanted = &request.options;
    options.top_p = wanted.top_p;
    options.stop_sequences.clone_from(&wanted.stop);
    options.tool_choice = match &wanted.tool_choice {
        ToolChoice::Auto => None,
        ToolChoice::Required => Some(ProviderChoice::Required),
        ToolChoice::Named(name) => Some(ProviderChoice::tool(name)),
    };
    let mut extra = options.extra_body.take().unwrap_or_else(|| json!({}));
    options.response_format = match &wanted.format {
        None => None,
        Some(OutputFormat::Json) => Some(ChatResponseFormat::JsonMode),
        Some(OutputFormat::Schema(wanted)) => match (provider, wanted.strict) {
            // `genai` makes every schema strict.
            (ProviderKind::Openai, None | Some(false)) => {
                extra["response_format"] = json!({"type": "json_schema", "json_schema": schema_as_given(wanted)});
                None
            }
            (ProviderKind::OpenaiResponses, None | Some(false)) => {
                let mut format = schema_as_given(wanted);
                format["type"] = "json_schema".into();
                extra["text"] = json!({"format": format});
                None
            }
            _ => Some(ChatResponseFormat::JsonSpec(JsonSpec::new(wanted.name.as_str(), wanted.schema.clone()))),
        },
    };
    if wanted.one_call && !request.tools.is_empty() {
        match provider {
            ProviderKind::Openai | ProviderKind::OpenaiResponses => extra["parallel_tool_calls"] = false.into(),
            ProviderKind::Anthropic => {
                let mut choice = match &wanted.tool_choice {
                    ToolChoice::Auto => json!({"type": "auto"}),
                    ToolChoice::Required => json!({"type": "any"}),
                    ToolChoice::Named(name) => json!({"type": "tool", "name": name}),
                };
                choice["disable_parallel_tool_use"] = true.into();
                extra["tool_choice"] = choice;
            }
            // They have no field for it; only the first call is handed to the client.
            ProviderKind::Gemini | ProviderKind::Ollama => {}
        }
    }
    if let (ProviderKind::Anthropic, Some(count)) = (provider, wanted.top_k) {
        extra["top_k"] = count.into();
    }
    options.extra_body = extra.as_object().is_some_and(|extra| !extra.is_empty()).then_some(extra);
    options
}

/// A schema in OpenAI's form.
fn schema_as_given(wanted: &OutputSchema) -> Value {
    let mut given = json!({"name": wanted.name, "schema": wanted.schema});
    if let Some(description) = &wanted.description {
        given["description"] = description.as_str().into();
    }
    if let Some(strict) = wanted.strict {
        given["strict"] = strict.into();
    }
    given
}

/// The first models that could think, which need a number of tokens for it; those that came later choose it themselves.
const MODELS_WITH_BUDGET: [&str; 10] = [
    "claude-3",
    "claude-opus-4-0",
    "claude-opus-4-1",
    "claude-opus-4-2025",
    "claude-opus-4-5",
    "claude-sonnet-4-0",
    "claude-sonnet-4-2025",
    "claude-sonnet-4-5",
    "claude-haiku-4",
    "claude-4",
];
/// The fewest tokens to think with that Anthropic accepts.
const MIN_THINKING_TOKENS: u32 = 1024;

/// How Anthropic is asked to think; `None` if the settings forbid it or leave no tokens for it.
fn thinking(id: &str, effort: Option<ReasoningEffort>, max_tokens: Option<u32>) -> Option<Value> {
    if effort == Some(ReasoningEffort::None) {
        return None;
    }
    if !MODELS_WITH_BUDGET.iter().any(|name| id.contains(name)) {
        return Some(json!({"type": "adaptive", "display": "summarized"}));
    }
    let wanted = match effort {
        Some(ReasoningEffort::Minimal | ReasoningEffort::Low) => MIN_THINKING_TOKENS,
        Some(ReasoningEffort::High | ReasoningEffort::Xhigh | ReasoningEffort::Max) => 24_000,
        _ => 4_000,
    };
    // It must be less than the tokens of the answer, of which it is a part.
    let budget = max_tokens.map_or(wanted, |most| wanted.min(most.saturating_sub(1)));
    (budget >= MIN_THINKING_TOKENS).then(|| json!({"type": "enabled", "budget_tokens": budget}))
}

fn genai_effort(effort: ReasoningEffort) -> Effort {
    match effort {
        ReasoningEffort::None => Effort::Zero,
        ReasoningEffort::Minimal => Effort::Minimal,
        ReasoningEffort::Low => Effort::Low,
        ReasoningEffort::Medium => Effort::Medium,
        ReasoningEffort::High => Effort::High,
        ReasoningEffort::Xhigh => Effort::XHigh,
        ReasoningEffort::Max => Effort::Max,
    }
}

/// An effort that sends nothing. Without one, `genai` takes the end of a name such as `qwen-max` for an effort and
/// sends the rest as the name of the model.
fn no_effort(id: &str, provider: ProviderKind) -> Option<Effort> {
    match provider {
        ProviderKind::Openai | ProviderKind::OpenaiResponses => Some(Effort::Budget(0)),
        ProviderKind::Gemini => Some(Effort::Zero),
        ProviderKind::Anthropic => Effort::from_model_name(id).0.map(|_| Effort::Zero),
        ProviderKind::Ollama => None,
    }
}

/// Returns the messages and tools of a request.
pub(super) fn chat_request(request: &ModelRequest, provider: ProviderKind, refusals: &Refusals) -> ChatRequest {
    let mut messages: Vec<ChatMessage> = Vec::new();
    let mut ids = CallIds { provider, sent: HashMap::new() };
    for message in &request.messages {
        match message {
            // Anthropic wants the results of a turn and what follows them in one message, the results first.
            Message::User(text) if provider == ProviderKind::Anthropic => match messages.last_mut() {
                Some(last) if last.role == ChatRole::User => last.content.push(ContentPart::from_text(text)),
                _ => messages.push(ChatMessage::user(text.as_str())),
            },
            Message::User(text) => messages.push(ChatMessage::user(text.as_str())),
            Message::Images(images) => {
                let parts = images.iter().map(image);
                match messages.last_mut() {
                    Some(last) if last.role == ChatRole::User => parts.for_each(|part| last.content.push(part)),
                    _ => messages.push(ChatMessage::user(MessageContent::from_parts(parts.collect::<Vec<_>>()))),
                }
            }
            Message::Assistant { text, calls, raw } => messages.push(ids.assistant(text, calls, raw.as_ref())),
            Message::Results(results) => {
                let role = if provider == ProviderKind::Anthropic { ChatRole::User } else { ChatRole::Tool };
                messages.push(ChatMessage::new(role, ids.results(results)));
            }
        }
    }
    // The next request starts with the same messages. Other providers cache them by default.
    if provider == ProviderKind::Anthropic
        && !refusals.contains(OptionalField::CacheMark)
        && let Some(last) = messages.last_mut()
    {
        last.options = Some(CacheControl::Ephemeral.into());
    }
    let chat = ChatRequest::new(messages);
    let chat = if request.system.is_empty() { chat } else { chat.with_system(request.system.as_str()) };
    if request.tools.is_empty() { chat } else { chat.with_tools(request.tools.iter().map(tool)) }
}

fn image(image: &Image) -> ContentPart {
    let media_type = image.media_type.as_str();
    match &image.source {
        ImageSource::Base64(data) => ContentPart::from_binary_base64(media_type, data.as_str(), None),
        ImageSource::Url(url) => ContentPart::from_binary_url(media_type, url.as_str(), None),
    }
}

fn tool(tool: &ToolDefinition) -> genai::chat::Tool {
    let described = genai::chat::Tool::new(tool.name.as_str())
        .with_description(tool.description.as_str())
        .with_schema(tool.parameters.clone());
    match tool.strict {
        Some(strict) => described.with_strict(strict),
        None => described,
    }
}

/// The ids under which the calls of this request are sent.
struct CallIds {
    provider: ProviderKind,
    /// By our own id; only those that differ from it.
    sent: HashMap<String, String>,
}

impl CallIds {
    fn assistant(&mut self, text: &str, calls: &[ToolCall], raw: Option<&RawMessage>) -> ChatMessage {
        let own = raw.filter(|raw| raw.provider == self.provider);
        if let Some(Ok(mut message)) = own.map(|raw| serde_json::from_value::<ChatMessage>(raw.message.clone()))
            && message.content.tool_calls().len() == calls.len()
        {
            let parts = message.content.iter_mut().filter_map(|part| match part {
                ContentPart::ToolCall(call) => Some(call),
                _ => None,
            });
            for (part, call) in parts.zip(calls) {
                let given = Some(std::mem::take(&mut part.call_id)).filter(|id| !id.is_empty());
                part.call_id = self.id_of(call, given);
            }
            return message;
        }
        let text = Some(text).filter(|text| !text.is_empty()).map(ContentPart::from_text);
        let calls: Vec<_> = calls.iter().map(|call| self.call_part(call)).collect();
        ChatMessage::assistant(MessageContent::from_parts(text.into_iter().chain(calls).collect::<Vec<_>>()))
    }

    fn call_part(&mut self, call: &ToolCall) -> ContentPart {
        ContentPart::ToolCall(ProviderCall {
            call_id: self.id_of(call, None),
            fn_name: call.name.clone(),
            fn_arguments: super::call_arguments(&call.arguments),
            thought_signatures: None,
        })
    }

    /// The id of a call in the request. `given` is the one that the provider gave it.
    fn id_of(&mut self, call: &ToolCall, given: Option<String>) -> String {
        if self.provider != ProviderKind::Gemini {
            return call.id.clone();
        }
        let number = self.sent.len();
        let id = given.filter(|id| !id.starts_with(UNSENT_ID)).unwrap_or(format!("{UNSENT_ID}{}#{number}", call.name));
        self.sent.insert(call.id.clone(), id.clone());
        id
    }

    fn results(&self, results: &[ToolResult]) -> MessageContent {
        let responses = results.iter().map(|result| {
            let id = self.sent.get(&result.call).unwrap_or(&result.call);
            ToolResponse::new(id, &result.text).with_fn_name(&result.name)
        });
        MessageContent::from_tool_responses(responses.collect())
    }
}
