//! The messages that a client sends. What in them cannot be understood is remembered, and refused only if that message counts.

use serde_json::{Map, Value};

use super::failure::ProxyFailure;

/// Who wrote a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SenderRole {
    /// The client's program: `system` and `developer`.
    System,
    User,
    Assistant,
    /// A result of the client's own tool, or something else that is not said by anyone.
    Other,
}

/// A message as the client sent it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientText {
    pub(crate) role: SenderRole,
    pub(crate) text: String,
    /// Where it stands in the request, like `messages.3.content`.
    pub(crate) place: String,
    /// A part that is not text, like `image_url`.
    pub(crate) foreign_part: Option<String>,
}

impl ClientText {
    pub(crate) fn user(place: &str, text: &str) -> Self {
        Self { role: SenderRole::User, text: text.to_owned(), place: place.to_owned(), foreign_part: None }
    }

    /// The text; an error if the message has parts of another kind.
    pub(crate) fn only_text(&self) -> Result<&str, ProxyFailure> {
        match &self.foreign_part {
            None => Ok(&self.text),
            Some(part) => {
                Err(ProxyFailure::invalid(&self.place, format!("`{part}` cannot be read here; send text only")))
            }
        }
    }
}

/// Reads a list of messages, in the field `name` of the request.
pub(crate) fn read(messages: &Value, name: &str) -> Result<Vec<ClientText>, ProxyFailure> {
    let list = messages.as_array().ok_or_else(|| ProxyFailure::invalid(name, format!("`{name}` is not a list")))?;
    list.iter().enumerate().map(|(number, message)| one(message, &format!("{name}.{number}"))).collect()
}

fn one(message: &Value, place: &str) -> Result<ClientText, ProxyFailure> {
    let message = message.as_object().ok_or_else(|| ProxyFailure::invalid(place, "a message is not an object"))?;
    let role = match message.get("role").and_then(Value::as_str) {
        Some("system" | "developer") => SenderRole::System,
        Some("user") => SenderRole::User,
        Some("assistant") => SenderRole::Assistant,
        Some("tool" | "function") => SenderRole::Other,
        // OpenAI's responses have items of other types than messages, and those have no role.
        None if message.get("type").is_some_and(|kind| kind != "message") => SenderRole::Other,
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
    let (text, part) = content(message, &place)?;
    let is_filled = |name: &str| message.get(name).and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    let field = ["images", "tool_calls"].into_iter().find(|name| is_filled(name)).map(str::to_owned);
    Ok(ClientText { role, text, place, foreign_part: part.or(field) })
}

/// The text of a message, and the first part that is not text.
fn content(message: &Map<String, Value>, place: &str) -> Result<(String, Option<String>), ProxyFailure> {
    let parts = match message.get("content") {
        None | Some(Value::Null) => return Ok((String::new(), None)),
        Some(Value::String(text)) => return Ok((text.clone(), None)),
        Some(Value::Array(parts)) => parts,
        Some(_) => return Err(ProxyFailure::invalid(place, "`content` is neither a text nor a list of parts")),
    };
    let mut texts = Vec::new();
    let mut foreign = None;
    for part in parts {
        let text = match part {
            Value::String(text) => Some(text.as_str()),
            _ => part["text"].as_str().or(part["refusal"].as_str()),
        };
        match text {
            Some(text) => texts.push(text),
            None => foreign = foreign.or(Some(part["type"].as_str().unwrap_or("part").to_owned())),
        }
    }
    Ok((texts.join("\n"), foreign))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
            {"role": "assistant", "content": null, "tool_calls": [{"id": "1"}]},
            {"role": "tool", "content": "3", "tool_call_id": "1"},
            {"type": "reasoning", "summary": []},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "so"}]},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}, {"type": "text", "text": "what?"}]},
            {"role": "user", "content": "look", "images": ["aGk="]},
        ]);
        let expected = [
            (SenderRole::System, "Be kind.", None),
            (SenderRole::User, "one\ntwo", None),
            (SenderRole::Assistant, "", Some("tool_calls")),
            (SenderRole::Other, "3", None),
            (SenderRole::Other, "", None),
            (SenderRole::Assistant, "so", None),
            (SenderRole::User, "what?", Some("image_url")),
            (SenderRole::User, "look", Some("images")),
        ];
        let expected: Vec<_> =
            expected.into_iter().map(|(role, text, part)| (role, text.to_owned(), part.map(str::to_owned))).collect();
        assert_eq!(texts(&messages), expected);
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
        assert_eq!(failure.message, "`input_audio` cannot be read here; send text only");
    }
}
