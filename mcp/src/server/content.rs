//! What calls give back: the output of a command line as text, and the result of a subtool that is a tool of its own.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use protocol::code::Exit;
use protocol::command_executor::CommandOutput;
use protocol::extent;
use protocol::mailbox::Mailbox;
use protocol::task::State;
use rmcp::model::{CallToolResult, ContentBlock, ProtocolVersion, Resource};
use serde_json::Value;

use super::results::{self, ResultNow};

/// The fields that data has which is a result of the protocol already.
const RESULT_FIELDS: [&str; 4] = ["content", "structuredContent", "isError", "_meta"];

/// What a client of this protocol version understands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Understands {
    /// Links to resources and structured content, since 2025-06-18.
    links: bool,
    /// Audio, since 2025-03-26.
    audio: bool,
}

impl Understands {
    pub(super) fn of(version: Option<&ProtocolVersion>) -> Self {
        let since = |first: &ProtocolVersion| version.is_some_and(|version| version.as_str() >= first.as_str());
        Self { links: since(&ProtocolVersion::V_2025_06_18), audio: since(&ProtocolVersion::V_2025_03_26) }
    }
}

/// Whether a line with this exit status failed. A task that waits or is pending has not.
fn is_failure(status: u8) -> bool {
    ![Exit::Ok, Exit::AwaitingConfirmation, Exit::Pending].iter().any(|exit| *exit as u8 == status)
}

/// What a command line printed, and links to the result files of what it delegated.
pub(super) fn of_line(output: &CommandOutput, understands: Understands) -> CallToolResult {
    let mut content = vec![ContentBlock::text(&output.text)];
    if understands.links {
        content.extend(output.opened.iter().map(|task| ContentBlock::resource_link(results::link(task))));
    }
    if is_failure(output.status) { CallToolResult::error(content) } else { CallToolResult::success(content) }
}

/// The result of a subtool that is a tool of its own: its data alone. `printed` is what the command line says of it,
/// which is shown instead if there is no data. Blocks.
pub(super) fn of_data(
    now: &ResultNow,
    printed: &CommandOutput,
    mailbox: &Mailbox,
    understands: Understands,
) -> CallToolResult {
    if now.state() != State::Succeeded {
        return of_line(printed, understands);
    }
    if let Some(kind) = now.data_type() {
        return CallToolResult::success(of_data_file(now, &kind, printed, mailbox, understands));
    }
    let mut result = match &now.file["data"] {
        Value::String(text) => CallToolResult::success(vec![ContentBlock::text(text)]),
        data => of_result(data).unwrap_or_else(|| {
            let mut result = CallToolResult::success(vec![ContentBlock::text(data.to_string())]);
            result.structured_content = Some(data.clone()).filter(|data| data.is_object() && understands.links);
            result
        }),
    };
    result.content.extend(extent::note(&now.file["_meta"]).map(|note| ContentBlock::text(format!("note: {note}"))));
    result
}

/// Data that is a result of the protocol already, such as one that another server gave.
fn of_result(data: &Value) -> Option<CallToolResult> {
    let fields = data.as_object()?;
    if !fields.contains_key("content") || fields.keys().any(|field| !RESULT_FIELDS.contains(&field.as_str())) {
        return None;
    }
    let mut result: CallToolResult = serde_json::from_value(data.clone()).ok()?;
    result.result_type = CallToolResult::success(Vec::new()).result_type;
    Some(result)
}

/// Data that lies in a file of its own: an image or a sound as such, anything else as a link beside what the command line
/// says of it.
fn of_data_file(
    now: &ResultNow,
    kind: &str,
    printed: &CommandOutput,
    mailbox: &Mailbox,
    understands: Understands,
) -> Vec<ContentBlock> {
    let encoded = || now.data(mailbox).ok().map(|bytes| STANDARD.encode(bytes));
    let block = match kind.split('/').next() {
        Some("image") => encoded().map(|data| ContentBlock::image(data, kind)),
        Some("audio") if understands.audio => encoded().map(|data| ContentBlock::audio(data, kind)),
        _ => None,
    };
    if let Some(block) = block {
        // What was said beside it.
        let text = now.file["_meta"]["text"].as_str().map(ContentBlock::text);
        return text.into_iter().chain([block]).collect();
    }
    let mut content = vec![ContentBlock::text(&printed.text)];
    if understands.links {
        let link = Resource::new(results::data_uri(now.id), format!("result-{}.data", now.id)).with_mime_type(kind);
        content.push(ContentBlock::resource_link(link));
    }
    content
}

#[cfg(test)]
mod tests {
    use protocol::task::TaskId;
    use serde_json::json;

    use super::*;

    /// The result of a task with this result file and, beside it, `data`.
    fn result(file: &Value, data: Option<(&str, &[u8])>, version: &ProtocolVersion) -> Value {
        let folder = tempfile::tempdir().expect("a folder");
        let mailbox = Mailbox::open(&folder.path().join("mailbox")).expect("a mailbox");
        let id = TaskId::new();
        if let Some((extension, mut bytes)) = data {
            mailbox.put_data(id, extension, &mut bytes).expect("written");
        }
        let now = ResultNow { id, file: file.clone() };
        let printed = CommandOutput { text: "printed".to_owned(), ..CommandOutput::default() };
        let result = of_data(&now, &printed, &mailbox, Understands::of(Some(version)));
        serde_json::to_value(result).expect("JSON")
    }

    #[test]
    fn data_becomes_what_the_client_understands() {
        let [first, second, newest] =
            [&ProtocolVersion::V_2024_11_05, &ProtocolVersion::V_2025_03_26, &ProtocolVersion::V_2026_07_28];
        let object = json!({"status": "succeeded", "data": {"a": 1}});
        assert_eq!(result(&object, None, newest)["structuredContent"], json!({"a": 1}));
        assert!(result(&object, None, first).get("structuredContent").is_none());
        let part = json!({"status": "succeeded", "data": [1], "_meta": {"more_pages": true}});
        let part = result(&part, None, newest);
        assert_eq!(part["content"][0]["text"], "[1]");
        assert!(part["content"][1]["text"].as_str().is_some_and(|note| note.starts_with("note: the data is not all")));
        let list = result(&json!({"status": "succeeded", "data": [1]}), None, newest);
        assert_eq!((&list["content"][0]["text"], list.get("structuredContent")), (&json!("[1]"), None));

        let file = |kind: &str| json!({"status": "succeeded", "_meta": {"data_file": "/x/result-y.data.bin", "content_type": kind}});
        let image = result(&file("image/png"), Some(("bin", b"png")), first);
        assert_eq!(image["content"], json!([{"type": "image", "data": "cG5n", "mimeType": "image/png"}]));
        let sound = |version| result(&file("audio/wav"), Some(("bin", b"wav")), version)["content"][0]["type"].take();
        assert_eq!((sound(second), sound(first)), (json!("audio"), json!("text")));
        let other = result(&file("application/zip"), Some(("bin", b"zip")), newest);
        assert_eq!(
            (&other["content"][0]["text"], &other["content"][1]["type"]),
            (&json!("printed"), &json!("resource_link"))
        );
    }

    #[test]
    fn only_data_that_is_a_result_is_passed_on_as_one() {
        let content = json!([{"type": "text", "text": "x"}]);
        let of = |data: Value| of_result(&data).map(|result| result.is_error);
        assert_eq!(of(json!({"content": content, "isError": true})), Some(Some(true)));
        for other in
            [json!({"content": content, "more": 1}), json!({"content": "x"}), json!({"isError": true}), json!([])]
        {
            assert_eq!(of(other.clone()), None, "{other}");
        }
    }

    #[test]
    fn what_waits_has_not_failed() {
        let failures: Vec<_> = (0..8).filter(|status| is_failure(*status)).collect();
        assert_eq!(failures, [1, 2, 3, 5, 7]);
    }
}
