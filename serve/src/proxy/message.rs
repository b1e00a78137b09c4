//! The messages that a client sends. What in them cannot be understood is remembered, and refused only if that message counts.

use std::ops::Range;

use agent_loop::input::InputPlace;
use agent_loop::model::conversation::{Image, ImageSource, ToolCall};
use serde_json::{Map, Value, json};

use super::failure::ProxyFailure;

/// What stands in a result for an image of it, which follows as one of the user.
const IMAGE_OF_RESULT: &str = "(The image follows.)";

/// Who wrote a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SenderRole {
    /// The client's program: `system` and `developer`.
    System,
    User,
    Assistant,
    /// A tool of the client.
    Tool,
    /// Something else that is not said by anyone.
    Other,
}

/// A message as the client sent it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ClientText {
    pub(crate) role: SenderRole,
    pub(crate) text: String,
    /// The parts of the text that are attached documents.
    documents: Vec<Range<usize>>,
    /// Where it stands in the request, like `messages.3.content`.
    pub(crate) place: String,
    /// A part that is neither text nor an image, like `input_audio`.
    pub(crate) foreign_part: Option<String>,
    pub(crate) images: Vec<Image>,
    /// Calls of the client's tools that the model made.
    pub(crate) calls: Vec<ToolCall>,
    pub(crate) results: Vec<ClientResult>,
}

/// What a tool of the client returned.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ClientResult {
    /// The id of the call; empty if the protocol has none, so that their order counts.
    pub(crate) call: String,
    /// The name of the tool, if the client says it.
    pub(crate) name: Option<String>,
    pub(crate) text: String,
}

impl ClientText {
    pub(crate) fn new(role: SenderRole, place: &str, text: impl Into<String>) -> Self {
        Self {
            role,
            text: text.into(),
            documents: Vec::new(),
            place: place.to_owned(),
            foreign_part: None,
            images: Vec::new(),
            calls: Vec::new(),
            results: Vec::new(),
        }
    }

    pub(crate) fn user(place: &str, text: &str) -> Self {
        Self::new(SenderRole::User, place, text)
    }

    /// The text for a session, which keeps nothing but text; an error if the message has other parts.
    pub(crate) fn only_text(&self) -> Result<String, ProxyFailure> {
        self.readable()?;
        if self.images.is_empty() {
            return Ok(self.session_text());
        }
        let message = format!("a session of the server takes no images; {}", super::OWN_HISTORY);
        Err(ProxyFailure::invalid(&self.place, message))
    }

    /// The text as a session reads it: no line of a document is a command.
    pub(crate) fn session_text(&self) -> String {
        let mut text = String::with_capacity(self.text.len());
        let mut end = 0;
        for document in &self.documents {
            text.push_str(&self.text[end..document.start]);
            text.push_str(&InputPlace::Client.quoted(&self.text[document.clone()]));
            end = document.end;
        }
        text + &self.text[end..]
    }

    /// The message, unless it has a part that cannot be understood.
    pub(crate) fn readable(&self) -> Result<&Self, ProxyFailure> {
        match &self.foreign_part {
            None => Ok(self),
            Some(part) => {
                let message =
                    format!("`{part}` cannot be read here; send text, or images in base64 or with an address");
                Err(ProxyFailure::invalid(&self.place, message))
            }
        }
    }

    /// Adds an image from an address: one of the web, or one that has the data in it.
    pub(crate) fn add_image_url(&mut self, part: &str, url: &str) {
        match image_of_url(url) {
            Some(image) => self.images.push(image),
            None => self.add_foreign(part),
        }
    }

    /// Adds a list of images of which the data alone is sent, as Ollama's clients do.
    fn add_data(&mut self, images: Option<&Value>) {
        for image in images.and_then(Value::as_array).into_iter().flatten() {
            match image.as_str().and_then(|data| image_of_base64(media_type(data), data)) {
                Some(image) => self.images.push(image),
                None => self.add_foreign("images"),
            }
        }
    }

    pub(crate) fn add_foreign(&mut self, part: &str) {
        self.foreign_part.get_or_insert_with(|| part.to_owned());
    }

    /// Makes what was read so far the result of a call. Its images stay and follow it, since results are texts.
    pub(crate) fn end_result(&mut self, call: String, name: Option<String>) {
        for _ in 0..self.images.len() {
            self.add_text(IMAGE_OF_RESULT);
        }
        self.results.push(ClientResult { call, name, text: std::mem::take(&mut self.text) });
    }

    /// Adds the text of an attached document as a line of its own.
    pub(crate) fn add_document(&mut self, text: &str) {
        self.add_text(text);
        self.documents.push(self.text.len() - text.len()..self.text.len());
    }

    /// Adds a text as a line of its own.
    pub(crate) fn add_text(&mut self, text: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(text);
    }
}

/// The image at an address of the web, or in a `data:` address.
fn image_of_url(url: &str) -> Option<Image> {
    if let Some((head, data)) = url.strip_prefix("data:").and_then(|rest| rest.split_once(',')) {
        let media_type = head.strip_suffix(";base64")?;
        return image_of_base64(media_type, data);
    }
    let is_of_the_web = ["https://", "http://"].iter().any(|scheme| url.starts_with(scheme));
    let source = || ImageSource::Url(url.to_owned());
    is_of_the_web.then(|| Image { media_type: "image/*".to_owned(), source: source() })
}

/// The image with this data; `None` if it is not the data of an image.
pub(crate) fn image_of_base64(media_type: &str, data: &str) -> Option<Image> {
    let is_base64 = |c: char| c.is_ascii_alphanumeric() || "+/=".contains(c);
    let is_image = media_type.starts_with("image/") && !data.is_empty() && data.chars().all(is_base64);
    is_image.then(|| Image { media_type: media_type.to_owned(), source: ImageSource::Base64(data.to_owned()) })
}

/// The type of an image of which a protocol sends the data alone, by how the data begins.
fn media_type(data: &str) -> &'static str {
    match data {
        data if data.starts_with("/9j/") => "image/jpeg",
        data if data.starts_with("R0lG") => "image/gif",
        data if data.starts_with("UklG") => "image/webp",
        _ => "image/png",
    }
}

/// The message of a client that has a prompt instead of messages, with its images.
pub(crate) fn prompt(place: &str, text: &str, images: Option<&Value>) -> ClientText {
    let mut read = ClientText::user(place, text);
    read.add_data(images);
    read
}

/// Reads a list of messages, in the field `name` of the request.
pub(crate) fn read(messages: &Value, name: &str) -> Result<Vec<ClientText>, ProxyFailure> {
    let list = messages.as_array().ok_or_else(|| ProxyFailure::invalid(name, format!("`{name}` is not a list")))?;
    let read = list.iter().enumerate().map(|(number, message)| one(message, &format!("{name}.{number}")));
    read.filter_map(Result::transpose).collect()
}

/// Reads a message; `None` if it says nothing to a model.
fn one(message: &Value, place: &str) -> Result<Option<ClientText>, ProxyFailure> {
    let message = message.as_object().ok_or_else(|| ProxyFailure::invalid(place, "a message is not an object"))?;
    let role = match message.get("role").and_then(Value::as_str) {
        Some("system" | "developer") => SenderRole::System,
        Some("user") => SenderRole::User,
        Some("assistant") => SenderRole::Assistant,
        Some("tool" | "function") => SenderRole::Tool,
        // OpenAI's responses have items of other types than messages, and those have no role.
        None if message.get("type").is_some_and(|kind| kind != "message") => return item(message, place),
        Some(other) => {
            let known = "system, developer, user, assistant and tool";
            return Err(ProxyFailure::invalid(
                &format!("{place}.role"),
                format!("no role `{other}`; there are {known}"),
            ));
        }
        None => return Err(ProxyFailure::invalid(&format!("{place}.role"), "a message has no `role`")),
    };
    let place = format!("{place}.content");
    let mut read = ClientText::new(role, &place, "");
    content(message.get("content"), &mut read)?;
    read.add_data(message.get("images"));
    for (number, call) in message.get("tool_calls").and_then(Value::as_array).into_iter().flatten().enumerate() {
        read.calls.push(tool_call(call, number));
    }
    if role == SenderRole::Tool {
        let text = |name: &str| message.get(name).and_then(Value::as_str);
        let name = text("tool_name").or_else(|| text("name")).map(str::to_owned);
        let call = text("tool_call_id").unwrap_or_default().to_owned();
        read.end_result(call, name);
    }
    Ok(Some(read))
}

/// An item of OpenAI's responses that is not a message.
fn item(item: &Map<String, Value>, place: &str) -> Result<Option<ClientText>, ProxyFailure> {
    let text = |name: &str| item.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut read = ClientText::new(SenderRole::Other, place, "");
    match item.get("type").and_then(Value::as_str) {
        Some("function_call") => {
            read.role = SenderRole::Assistant;
            let arguments = arguments(item.get("arguments"));
            read.calls.push(ToolCall { id: text("call_id"), name: text("name"), arguments });
        }
        Some("function_call_output") => {
            read.role = SenderRole::Tool;
            match item.get("output") {
                None | Some(Value::String(_) | Value::Array(_)) => content(item.get("output"), &mut read)?,
                Some(other) => read.text = other.to_string(),
            }
            read.end_result(text("call_id"), None);
        }
        // What other models thought, which no model gets.
        Some("reasoning") => return Ok(None),
        _ => {}
    }
    Ok(Some(read))
}

/// A call in an earlier message of the model. Ollama gives its calls no ids.
fn tool_call(call: &Value, number: usize) -> ToolCall {
    let function = &call["function"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let id = Some(text(&call["id"])).filter(|id| !id.is_empty());
    ToolCall {
        id: id.unwrap_or_else(|| format!("call-{number}")),
        name: text(&function["name"]),
        arguments: arguments(function.get("arguments")),
    }
}

/// The arguments of a call: an object, or one that was written as text.
fn arguments(given: Option<&Value>) -> Value {
    match given {
        Some(Value::String(text)) => serde_json::from_str(text).unwrap_or_else(|_| text.as_str().into()),
        Some(value) => value.clone(),
        None => json!({}),
    }
}

/// Adds what the content of a message has: a text, or a list of parts.
fn content(content: Option<&Value>, read: &mut ClientText) -> Result<(), ProxyFailure> {
    let parts = match content {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::String(text)) => {
            read.text.clone_from(text);
            return Ok(());
        }
        Some(Value::Array(parts)) => parts,
        Some(_) => {
            return Err(ProxyFailure::invalid(&read.place, "`content` is neither a text nor a list of parts"));
        }
    };
    for part in parts {
        let kind = part["type"].as_str().unwrap_or("part");
        let text = match part {
            Value::String(text) => Some(text.as_str()),
            _ => part["text"].as_str().or(part["refusal"].as_str()),
        };
        match (kind, text) {
            (_, Some(text)) => read.add_text(text),
            ("image_url" | "input_image", None) => {
                let url = part["image_url"].as_str().or(part["image_url"]["url"].as_str());
                read.add_image_url(kind, url.unwrap_or_default());
            }
            (kind, None) => read.add_foreign(kind),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(messages: &Value) -> Vec<(SenderRole, String, Option<String>)> {
        let read = read(messages, "messages").expect("read");
        read.into_iter().map(|message| (message.role, message.text, message.foreign_part)).collect()
    }

    #[test]
    fn parts_of_text_are_joined_and_others_are_remembered() {
        let messages = json!([
            {"role": "developer", "content": "Be kind."},
            {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "input_text", "text": "two"}]},
            {"role": "tool", "content": "3", "tool_call_id": "1"},
            {"type": "reasoning", "summary": []},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "so"}]},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}, {"type": "text", "text": "what?"}]},
            {"role": "user", "content": "look", "images": ["no data"]},
        ]);
        let expected = [
            (SenderRole::System, "Be kind.", None),
            (SenderRole::User, "one\ntwo", None),
            (SenderRole::Tool, "", None),
            (SenderRole::Assistant, "so", None),
            (SenderRole::User, "what?", Some("image_url")),
            (SenderRole::User, "look", Some("images")),
        ];
        let expected: Vec<_> =
            expected.into_iter().map(|(role, text, part)| (role, text.to_owned(), part.map(str::to_owned))).collect();
        assert_eq!(texts(&messages), expected);
    }

    #[test]
    fn images_of_every_protocol_are_read() {
        let base64 = |media_type: &str, data: &str| Image {
            media_type: media_type.to_owned(),
            source: ImageSource::Base64(data.to_owned()),
        };
        let url = Image { media_type: "image/*".to_owned(), source: ImageSource::Url("https://x/a.png".to_owned()) };
        let cases = [
            (
                json!({"content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBO"}}]}),
                base64("image/png", "iVBO"),
            ),
            (
                json!({"content": [{"type": "input_image", "image_url": "data:image/gif;base64,R0lG"}]}),
                base64("image/gif", "R0lG"),
            ),
            (json!({"content": [{"type": "image_url", "image_url": {"url": "https://x/a.png"}}]}), url),
            (json!({"content": "x", "images": ["/9j/4A"]}), base64("image/jpeg", "/9j/4A")),
        ];
        for (mut message, expected) in cases {
            message["role"] = "user".into();
            let read = read(&json!([message]), "messages").expect("read").remove(0);
            assert_eq!((&read.images, &read.foreign_part), (&vec![expected], &None), "{message}");
            read.only_text().expect_err("a session takes none");
        }
    }

    #[test]
    fn calls_and_results_of_every_protocol_are_read() {
        let call = |id: &str| ToolCall { id: id.to_owned(), name: "f".to_owned(), arguments: json!({"a": 1}) };
        let calls = json!([
            {"role": "assistant", "content": null, "tool_calls":
                [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}}]},
            {"type": "function_call", "call_id": "2", "name": "f", "arguments": "{\"a\":1}"},
            {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]},
        ]);
        let read_calls: Vec<_> = read(&calls, "messages").expect("read").into_iter().map(|one| one.calls).collect();
        assert_eq!(read_calls, [vec![call("1")], vec![call("2")], vec![call("call-0")]]);
        let results = json!([
            {"role": "tool", "tool_call_id": "1", "content": "3"},
            {"type": "function_call_output", "call_id": "2", "output": "3"},
            {"role": "tool", "tool_name": "f", "content": "3"},
        ]);
        let read: Vec<_> = read(&results, "messages").expect("read").into_iter().flat_map(|one| one.results).collect();
        let result = |call: &str, name: Option<&str>| ClientResult {
            call: call.to_owned(),
            name: name.map(str::to_owned),
            text: "3".to_owned(),
        };
        assert_eq!(read, [result("1", None), result("2", None), result("", Some("f"))]);
    }

    #[test]
    fn a_wrong_message_is_named() {
        let wrong = |messages: Value| {
            let failure = read(&messages, "messages").expect_err("refused");
            (failure.param.expect("a place"), failure.message)
        };
        assert_eq!(wrong(json!("hello")), ("messages".to_owned(), "`messages` is not a list".to_owned()));
        assert_eq!(wrong(json!(["hello"])).0, "messages.0");
        assert_eq!(wrong(json!([{"content": "x"}])).0, "messages.0.role");
        assert_eq!(wrong(json!([{"role": "robot", "content": "x"}])).0, "messages.0.role");
        assert_eq!(wrong(json!([{"role": "user", "content": 7}])).0, "messages.0.content");
        let read = read(&json!([{"role": "user", "content": [{"type": "input_audio"}]}]), "messages").expect("read");
        let failure = read[0].only_text().expect_err("refused");
        assert!(failure.message.starts_with("`input_audio` cannot be read here; "), "{}", failure.message);
    }
}
