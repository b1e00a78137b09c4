//! What the result of a call means: data, text, files, or an error of the tool.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

/// What a tool answered.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolAnswer {
    /// Structured content as it is; else one text, as JSON if it is an object or an array; else all blocks.
    Data(Value),
    /// One image, audio or other file, and the texts beside it.
    Binary(BinaryContent),
    /// The tool failed, and says so in this text; with the structured content, if there is any.
    Error { text: String, data: Option<Value> },
}

/// A file that a tool answered.
#[derive(Debug, Clone, PartialEq)]
pub struct BinaryContent {
    pub bytes: Vec<u8>,
    /// Its media type.
    pub content_type: String,
    /// The texts beside it, joined by line breaks.
    pub text: Option<String>,
    /// What else was beside it, such as links.
    pub others: Vec<Value>,
}

impl ToolAnswer {
    /// Reads the result of `tools/call`.
    pub fn of(result: &Value) -> Self {
        let blocks = result["content"].as_array().map(Vec::as_slice).unwrap_or_default();
        let structured = result.get("structuredContent").filter(|content| !content.is_null());
        if result["isError"] == true {
            let text = joined_texts(blocks).unwrap_or_else(|| "the tool reported an error without words".to_owned());
            return Self::Error { text, data: structured.cloned() };
        }
        let (binaries, others): (Vec<_>, Vec<_>) = blocks.iter().partition(|block| binary(block).is_some());
        if let ([one], None) = (binaries.as_slice(), structured)
            && let Some((bytes, content_type)) = binary(one).and_then(decoded)
        {
            let (texts, others): (Vec<_>, Vec<_>) =
                others.into_iter().cloned().partition(|block| text(block).is_some());
            return Self::Binary(BinaryContent { bytes, content_type, text: joined_texts(&texts), others });
        }
        if let Some(structured) = structured {
            // The texts are the same for clients that know no structured content; links and files are not.
            let beside: Vec<_> = blocks.iter().filter(|block| text(block).is_none()).map(shown).collect();
            return Self::Data(match (beside.is_empty(), structured) {
                (true, structured) => structured.clone(),
                (false, structured) => json!({"structured": structured, "content": beside}),
            });
        }
        Self::Data(match blocks {
            [] => Value::Null,
            [one] => match text(one) {
                Some(text) => parsed(text),
                None => json!({"content": [shown(one)]}),
            },
            blocks => json!({"content": blocks.iter().map(shown).collect::<Vec<_>>()}),
        })
    }
}

/// The text of a block, if it is text: its own, or that of an embedded resource.
fn text(block: &Value) -> Option<&str> {
    match block["type"].as_str() {
        Some("text") => block["text"].as_str(),
        _ => None,
    }
}

/// The base64 and the media type of a block, if it is binary.
fn binary(block: &Value) -> Option<(&str, &str)> {
    match block["type"].as_str()? {
        "image" | "audio" => Some((block["data"].as_str()?, block["mimeType"].as_str().unwrap_or(UNKNOWN_TYPE))),
        "resource" => {
            let resource = &block["resource"];
            Some((resource["blob"].as_str()?, resource["mimeType"].as_str().unwrap_or(UNKNOWN_TYPE)))
        }
        _ => None,
    }
}

const UNKNOWN_TYPE: &str = "application/octet-stream";

fn decoded((data, content_type): (&str, &str)) -> Option<(Vec<u8>, String)> {
    let bytes = STANDARD.decode(data.trim()).ok()?;
    Some((bytes, content_type.to_owned()))
}

fn joined_texts(blocks: &[Value]) -> Option<String> {
    let texts: Vec<_> = blocks.iter().filter_map(text).collect();
    (!texts.is_empty()).then(|| texts.join("\n"))
}

/// An object or an array that is written as a text is data; any other text stays text.
fn parsed(text: &str) -> Value {
    let is_document = matches!(text.trim_start().as_bytes().first(), Some(b'{' | b'['));
    let document = if is_document { protocol::json::parse(text.as_bytes()).ok() } else { None };
    document.unwrap_or_else(|| text.into())
}

/// A block without what only clients with a screen need.
fn shown(block: &Value) -> Value {
    let Value::Object(block) = block else { return block.clone() };
    let kept = block.iter().filter(|(key, _)| !matches!(key.as_str(), "annotations" | "_meta" | "icons"));
    Value::Object(kept.map(|(key, value)| (key.clone(), value.clone())).collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_becomes_data() {
        let data = |result: Value| match ToolAnswer::of(&result) {
            ToolAnswer::Data(data) => data,
            other => panic!("{other:?}"),
        };
        let text = |text: &str| json!({"type": "text", "text": text});
        assert_eq!(data(json!({"content": [text("Echo: hi")]})), "Echo: hi");
        assert_eq!(data(json!({"content": [text("{\"a\": [1]}")]})), json!({"a": [1]}));
        assert_eq!(data(json!({"content": [text("42")]})), "42", "a number in a text stays a text");
        assert_eq!(data(json!({"content": [text("{not json")]})), "{not json");
        assert_eq!(data(json!({"content": []})), Value::Null);
        assert_eq!(data(json!({"content": [text("{}")], "structuredContent": {"t": 22.5}})), json!({"t": 22.5}));
        assert_eq!(data(json!({"content": [text("a"), text("b")]}))["content"][1], text("b"));
        let link = json!({"type": "resource_link", "uri": "file:///a", "name": "a", "annotations": {"priority": 1}});
        let shown = json!({"type": "resource_link", "uri": "file:///a", "name": "a"});
        assert_eq!(
            data(json!({"content": [link], "structuredContent": 1})),
            json!({"structured": 1, "content": [shown]})
        );
    }

    #[test]
    fn one_file_is_a_file_and_several_stay_in_the_data() {
        let image = json!({"type": "image", "data": "AAEC", "mimeType": "image/png"});
        let result = json!({"content": [{"type": "text", "text": "see"}, image]});
        let ToolAnswer::Binary(binary) = ToolAnswer::of(&result) else { panic!("no file") };
        assert_eq!((binary.bytes.as_slice(), binary.content_type.as_str()), (&[0, 1, 2][..], "image/png"));
        assert_eq!(binary.text.as_deref(), Some("see"));
        let blob = json!({"type": "resource", "resource": {"uri": "x:1", "blob": "AAEC"}});
        assert!(matches!(ToolAnswer::of(&json!({"content": [blob]})), ToolAnswer::Binary(_)));
        assert!(matches!(ToolAnswer::of(&json!({"content": [image, image]})), ToolAnswer::Data(_)));
        let broken = json!({"type": "image", "data": "!", "mimeType": "image/png"});
        assert!(matches!(ToolAnswer::of(&json!({"content": [broken]})), ToolAnswer::Data(_)));
    }

    #[test]
    fn an_error_of_the_tool_is_an_error() {
        let result = json!({"content": [{"type": "text", "text": "no such file"}], "isError": true});
        assert_eq!(ToolAnswer::of(&result), ToolAnswer::Error { text: "no such file".to_owned(), data: None });
    }
}
