//! Ollama's own API, `/api/chat`: one JSON document per line.
//!
//! Written here because the client library cannot send `num_ctx`. Without it Ollama cuts the conversation to a few
//! thousand tokens, from the front and silently.

use std::time::Duration;

use futures_util::StreamExt as _;
use ground::config::{ModelSettings, ReasoningEffort};
use serde_json::{Map, Value, json};
use url::Url;

use super::ending::Ending;
use super::optional::{OptionalField, Refusals};
use super::request_error::RequestError;
use super::{Message, ModelRequest, TextListener};
use crate::model::answer_options::OutputFormat;
use crate::model::conversation::{Image, ImageSource, ModelTurn, TokenUsage, ToolCall};

/// The longest line of a response.
const MAX_LINE_BYTES: usize = 32 << 20;

/// Makes one request, and reads the answer to its end. The timeout applies to each piece.
pub(super) async fn ask(
    request: reqwest::RequestBuilder,
    body: &Value,
    timeout: Duration,
    on_text: TextListener<'_>,
) -> Result<ModelTurn, RequestError> {
    let response = tokio::time::timeout(timeout, request.json(body).send()).await;
    let response =
        response.map_err(|_| RequestError::timed_out())?.map_err(|error| RequestError::connection(&error))?;
    if !response.status().is_success() {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = tokio::time::timeout(timeout, response.text()).await;
        let text = text.map_err(|_| RequestError::timed_out())?.unwrap_or_default();
        return Err(RequestError::status(status, &headers, &text));
    }
    let mut pieces = response.bytes_stream();
    let mut answer = OllamaAnswer::default();
    let mut unread: Vec<u8> = Vec::new();
    while let Some(piece) = tokio::time::timeout(timeout, pieces.next()).await.map_err(|_| RequestError::timed_out())? {
        unread.extend_from_slice(&piece.map_err(|error| RequestError::connection(&error))?);
        // Lines are split as bytes: a piece may end in the middle of a character.
        while let Some(end) = unread.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = unread.drain(..=end).collect();
            answer.read(&line, on_text)?;
        }
        if unread.len() > MAX_LINE_BYTES {
            return Err(RequestError::bad_answer("a line of the answer is too long"));
        }
    }
    answer.read(&unread, on_text)?;
    answer.finish()
}

/// The answer so far.
#[derive(Debug, Default)]
struct OllamaAnswer {
    turn: ModelTurn,
    is_done: bool,
}

impl OllamaAnswer {
    fn read(&mut self, line: &[u8], on_text: TextListener<'_>) -> Result<(), RequestError> {
        if line.trim_ascii().is_empty() {
            return Ok(());
        }
        let sent: Value =
            serde_json::from_slice(line).map_err(|error| RequestError::bad_answer(&format!("not JSON: {error}")))?;
        let ending = Ending::of(&sent);
        if let Some(error) = ending.error {
            return Err(RequestError::inside_the_answer(&error));
        }
        if let Some(text) = sent.pointer("/message/content").and_then(Value::as_str).filter(|text| !text.is_empty()) {
            on_text(text);
            self.turn.text.push_str(text);
        }
        for call in sent.pointer("/message/tool_calls").and_then(Value::as_array).into_iter().flatten() {
            let Some(name) = call.pointer("/function/name").and_then(Value::as_str) else { continue };
            self.turn.calls.push(ToolCall {
                // Ollama gives no ids.
                id: format!("call-{}", self.turn.calls.len() + 1),
                name: name.to_owned(),
                arguments: call.pointer("/function/arguments").cloned().unwrap_or_else(|| json!({})),
            });
        }
        if sent["done"] == true {
            self.is_done = true;
            self.turn.end = ending.end();
            self.turn.stop_reason = ending.stop_reason;
            let count = |key: &str| sent[key].as_u64().unwrap_or(0);
            self.turn.usage = TokenUsage {
                input: count("prompt_eval_count"),
                output: count("eval_count"),
                cached: count("prompt_eval_cached_count"),
            };
        }
        Ok(())
    }

    fn finish(self) -> Result<ModelTurn, RequestError> {
        if self.is_done { Ok(self.turn) } else { Err(RequestError::broke_off()) }
    }
}

pub(super) fn url(base: &Url) -> String {
    format!("{base}api/chat")
}

/// Returns the body of a request.
pub(super) fn body(
    id: &str,
    model: &ModelSettings,
    request: &ModelRequest,
    streams: bool,
    refusals: &Refusals,
) -> Value {
    let mut options = Map::new();
    if !refusals.contains(OptionalField::ContextSize) {
        options.insert("num_ctx".to_owned(), model.window().into());
    }
    if let Some(temperature) = model.temperature.filter(|_| !refusals.contains(OptionalField::Temperature)) {
        options.insert("temperature".to_owned(), temperature.into());
    }
    if let Some(tokens) = model.max_tokens.filter(|_| !refusals.contains(OptionalField::MaxTokens)) {
        options.insert("num_predict".to_owned(), tokens.into());
    }
    if let Some(top_p) = request.options.top_p {
        options.insert("top_p".to_owned(), top_p.into());
    }
    if let Some(top_k) = request.options.top_k {
        options.insert("top_k".to_owned(), top_k.into());
    }
    if !request.options.stop.is_empty() {
        options.insert("stop".to_owned(), request.options.stop.clone().into());
    }
    let mut body = json!({"model": id, "stream": streams, "options": options});
    if let Some(think) = think(model, refusals) {
        body["think"] = think;
    }
    match &request.options.format {
        None => {}
        Some(OutputFormat::Json) => body["format"] = "json".into(),
        Some(OutputFormat::Schema(wanted)) => body["format"] = wanted.schema.clone(),
    }
    if !request.tools.is_empty() {
        let tools = request.tools.iter().map(|tool| {
            json!({"type": "function", "function": {
                "name": tool.name, "description": tool.description, "parameters": tool.parameters,
            }})
        });
        body["tools"] = tools.collect();
    }
    let system = Some(&request.system).filter(|system| !system.is_empty());
    let system = system.map(|system| json!({"role": "system", "content": system}));
    let mut sent: Vec<Value> = system.into_iter().collect();
    for message in &request.messages {
        match message {
            Message::Images(images) => add_images(&mut sent, images),
            message => sent.extend(messages(message)),
        }
    }
    body["messages"] = sent.into();
    body
}

fn think(model: &ModelSettings, refusals: &Refusals) -> Option<Value> {
    let effort = model.effort.filter(|_| !refusals.contains(OptionalField::Effort));
    let wants_reasoning = model.reasoning && !refusals.contains(OptionalField::Reasoning);
    match effort {
        Some(ReasoningEffort::None) => Some(false.into()),
        Some(ReasoningEffort::Minimal | ReasoningEffort::Low) => Some("low".into()),
        Some(ReasoningEffort::Medium) => Some("medium".into()),
        Some(ReasoningEffort::High | ReasoningEffort::Xhigh | ReasoningEffort::Max) => Some("high".into()),
        None => wants_reasoning.then(|| true.into()),
    }
}

/// Adds images to the last message. Ollama takes no addresses of images, which are refused before.
fn add_images(sent: &mut [Value], images: &[Image]) {
    let data = images.iter().filter_map(|image| match &image.source {
        ImageSource::Base64(data) => Some(Value::from(data.as_str())),
        ImageSource::Url(_) => None,
    });
    if let Some(last) = sent.last_mut() {
        last["images"] = data.collect();
    }
}

fn messages(message: &Message) -> Vec<Value> {
    match message {
        Message::User(text) => vec![json!({"role": "user", "content": text})],
        Message::Images(_) => Vec::new(),
        Message::Assistant { text, calls, .. } => {
            let mut message = json!({"role": "assistant", "content": text});
            if !calls.is_empty() {
                let calls = calls.iter().map(|call| {
                    json!({"function": {"name": call.name, "arguments": super::call_arguments(&call.arguments)}})
                });
                message["tool_calls"] = calls.collect();
            }
            vec![message]
        }
        // One message per result; Ollama matches them by order and name.
        Message::Results(results) => results
            .iter()
            .map(|result| json!({"role": "tool", "tool_name": result.name, "content": result.text}))
            .collect(),
    }
}
