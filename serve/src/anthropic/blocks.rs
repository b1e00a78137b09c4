//! The messages of Anthropic's clients: lists of blocks, in which calls and results stand beside texts.

use agent_loop::model::conversation::{Image, ImageSource, ToolCall};
use serde_json::Value;

use crate::proxy::failure::ProxyFailure;
use crate::proxy::message::{self, ClientText, SenderRole};

/// Reads the list `messages`.
pub(super) fn read(messages: &Value) -> Result<Vec<ClientText>, ProxyFailure> {
    let list = messages.as_array().ok_or_else(|| ProxyFailure::invalid("messages", "`messages` is not a list"))?;
    list.iter().enumerate().map(|(number, message)| one(message, &format!("messages.{number}"))).collect()
}

/// Reads `system`: a text, or a list of blocks of text.
pub(super) fn system(system: &Value) -> Result<String, ProxyFailure> {
    let mut read = ClientText::new(SenderRole::System, "system", "");
    content(system, &mut read)?;
    read.readable()?;
    Ok(read.text)
}

fn one(message: &Value, place: &str) -> Result<ClientText, ProxyFailure> {
    let role = match message["role"].as_str() {
        Some("user") => SenderRole::User,
        Some("assistant") => SenderRole::Assistant,
        Some("system") => SenderRole::System,
        _ => {
            let message = "a message has the role `user` or `assistant`";
            return Err(ProxyFailure::invalid(&format!("{place}.role"), message));
        }
    };
    let mut read = ClientText::new(role, &format!("{place}.content"), "");
    content(&message["content"], &mut read)?;
    Ok(read)
}

fn content(content: &Value, read: &mut ClientText) -> Result<(), ProxyFailure> {
    match content {
        Value::String(text) => read.add_text(text),
        Value::Array(blocks) => blocks.iter().for_each(|one| block(one, read)),
        _ => return Err(ProxyFailure::invalid(&read.place, "it is neither a text nor a list of blocks")),
    }
    Ok(())
}

fn block(block: &Value, read: &mut ClientText) {
    let text = |name: &str| block[name].as_str().unwrap_or_default().to_owned();
    match block["type"].as_str().unwrap_or("block") {
        "text" => read.add_text(&text("text")),
        "image" => add_image(&block["source"], read),
        "document" if block["source"]["type"] == "text" => {
            read.add_document(block["source"]["data"].as_str().unwrap_or_default());
        }
        "tool_use" => {
            read.calls.push(ToolCall { id: text("id"), name: text("name"), arguments: block["input"].clone() });
        }
        "tool_result" => add_result(block, read),
        // The thoughts of our models are not sent to clients, and are kept here with the calls that they led to.
        "thinking" | "redacted_thinking" => {}
        other => read.add_foreign(other),
    }
}

fn add_image(source: &Value, read: &mut ClientText) {
    let text = |name: &str| source[name].as_str().unwrap_or_default();
    let image = match text("type") {
        "base64" => message::image_of_base64(text("media_type"), text("data")),
        "url" if text("url").starts_with("http") => {
            Some(Image { media_type: "image/*".to_owned(), source: ImageSource::Url(text("url").to_owned()) })
        }
        _ => None,
    };
    match image {
        Some(image) => read.images.push(image),
        None => read.add_foreign("image"),
    }
}

fn add_result(block: &Value, read: &mut ClientText) {
    let mut result = ClientText::new(SenderRole::Tool, &read.place, "");
    if block["is_error"] == true {
        result.add_text("[The tool failed.]");
    }
    match &block["content"] {
        Value::String(text) => result.add_text(text),
        Value::Array(blocks) => blocks.iter().for_each(|one| self::block(one, &mut result)),
        _ => {}
    }
    result.end_result(block["tool_use_id"].as_str().unwrap_or_default().to_owned(), None);
    read.results.append(&mut result.results);
    read.images.append(&mut result.images);
    if let Some(part) = &result.foreign_part {
        read.add_foreign(part);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::proxy::message::ClientResult;

    #[test]
    fn blocks_of_every_kind_are_read() {
        let png = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"}});
        let messages = json!([
            {"role": "user", "content": [{"type": "text", "text": "look"}, png]},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "x"},
                {"type": "tool_use", "id": "1", "name": "f", "input": {"a": 1}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "1", "is_error": true, "content": [{"type": "text", "text": "no"}, png]},
                {"type": "text", "text": "and?"}]},
            {"role": "user", "content": [{"type": "document", "source": {"type": "text", "data": "a letter"}}]},
        ]);
        let read = read(&messages).expect("read");
        assert_eq!((read[0].text.as_str(), read[0].images.len()), ("look", 1));
        let call = ToolCall { id: "1".to_owned(), name: "f".to_owned(), arguments: json!({"a": 1}) };
        assert_eq!((read[1].text.as_str(), &read[1].calls), ("", &vec![call]));
        let result = ClientResult {
            call: "1".to_owned(),
            name: None,
            text: "[The tool failed.]\nno\n(The image follows.)".to_owned(),
        };
        assert_eq!((read[2].text.as_str(), &read[2].results, read[2].images.len()), ("and?", &vec![result], 1));
        assert_eq!(read[3].text, "a letter");
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let pdf =
            json!({"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "x"}});
        let file = json!({"type": "image", "source": {"type": "file", "file_id": "file_1"}});
        for (block, kind) in [(pdf, "document"), (file, "image"), (json!({"type": "search_result"}), "search_result")] {
            let read = read(&json!([{"role": "user", "content": [block]}])).expect("read");
            let failure = read[0].readable().expect_err("refused");
            assert!(failure.message.starts_with(&format!("`{kind}` ")), "{}", failure.message);
        }
        read(&json!([{"role": "robot", "content": "x"}])).expect_err("no such role");
        read(&json!([{"role": "user"}])).expect_err("no content");
        assert_eq!(
            system(&json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])).expect("read"),
            "a\nb"
        );
    }
}
